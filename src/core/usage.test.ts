import { describe, expect, it } from 'vitest'
import { MemoryStore } from '../stores/memory.ts'
import { groupId, withIncluded, type Access } from './access.ts'
import type { Diagnostic } from './diagnostics.ts'
import { Holdfast } from './holdfast.ts'
import type { QuotaOptions, Quotas } from './quotas.ts'
import type { Runner } from './runner.ts'
import { LOCAL } from './state.ts'

const USED_UP = { code: 'quota_exceeded' }

function accessOf(principal: string, more: Partial<Access> = {}): Access {
  return { principal, groups: [], scopes: withIncluded(['talk', 'manage']), ...more }
}

let ids = 0

/** A Holdfast whose turns run until they are let end, except those whose text says `echo`. */
async function hold(quotas?: QuotaOptions, store = new MemoryStore()) {
  const diagnostics: Diagnostic[] = []
  const ends: (() => void)[] = []
  const runner: Runner = {
    async *run({ text }, { signal }) {
      const end = new Promise<void>((resolve) => {
        ends.push(resolve)
        signal.addEventListener('abort', () => resolve())
      })
      if (text !== 'echo') await end
      yield { type: 'delta', text }
      return undefined
    },
  }
  const time = { ms: 1_000 }
  const holdfast = new Holdfast({
    store,
    runners: { agent: runner },
    clock: {
      now: () => time.ms,
      monotonic: () => time.ms,
      after: (ms, run) => {
        const timer = setTimeout(run, ms)
        return () => clearTimeout(timer)
      },
    },
    entropy: { id: () => `id${(ids += 1)}` },
    digest: String,
    node: `node${(ids += 1)}`,
    quotas,
    onDiagnostic: (diagnostic) => void diagnostics.push(diagnostic),
  })
  await holdfast.authority.start()
  const as = (principal: string, more?: Partial<Access>): Holdfast =>
    holdfast.as(LOCAL, accessOf(principal, more))
  const endAll = (): void => ends.splice(0).forEach((end) => end())
  return { holdfast, as, time, diagnostics, endAll }
}

/** How many of them were refused for a quota; any other failure is thrown. */
async function refused(requests: readonly PromiseLike<unknown>[]): Promise<number> {
  const results = await Promise.allSettled(requests)
  const failures = results.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []))
  for (const failure of failures) if (failure.code !== USED_UP.code) throw failure
  return failures.length
}

function times<Value>(count: number, make: (index: number) => Value): readonly Value[] {
  return Array.from({ length: count }, (_, index) => make(index))
}

describe('the options', () => {
  it.each<[unknown, string]>([
    [{ default: { sessions: 1 } }, 'quotas.default.sessions'],
    [{ default: { sockets: -1 } }, 'quotas.default.sockets'],
    [{ default: { sockets: 1.5 } }, 'quotas.default.sockets'],
    [{ principals: { bob: { sockets: '1' } } }, 'quotas.principals.bob.sockets'],
    [{ principals: { bob: [] } }, 'quotas.principals.bob'],
  ])('%j are refused', async (options, field) => {
    const opening = hold(options as QuotaOptions)
    await expect(opening).rejects.toMatchObject({ code: 'invalid_field', details: { field } })
  })

  it.each<[string, QuotaOptions | undefined, Partial<Access>, number]>([
    ['nothing where nothing is configured', undefined, {}, 5],
    ['every principal, by default', { default: { openSessions: 2 } }, {}, 2],
    ['one principal', { principals: { bob: { openSessions: 3 } } }, {}, 3],
    ['no other one', { principals: { alice: { openSessions: 3 } } }, {}, 5],
    [
      'one principal otherwise than the rest',
      { default: { openSessions: 1, sockets: 1 }, principals: { bob: { openSessions: 2 } } },
      {},
      2,
    ],
    ['a caller by what it was granted', undefined, { quotas: { openSessions: 4 } }, 4],
    [
      'a caller by what it was granted before what is configured',
      { default: { openSessions: 1 } },
      { quotas: { openSessions: 4 } },
      4,
    ],
  ])('limit %s', async (_, options, more, limit) => {
    const { holdfast, as } = await hold(options)
    const bob = as('bob', more)
    expect(await refused(times(5, () => bob.resolve()))).toBe(5 - limit)
    await holdfast.close()
  })

  it('limit no program that acts without access', async () => {
    const { holdfast } = await hold({ default: { openSessions: 0, runningTurns: 0 } })
    const turns = times(3, (index) => holdfast.turn({ key: `k${index}` }, 'echo'))
    expect(await refused(turns)).toBe(0)
    await holdfast.close()
  })
})

describe('open sessions', () => {
  const TEN = { default: { openSessions: 10 } }

  it('are exactly as many as the limit when many are created at once', async () => {
    const { holdfast, as } = await hold(TEN)
    expect(await refused(times(100, () => as('bob').resolve()))).toBe(90)
    expect((await holdfast.list({ limit: 200 })).sessions).toHaveLength(10)
    expect(await refused(times(3, () => as('alice').resolve()))).toBe(0)
    await holdfast.close()
  })

  it('are found at the limit, and one that closes makes room at once', async () => {
    const { holdfast, as } = await hold(TEN)
    const keyed = (index: number) => as('bob').resolve({ key: `k${index}` })
    const sessions = await Promise.all(times(10, keyed))
    expect(await refused(times(12, keyed))).toBe(2)
    expect(await refused([as('bob').resolve({ id: sessions[0]?.id ?? '' })])).toBe(0)
    await sessions[3]?.close()
    expect(await refused([keyed(10), keyed(11)])).toBe(1)
    await holdfast.close()
  })

  it('of before count too, and what another node does within seconds', async () => {
    const store = new MemoryStore()
    const [one, other] = [await hold(TEN, store), await hold(TEN, store)]
    await Promise.all(times(8, () => one.as('bob').resolve()))
    expect(await refused(times(8, () => other.as('bob').resolve()))).toBe(6)
    // This one still believes in eight, and not for long.
    expect(await refused(times(8, () => one.as('bob').resolve()))).toBe(6)
    one.time.ms += 5_000
    expect(await refused(times(2, () => one.as('bob').resolve()))).toBe(2)
    await other.holdfast.authority.stop()
    await one.holdfast.close()
  })

  it('cannot be internal, which is not counted, but for a door', async () => {
    const { holdfast, as } = await hold({ principals: { bob: { openSessions: 1 } } })
    const hidden = { internal: true }
    for (const made of [as('bob').resolve(hidden), as('bob').turn({ key: 'k', ...hidden }, 'x')]) {
      await expect(made).rejects.toMatchObject({ code: 'forbidden' })
    }
    expect(await refused([as('bob').resolveReserved(hidden), as('bob').resolve()])).toBe(0)
    expect(await refused([as('alice').resolve(hidden), holdfast.resolve(hidden)])).toBe(0)
    await holdfast.close()
  })

  it('of a group count for the group, under its own limit', async () => {
    const team = groupId('team')
    const { holdfast, as } = await hold({
      default: { openSessions: 1 },
      principals: { [team]: { openSessions: 2 } },
    })
    const member = { groups: [team], sharedKeys: [{ prefix: 'team/', group: team }] }
    const [bob, mia] = [as('bob', member), as('mia', member)]
    const shared = [bob.resolve({ key: 'team/a' }), mia.resolve({ key: 'team/b' })]
    expect(await refused(shared)).toBe(0)
    expect(await refused([bob.resolve({ key: 'team/c' }), bob.resolve({ key: 'own' })])).toBe(1)
    expect(await refused([bob.resolve({ key: 'more' })])).toBe(1)
    await holdfast.close()
  })
})

describe('turns', () => {
  it('run and wait up to their limits; a refusal leaves nothing behind', async () => {
    const quotas = { default: { runningTurns: 2, queuedTurns: 3 } }
    const { holdfast, as, endAll, diagnostics } = await hold(quotas)
    const sessions = await Promise.all(times(3, () => as('bob').resolve()))
    for (const session of sessions.slice(0, 2)) await session.submit('runs')
    const details = { quota: 'runningTurns', limit: 2, used: 2, retryAfterMs: 1_000 }
    await expect(sessions[2]?.turn('refused')).rejects.toMatchObject({ ...USED_UP, details })
    expect(await sessions[2]?.state()).toMatchObject({ seq: 1, queued: [], running: null })
    const waiting = sessions[0]?.turn('waits')
    for (const session of sessions.slice(0, 2)) await session.submit('waits')
    await expect(sessions[1]?.submit('refused')).rejects.toMatchObject(USED_UP)
    expect(diagnostics.filter(({ code }) => code === 'limit_reached')).toMatchObject([
      { facts: { reason: 'quota_runningTurns', principal: 'bob', limit: 2, used: 2 } },
      { facts: { reason: 'quota_queuedTurns' } },
    ])
    expect(holdfast.authority.counters.quotaRefusals).toBe(2)
    await expect.poll(() => (endAll(), holdfast.authority.counters.turnsEnded)).toBe(5)
    await waiting
    await holdfast.close()
  })

  it.each<[string, (session: Awaited<ReturnType<Holdfast['resolve']>>) => Promise<unknown>]>([
    [
      'are cancelled in the queue',
      async (session) => {
        const { id } = await session.submit('waits')
        await session.cancelTurn(id)
      },
    ],
    [
      'are collected into one',
      async (session) => {
        await session.submit('one', { busy: 'collect' })
        const { id } = await session.submit('two', { busy: 'collect' })
        await session.cancelTurn(id)
      },
    ],
    [
      'wait for too long',
      async (session) => {
        await expect(session.turn('waits', { waitMs: 1 })).rejects.toMatchObject({
          code: 'session_busy',
        })
      },
    ],
    [
      'expire',
      async (session) => {
        const { id } = await session.submit('waits', { waitMs: 0 })
        await session.finished(id)
      },
    ],
    [
      'are refused by their caller',
      async (session) => {
        await expect(session.turn('waits', { busy: 'reject' })).rejects.toMatchObject({
          code: 'session_busy',
        })
      },
    ],
    [
      'are cancelled while they run',
      async (session) => {
        const {
          session: { running },
          queue,
        } = await session.overview()
        expect(queue).toEqual([])
        await session.cancelTurn(running?.id ?? '')
        await session.submit('runs')
      },
    ],
    [
      'interrupt one another',
      async (session) => {
        await session.turn('echo', { busy: 'interrupt' })
        await session.submit('runs')
      },
    ],
  ])('are not counted any more when they %s', async (_, use) => {
    const { holdfast, as } = await hold({ default: { runningTurns: 1, queuedTurns: 2 } })
    const session = await as('bob').resolve()
    await session.submit('runs')
    for (let round = 0; round < 3; round += 1) await use(session)
    // All that may wait, and not one more.
    expect(await refused(times(3, () => session.submit('waits')))).toBe(1)
    await session.close()
    const next = await as('bob').resolve()
    expect(await refused(times(4, () => next.submit('again')))).toBe(1)
    await holdfast.close()
  })

  it('are counted for the caller in the session of another', async () => {
    const { holdfast, as } = await hold({ default: { runningTurns: 1 } })
    const session = await as('alice').resolve()
    await session.share({ with: 'bob', scopes: ['talk'] })
    await as('bob').session(session.id).submit('runs')
    expect(await refused([as('bob').turn({}, 'echo')])).toBe(1)
    expect(await refused([as('alice').turn({}, 'echo')])).toBe(0)
    await holdfast.close()
  })

  it('of a guest count for the principal that the session belongs to', async () => {
    const { holdfast, as } = await hold({ principals: { alice: { runningTurns: 1 } } })
    const session = await as('alice').resolve()
    await as('', { session: session.id }).session(session.id).submit('runs')
    expect(await refused([as('alice').turn({}, 'echo')])).toBe(1)
    await holdfast.close()
  })

  it('come in as many as a minute may have, and then one by one', async () => {
    const { holdfast, as, time } = await hold({ default: { turnsPerMinute: 6 } })
    const session = await as('bob').resolve()
    const run = (count: number) => refused(times(count, () => session.turn('echo')))
    expect(await run(9)).toBe(3)
    const details = { quota: 'turnsPerMinute', limit: 6, used: 6, retryAfterMs: 10_000 }
    await expect(session.turn('echo')).rejects.toMatchObject({ ...USED_UP, details })
    time.ms += 9_999
    expect(await run(1)).toBe(1)
    time.ms += 1
    expect(await run(2)).toBe(1)
    time.ms += 600_000
    expect(await run(9)).toBe(3)
    await holdfast.close()
  })

  it('that are known by their key are no other ones', async () => {
    const quotas: Quotas = { turnsPerMinute: 1, storedBytes: 1_000 }
    const { holdfast, as } = await hold({ default: quotas })
    const session = await as('bob').resolve()
    const again = { idempotencyKey: 'k' }
    const first = await session.turn('echo', again)
    expect(await session.turn('echo', again)).toEqual(first)
    expect(await refused([session.turn('echo')])).toBe(1)
    await holdfast.close()
  })
})

describe('stored bytes', () => {
  it('refuse turns and sessions until something is erased', async () => {
    const { holdfast, as, time } = await hold({ principals: { alice: { storedBytes: 3_000 } } })
    const [first, second] = [await as('alice').resolve(), await as('alice').resolve({ key: 'k' })]
    await first.share({ with: 'bob', scopes: ['talk'] })
    let turns = 0
    while ((await refused([first.turn('echo')])) === 0) turns += 1
    expect(turns).toBeGreaterThan(2)
    const used = await holdfast.authority.store.usage('alice', 'storedBytes', 0)
    expect(used).toBeGreaterThanOrEqual(3_000)
    expect(used).toBeLessThan(4_000)
    // Whoever asks: it is the owner's log that grows.
    expect(
      await refused([as('bob').session(first.id).turn('echo'), as('bob').turn({}, 'echo')]),
    ).toBe(1)
    expect(await refused([as('alice').resolve(), second.submit('echo')])).toBe(2)
    expect(await refused([as('alice').resolve({ key: 'k' })])).toBe(0)
    await first.close()
    time.ms += 1_000
    expect(await refused([second.turn('echo')])).toBe(1)
    await first.erase()
    expect(await refused([second.turn('echo')])).toBe(0)
    await holdfast.close()
  })
})

describe('a quota that is used up', () => {
  it('lets nothing be added to a session, and all be taken away', async () => {
    const { holdfast, as } = await hold({ principals: { alice: { storedBytes: 2_000 } } })
    const alice = as('alice')
    const session = await alice.resolve()
    const link = await session.createLink({ scopes: ['watch'] })
    await session.share({ with: 'bob', scopes: ['talk'] })
    const before = await session.attach({ resumable: true })
    while ((await refused([session.turn('echo')])) === 0) continue
    const adding = [
      session.configure({ onNobody: 'deny' }),
      as('bob').session(session.id).configure({ onNobody: 'deny' }),
      session.createLink({ scopes: ['watch'] }),
      session.share({ with: 'carol', scopes: ['watch'] }),
      session.putBlob(Buffer.from('bytes')),
      session.attach(),
      // OpenAI's conversations are such sessions.
      alice.resolve({ internal: true }),
    ]
    expect(await refused(adding)).toBe(adding.length)
    const { seq } = await session.state()
    // It watches, and what it had it keeps.
    await session.attach({ role: 'watcher' })
    await before.lose()
    await session.resume(before.id, before.token ?? '')
    await session.revokeLink(link.id)
    await session.unshare('bob')
    await session.close()
    expect((await session.state()).seq).toBeGreaterThan(seq)
    await holdfast.close()
  })

  it.each<[string, Quotas]>([
    ['turns that run', { runningTurns: 1 }],
    ['turns in a minute', { turnsPerMinute: 1 }],
  ])('of %s: a refused one leaves no session, and finds one that is there', async (_, quotas) => {
    const { holdfast, as } = await hold({ principals: { bob: quotas } })
    const bob = as('bob')
    await bob.submit({ key: 'one' }, 'runs', { idempotencyKey: 'first' })
    const again = bob.submit({ key: 'one' }, 'runs', { idempotencyKey: 'first' })
    expect(await refused([again, bob.turn({ key: 'two' }, 'x'), bob.turn({}, 'x')])).toBe(2)
    const reserved = { id: 'own', internal: true }
    expect(await refused([bob.resolveReserved(reserved, {})])).toBe(1)
    const { sessions } = await holdfast.list()
    expect(sessions.map(({ key }) => key)).toEqual(['one'])
    expect((await holdfast.authority.store.read('own', 0, 0)).row).toBeNull()
    await holdfast.close()
  })
})

describe('the memory of it', () => {
  it('has no principal without limits, and a bounded number of others', async () => {
    const { holdfast } = await hold({ principals: { bob: { sockets: 1 } } })
    const { usage } = holdfast.authority
    expect(usage.ofCaller(accessOf('alice'))).toBeNull()
    expect(usage.size).toBe(0)
    const uncount = usage.ofCaller(accessOf('bob'))?.take('sockets')
    for (let index = 0; index < 12_000; index += 1) {
      usage.ofCaller(accessOf(`p${index}`, { quotas: { sockets: 1 } }))
    }
    expect(usage.size).toBeLessThanOrEqual(10_000)
    expect(() => usage.ofCaller(accessOf('bob'))?.take('sockets')).toThrow('1 of 1')
    uncount?.()
    uncount?.()
    usage.ofCaller(accessOf('bob'))?.take('sockets')
    expect(() => usage.ofCaller(accessOf('bob'))?.take('sockets')).toThrow('1 of 1')
    await holdfast.close()
  })
})
