/** Webhooks: programs elsewhere are told what happens in sessions, at least once and in order. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { builtinAgents, type Agent, type Diagnostic } from '../../src/index.ts'
import { DnsServer } from '../support/dns-server.ts'
import { until } from '../support/gate.ts'
import { serve, type TestServer, type TestServerOptions } from '../support/server.ts'
import { SECRET, seqsOf, WebhookReceiver, type Replier } from '../support/webhook-receiver.ts'

const FAST = { retryMs: 20, retryMsMax: 100, lookMs: 20, farewellMs: 200 }
const LOOPBACK = ['127.0.0.1']

const open: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of open.splice(0).toReversed()) await close()
})

async function receive(reply?: Replier): Promise<WebhookReceiver> {
  const receiver = await WebhookReceiver.start(reply)
  open.push(() => receiver.close())
  return receiver
}

type Hook = NonNullable<TestServerOptions['webhooks']>[number]

function hook(receiver: { readonly url: string }, more: Partial<Hook> = {}): Hook {
  return { name: 'hook', url: receiver.url, secrets: [SECRET], allow: LOOPBACK, ...more }
}

/** Asks for a permission, and says what was answered. */
const asking: Agent = async ({ text }, context) => {
  const detail = JSON.parse(text)
  const options = ['allow', 'deny']
  const asked = { kind: 'permission', question: 'May I?', options, detail, onNobody: 'deny' }
  return JSON.stringify(await context.ask(asked as never))
}

async function start(webhooks: readonly Hook[], more: TestServerOptions = {}) {
  const diagnostics: Diagnostic[] = []
  const server = await serve({
    webhooks,
    agents: { ...builtinAgents, asking },
    webhookLimits: FAST,
    onDiagnostic: (diagnostic) => diagnostics.push(diagnostic),
    ...more,
  })
  open.push(() => server.close())
  await until(async () => (await standing(server)).every(({ node }: any) => node !== null))
  return { server, diagnostics }
}

async function standing(server: TestServer): Promise<any[]> {
  return (await server.get('/v1/webhooks')).body.webhooks
}

function turn(server: TestServer, key: string, input = 'hello', agent = 'echo') {
  return server.post(`/v1/keys/${key}/turns`, { input, agent })
}

describe('a webhook', () => {
  it('is told what it asked for, in order, signed for the stock library, and no text', async () => {
    const receiver = await receive()
    const events = ['session.created', 'turn.started', 'turn.done', 'session.closed'] as const
    const { server } = await start([hook(receiver, { events })])
    const { body } = await turn(server, 'alice', 'my secret plan')
    await server.call('DELETE', `/v1/sessions/${body.session}`)
    await receiver.waitFor(4)
    expect(receiver.types()).toEqual(events)
    const [created, , done] = receiver.confirmed
    expect(created!.id).toBe(`evt_${body.session}_1`)
    expect(done!.data).toMatchObject({ session: { id: body.session, agent: 'echo' }, turn: 't2' })
    for (const { text } of receiver.received) expect(text).not.toMatch(/secret plan|alice/)
  })

  it('has texts if the operator wants them, without what looks like a secret', async () => {
    const receiver = await receive()
    const { server } = await start([hook(receiver, { include: ['text', 'diff'] })])
    const input = { command: 'curl -H "Authorization: Bearer abcdef123456789"', input: { a: 1 } }
    await turn(server, 'k', JSON.stringify(input), 'asking')
    await receiver.waitFor(3)
    expect(receiver.types()).toEqual(['ask.opened', 'ask.settled', 'turn.done'])
    const [opened, settled, done] = receiver.confirmed.map(({ data }) => data)
    expect(opened.ask).toMatchObject({ question: 'May I?', input: '{"a":1}', isDecided: true })
    expect(opened.ask.command).toBe('curl -H "Authorization: Bearer [secret]"')
    expect(settled).toMatchObject({ outcome: 'nobody_to_ask', ask: { id: opened.ask.id } })
    expect(done.text).toContain('nobody_to_ask')
    expect(done.session.key).toBe('k')
  })

  it('gets only what its filters let through', async () => {
    const receiver = await receive()
    const all = await receive()
    const filter = { labels: { team: 'blue' }, agents: ['echo'], owners: ['default'] }
    const { server } = await start([hook(receiver, filter), hook(all, { name: 'all' })])
    const create = (labels: object, agent: string) =>
      server.post('/v1/sessions', { labels, agent }).then(({ body }) => body.id as string)
    const ids = [
      await create({ team: 'blue' }, 'echo'),
      await create({ team: 'red' }, 'echo'),
      await create({ team: 'blue' }, 'slow'),
    ]
    for (const id of ids) await server.call('DELETE', `/v1/sessions/${id}`)
    await all.waitFor(3)
    await receiver.waitFor(1)
    expect(receiver.confirmed.map(({ data }) => data.session.id)).toEqual([ids[0]])
  })

  it('gets every event of a session in order while its receiver fails now and then', async () => {
    const receiver = await receive((_, count) => (count % 3 === 0 ? 500 : 200))
    const events = ['turn.started', 'turn.done'] as const
    const { server, diagnostics } = await start([hook(receiver, { events })])
    const keys = ['a', 'b', 'c']
    await Promise.all(
      keys.map(async (key) => {
        for (let count = 0; count < 4; count += 1) await turn(server, key)
      }),
    )
    await receiver.waitFor(24)
    for (const seqs of seqsOf(receiver.confirmed).values()) {
      expect(seqs).toHaveLength(8)
      expect(seqs).toEqual(seqs.toSorted((one, other) => one - other))
    }
    const codes = new Set(diagnostics.map(({ code }) => code))
    expect([...codes]).toEqual(expect.arrayContaining(['webhook_failed', 'webhook_recovered']))
  })

  it('follows no redirect, and reads no endless answer', async () => {
    const other = await receive()
    const receiver = await receive((_, count) => {
      if (count === 0) return { status: 307, headers: { location: other.url } }
      return (_request, response) => {
        response.writeHead(200)
        const fill = (): void =>
          void (response.destroyed || response.write('x'.repeat(9_999), fill))
        fill()
      }
    })
    const { server } = await start([hook(receiver)])
    await turn(server, 'k')
    await until(async () => (await standing(server))[0].confirmedAt !== null)
    expect(other.received).toEqual([])
    expect(receiver.received).toHaveLength(2)
  })

  it('waits as long as its receiver asks for', async () => {
    const receiver = await receive((_, count) =>
      count === 0 ? { status: 429, headers: { 'retry-after': '3600' } } : 200,
    )
    const { server } = await start([hook(receiver)])
    await turn(server, 'k')
    await until(async () => (await standing(server))[0].failures === 1)
    const [{ retryAt, error, state }] = await standing(server)
    expect([error, state]).toEqual([{ reason: 'status', status: 429 }, 'failing'])
    expect(retryAt - Date.now()).toBeGreaterThan(3_500_000)
    await server.post('/v1/webhooks/hook/resume', {})
    await receiver.waitFor(1)
  })

  it('is paused if its receiver is gone, is shown so, and goes on where it stands', async () => {
    let isGone = true
    const receiver = await receive(() => (isGone ? 410 : 200))
    const { server, diagnostics } = await start([hook(receiver)])
    await turn(server, 'k')
    await until(async () => (await standing(server))[0].state === 'paused')
    await turn(server, 'k')
    expect(diagnostics.some(({ code }) => code === 'webhook_paused')).toBe(true)
    expect((await server.call('GET', '/metrics')).body).toContain(
      'holdfast_webhook_paused{webhook="hook"} 1',
    )
    isGone = false
    const { body } = await server.post('/v1/webhooks/hook/resume', {})
    expect(body.webhooks).toMatchObject([{ name: 'hook', state: 'active' }])
    await receiver.waitFor(2)
    expect(receiver.types()).toEqual(['turn.done', 'turn.done'])
  })

  it('is not held up by another whose receiver never answers', async () => {
    const stuck = await receive(() => () => undefined)
    const receiver = await receive()
    const { server } = await start([hook(stuck, { name: 'stuck' }), hook(receiver)])
    for (let count = 0; count < 3; count += 1) await turn(server, 'k')
    await receiver.waitFor(3)
    expect(stuck.received).toHaveLength(1)
  })

  it('counts as a client to ask while it is delivered, and not once it fails', async () => {
    let isUp = true
    const receiver = await receive(() => (isUp ? 200 : 503))
    const limits = { answerGraceMs: 0 }
    const { server } = await start([hook(receiver, { answers: ['permission'] })], { limits })
    const asked = turn(server, 'k', '{}', 'asking')
    await receiver.waitFor(1)
    const { session, ask } = receiver.confirmed[0]!.data
    isUp = false
    await server.post(`/v1/sessions/${session.id}/asks/${ask.id}`, { answer: 'allow' })
    expect((await asked).body.turn.reply.text).toContain('"allow"')
    await until(async () => (await standing(server))[0].failures > 0)
    const { body } = await turn(server, 'k', '{}', 'asking')
    expect(body.turn.reply.text).toContain('nobody_to_ask')
  })

  it('is tested from outside, and only by an administrator', async () => {
    const receiver = await receive()
    const { server } = await start([hook(receiver)])
    const { body } = await server.post('/v1/webhooks/hook/test', {})
    expect(body).toEqual({ isConfirmed: true, reason: null, status: 204 })
    expect(receiver.types()).toEqual(['webhook.test'])
    expect((await server.post('/v1/webhooks/none/test', {})).status).toBe(404)
  })

  it('tells of a time whose events were not kept for it', async () => {
    let isUp = false
    const receiver = await receive(() => (isUp ? 200 : 503))
    const { server } = await start([hook(receiver, { keepMs: 1_000 })])
    await turn(server, 'old')
    const begun = Date.now()
    await until(() => Date.now() - begun > 1_100)
    isUp = true
    await receiver.waitFor(1)
    expect(receiver.types()).toEqual(['webhook.gap'])
    await turn(server, 'new')
    await receiver.waitFor(2)
    expect(receiver.types()).toEqual(['webhook.gap', 'turn.done'])
  })
})

describe('a forbidden address', () => {
  async function refusedReason(url: string, more: Partial<Hook>, options: TestServerOptions = {}) {
    const { server } = await start([hook({ url }, more)], options)
    const { body } = await server.post('/v1/webhooks/hook/test', {})
    return body.reason
  }

  it('is not connected to, however it is written', async () => {
    const receiver = await receive()
    const { port } = receiver
    const hosts = ['127.0.0.1', '2130706433', '0x7f.1', '[::1]', '[::ffff:127.0.0.1]', '127.1']
    hosts.push('localhost', '169.254.169.254', '[fe80::1]', '10.0.0.1')
    for (const host of hosts) {
      const reason = await refusedReason(`https://${host}:${port}/`, { allow: [] })
      expect([host, reason]).toEqual([host, 'address'])
    }
    expect(receiver.received).toEqual([])
  })

  it('is not reached by a name that leads there the second time', async () => {
    const receiver = await receive()
    let asked = 0
    // A public address first, which nobody answers at, and loopback from then on.
    const dns = await DnsServer.start(() => [(asked += 1) <= 2 ? '203.0.113.1' : '127.0.0.1'])
    open.push(() => dns.close())
    const { Resolver } = await import('node:dns/promises')
    const resolver = new Resolver()
    resolver.setServers([dns.address])
    const resolveHost = (name: string) => resolver.resolve4(name)
    const url = `https://rebinding.example:${receiver.port}/`
    const reasons = new Set<string>()
    for (let count = 0; count < 4; count += 1) {
      reasons.add(await refusedReason(url, { allow: [] }, { resolveHost }))
    }
    expect([...reasons]).toEqual(['address'])
    expect(receiver.received).toEqual([])
    expect(dns.asked.length).toBeGreaterThan(2)
  })

  it('may be allowed, and what is not encrypted goes nowhere else', async () => {
    const receiver = await receive()
    expect(await refusedReason(receiver.url, {})).toBe(null)
    const resolveHost = async () => ['8.8.8.8']
    const url = 'http://public.example/'
    expect(await refusedReason(url, { allow: ['10.0.0.0/8'] }, { resolveHost })).toBe('address')
  })
})

describe('where a webhook stands', () => {
  it('outlives the server: what happened while it was down or failing is delivered', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-webhooks-'))
    open.push(() => rm(folder, { recursive: true }))
    let isUp = true
    const receiver = await receive(() => (isUp ? 200 : 503))
    const store = `sqlite:${join(folder, 'holdfast.db')}`
    const { server } = await start([hook(receiver)], { store })
    await turn(server, 'k')
    await receiver.waitFor(1)
    isUp = false
    await turn(server, 'k')
    await until(() => receiver.received.length > 1)
    await server.close()
    // No webhook is configured meanwhile.
    const { server: between } = await start([], { store })
    await turn(between, 'k')
    await between.close()
    isUp = true
    await start([hook(receiver)], { store })
    await receiver.waitFor(3)
    const [seqs] = seqsOf(receiver.confirmed).values()
    expect(seqs).toHaveLength(3)
    // What was confirmed is not sent again.
    expect(receiver.received.filter(({ isConfirmed }) => isConfirmed)).toHaveLength(3)
  })

  it('is stored with each confirmation: what was confirmed of a page is not repeated', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-webhooks-'))
    open.push(() => rm(folder, { recursive: true }))
    let isUp = false
    const receiver = await receive(({ type }) => (isUp || type === 'turn.started' ? 200 : 503))
    const events = ['turn.started', 'turn.done'] as const
    const store = `sqlite:${join(folder, 'holdfast.db')}`
    const { server } = await start([hook(receiver, { events })], { store })
    await turn(server, 'k')
    await until(() => receiver.received.some(({ type }) => type === 'turn.done'))
    await server.close()
    isUp = true
    await start([hook(receiver, { events })], { store })
    await receiver.waitFor(2)
    const confirmed = receiver.received.filter(({ isConfirmed }) => isConfirmed)
    expect(confirmed.map(({ type }) => type)).toEqual(events)
  })

  it('is taken again only when what was under way has ended', async () => {
    const held: (() => void)[] = []
    let quick = ''
    const receiver = await receive(({ id }) => {
      if (quick !== '' && id.includes(quick)) return 200
      return (_, response) => void held.push(() => response.end())
    })
    const { server } = await start([hook(receiver, { events: ['turn.done'] })])
    const { store } = server.holdfast.authority
    const save = store.saveWebhook!.bind(store)
    let isLost = false
    store.saveWebhook = async (name, node, body, leaseMs) => {
      const isNow = !isLost && quick !== '' && quick in JSON.parse(body).done
      if (!isNow) return save(name, node, body, leaseMs)
      isLost = true
      await save(name, node, body, 0)
      return false
    }
    await turn(server, 'first')
    await until(() => held.length === 1)
    // In one page of the feed, so that both are sent at the same time.
    quick = (await turn(server, 'quick')).body.session
    await turn(server, 'slow')
    held.shift()!()
    await until(() => isLost && held.length > 0)
    // Without a signal: what must not happen would happen at the next look.
    await new Promise((resolve) => setTimeout(resolve, 10 * FAST.lookMs))
    expect(receiver.received).toHaveLength(3)
    held.shift()!()
    await until(async () => (await standing(server))[0].node !== null)
  })

  it('begins now for one that is new', async () => {
    const receiver = await receive()
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-webhooks-'))
    open.push(() => rm(folder, { recursive: true }))
    const store = `sqlite:${join(folder, 'holdfast.db')}`
    const { server } = await start([], { store })
    await turn(server, 'k')
    await server.close()
    const { server: next } = await start([hook(receiver)], { store })
    await turn(next, 'k')
    await receiver.waitFor(1)
    expect(receiver.received).toHaveLength(1)
  })
})

describe('a webhook that cannot be delivered', () => {
  it.each([
    ['url', { url: 'ftp://example.com/' }],
    ['url', { url: 'http://example.com/', allow: [] }],
    ['url', { url: 'https://user:word@example.com/' }],
    ['secrets.0', { secrets: ['whsec_dG9vIHNob3J0'] }],
    ['secrets.0', { secrets: ['no secret of this kind at all, and long'] }],
    ['allow', { allow: ['not a host!'] }],
    ['answers', { answers: ['permission'], events: ['turn.done'] as const }],
  ])('is refused by its field %s', async (field, more) => {
    const given = { ...hook({ url: 'https://example.com/' }), ...more } as Hook
    const error = await serve({ webhooks: [given] }).catch((thrown: Error) => thrown)
    expect((error as Error).message).toContain(`webhooks.0.${field}`)
    expect((error as Error).message).not.toContain('dG9vIHNob3J0')
  })
})
