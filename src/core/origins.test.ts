/** Sessions that continue a conversation: forked from another session, or adopted. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { openHoldfast, type Runner } from '../index.ts'
import { MemoryStore } from '../stores/memory.ts'
import { withIncluded } from './access.ts'
import { invalid } from './errors.ts'
import { POSITION_KIND } from './history.ts'
import type { Holdfast } from './holdfast.ts'
import {
  NO_CAPABILITIES,
  type ForkSource,
  type LastPosition,
  type RunnerContext,
} from './runner.ts'
import type { SessionHandle } from './session-handle.ts'
import type { Part } from './state.ts'

let hold: Holdfast
let store: MemoryStore
let forked: ForkSource[]
let contexts: RunnerContext[]
let positions: LastPosition[]
let whileForking: () => Promise<void>

/** Answers with all that it was told in the conversation before. */
const remembering = (fork: 'any' | 'head', own: string | null): Runner => ({
  capabilities: { ...NO_CAPABILITIES, fork, images: true, settings: ['model'] },
  async *run({ text }, context) {
    contexts.push(context)
    positions.push(await context.lastPosition())
    const before: string[] = []
    for await (const message of context.history()) before.push(message.text)
    if (text !== 'lost') {
      yield { type: 'activity', kind: POSITION_KIND, data: { after: text } }
    }
    yield { type: 'delta', text: [...before, text].join(' ') }
    if (text === 'fail') throw new Error('it fails')
    return undefined
  },
  fork: async (source) => {
    forked.push(source)
    await whileForking()
    return own
  },
  adopt: async (backend) => {
    if (backend === 'gone') throw invalid('backend', 'is no conversation of the agent')
    const at = 5
    return {
      messages: [
        { role: 'user', text: 'before', at },
        { role: 'assistant', text: 'yes', at },
      ],
      settings: { model: 'm' },
      position: { bytes: 7 },
    }
  },
})

beforeEach(async () => {
  forked = []
  contexts = []
  positions = []
  whileForking = async () => undefined
  store = new MemoryStore()
  hold = await openHoldfast({
    store,
    agents: {
      any: remembering('any', 'fresh'),
      head: remembering('head', null),
      busy: async function* ({ text }, { lastPosition }) {
        if (text === 'where') positions.push(await lastPosition())
        if (text === 'kept') yield { type: 'activity', kind: POSITION_KIND, data: { after: text } }
        for (let count = Number(text) || 0; count > 0; count -= 1) {
          yield { type: 'activity', kind: 'step', data: count }
        }
      },
      none: async ({ text }) => text,
    },
  })
})
afterEach(() => hold.close())

async function talked(agent: string, ...inputs: readonly string[]): Promise<SessionHandle> {
  const session = await hold.resolve({ agent, key: `source ${agent}`, settings: {} })
  for (const input of inputs) await session.turn(input)
  return session
}

async function texts(session: SessionHandle): Promise<readonly string[]> {
  const messages: string[] = []
  for await (const { text } of session.messages()) messages.push(text)
  return messages
}

async function turnsOf(session: SessionHandle): Promise<readonly string[]> {
  const { events } = await session.read(0, 500)
  const parsed = events.map(({ body }) => JSON.parse(body))
  return parsed.filter(({ type }) => type === 'turn.started').map(({ turn }) => turn)
}

describe('a fork', () => {
  const by = { kind: 'token', issuer: 'holdfast', id: 'bob' } as const
  const access = { principal: 'bob', groups: [], scopes: withIncluded(['talk']) }

  it('belongs to the principal that makes it, whatever becomes of its source', async () => {
    const source = await talked('any', 'a')
    await source.share({ with: 'bob', scopes: ['talk'] })
    const bob = hold.as(by, access)
    const fork = await bob.fork(source.id)
    await source.unshare('bob')
    await expect(bob.fork(source.id)).rejects.toMatchObject({ code: 'session_unknown' })
    const own = hold.as(by, { ...access, principal: 'default' }).session(fork.id)
    await expect(own.state()).rejects.toMatchObject({ code: 'session_unknown' })
    await source.erase()
    expect(await texts(fork)).toEqual(['a', 'a'])
  })

  it('has the images of the messages before, also when its source is erased', async () => {
    const source = await talked('any', 'a')
    const data = new Uint8Array(300).fill(7)
    const image = { type: 'image', mediaType: 'image/png', data } as const
    await source.turn({ parts: [{ type: 'text', text: 'look' }, image] })
    const later = await source.turn({ parts: [{ ...image, data: data.slice(1) }] })
    const fork = await hold.fork(source.id, { turn: 't6' })
    const other = await hold.fork(source.id, { turn: later.id, key: 'other' })
    await source.erase()
    const images = async (session: SessionHandle): Promise<readonly Part[]> => {
      const parts: Part[] = []
      for await (const message of session.messages()) parts.push(...(message.parts ?? []))
      return parts.filter(({ type }) => type === 'image')
    }
    const [kept, ...others] = await images(fork)
    expect(others).toEqual([])
    expect(await images(other)).toHaveLength(2)
    await other.erase()
    const digest = kept?.type === 'image' ? kept.digest : ''
    expect(await fork.readBlob(digest)).toEqual(data)
    await fork.turn('b')
    const { readBlob, history } = contexts.at(-1)!
    expect(await readBlob(digest)).toEqual(data)
    const told: unknown[] = []
    for await (const { parts } of history()) told.push(...(parts ?? []))
    expect(told).toContainEqual(kept)
  })

  it('counts its images for its owner, and is not made if they are too many', async () => {
    const source = await talked('any', 'a')
    const image = { type: 'image', mediaType: 'image/png', data: new Uint8Array(300) } as const
    await source.turn({ parts: [image] })
    await source.share({ with: 'bob', scopes: ['talk'] })
    const before = forked.length
    const full = hold.as(by, { ...access, quotas: { storedBytes: 250 } })
    await expect(full.fork(source.id)).rejects.toMatchObject({ code: 'quota_exceeded' })
    expect([forked.length, (await full.list()).sessions.length]).toEqual([before, 1])
  })

  it('that would be refused for its settings is not made by the agent', async () => {
    const source = await talked('any', 'a')
    const fork = hold.fork(source.id, { settings: { mode: 'plan' } })
    await expect(fork).rejects.toMatchObject({ code: 'setting_unsupported' })
    expect(forked).toEqual([])
  })

  it('is not made for a caller that lost access while the agent made it', async () => {
    const source = await talked('any', 'a')
    await source.share({ with: 'bob', scopes: ['talk'] })
    whileForking = () => source.unshare('bob')
    const bob = hold.as(by, access)
    await expect(bob.fork(source.id)).rejects.toMatchObject({ code: 'session_unknown' })
    expect((await bob.list()).sessions).toEqual([])
  })

  it('and a terminal are for those that may use the agent', async () => {
    const may = { ...access, scopes: withIncluded(['talk', 'manage']) }
    const [bob, limited] = [hold.as(by, may), hold.as(by, { ...may, agents: ['head'] })]
    const source = await bob.resolve({ agent: 'any' })
    await source.turn('a')
    await expect(limited.fork(source.id)).rejects.toMatchObject({ code: 'forbidden' })
    await expect(limited.terminal(source.id)).rejects.toMatchObject({ code: 'agent_unknown' })
    await expect(bob.terminal(source.id)).rejects.toMatchObject({ code: 'capability_missing' })
  })

  it('that would be a session too many is refused before the agent makes it', async () => {
    const source = await talked('any', 'a')
    await source.share({ with: 'bob', scopes: ['talk'] })
    const bob = hold.as(by, { ...access, quotas: { openSessions: 1 } })
    const fork = await bob.fork(source.id, { key: 'k' })
    forked = []
    await expect(bob.fork(source.id)).rejects.toMatchObject({ code: 'quota_exceeded' })
    expect(forked).toEqual([])
    expect((await bob.fork(source.id, { key: 'k' })).id).toBe(fork.id)
  })

  it('does not take a key that a door has reserved, nor does an adopted session', async () => {
    const source = await talked('any', 'a')
    hold.authority.reservedKeys.add('door:')
    const key = 'door:x'
    await expect(hold.fork(source.id, { key })).rejects.toMatchObject({ code: 'key_taken' })
    const adopted = hold.adopt('b', { agent: 'any', key })
    await expect(adopted).rejects.toMatchObject({ code: 'key_taken' })
  })

  it('begins with the messages up to a finished turn, and goes on by itself', async () => {
    const source = await talked('any', 'a', 'b', 'c')
    const [, second = ''] = await turnsOf(source)
    const fork = await hold.fork(source.id, { turn: second, key: 'fork' })
    expect(fork.isNew).toBe(true)
    expect(await texts(fork)).toEqual(['a', 'a', 'b', 'a a b'])
    const { origin, backend, turns } = await fork.state()
    const position = { after: 'b' }
    expect(origin).toEqual({ session: source.id, turn: second, backend: null, position })
    expect({ backend, turns }).toEqual({ backend: 'fresh', turns: 0 })
    expect(forked).toEqual([
      { id: source.id, backend: null, turn: second, isHead: false, position },
    ])
    expect((await fork.turn('d')).reply?.text).toBe('a a b a a b d')
    expect(contexts.at(-1)?.session.origin).toMatchObject({ session: source.id })
    expect(await texts(source)).toHaveLength(6)
  })

  it('is made at the last turn that is done, by default', async () => {
    const source = await talked('head', 'a', 'b')
    const fork = await hold.fork(source.id)
    expect(await texts(fork)).toEqual(['a', 'a', 'b', 'a a b'])
    expect(forked[0]).toMatchObject({ isHead: true })
  })

  it('is found again by its key, and makes nothing twice', async () => {
    const source = await talked('any', 'a')
    const first = await hold.fork(source.id, { key: 'fork' })
    const again = await hold.fork(source.id, { key: 'fork' })
    expect([again.id, again.isNew]).toEqual([first.id, false])
    expect(forked).toHaveLength(1)
    await hold.resolve({ key: 'other', agent: 'none' })
    const taken = hold.fork(source.id, { key: 'other' })
    await expect(taken).rejects.toMatchObject({ code: 'key_taken' })
  })

  it('is refused where the agent cannot, or only at its head', async () => {
    const plain = await talked('none', 'a')
    const refused = { code: 'capability_missing', details: { capability: 'fork' } }
    await expect(hold.fork(plain.id)).rejects.toMatchObject(refused)
    const source = await talked('head', 'a', 'b')
    const [first = ''] = await turnsOf(source)
    await expect(hold.fork(source.id, { turn: first })).rejects.toMatchObject(refused)
    expect(forked).toEqual([])
  })

  it('is refused at a turn that is not done, or not there', async () => {
    const source = await talked('any', 'fail')
    const [failed = ''] = await turnsOf(source)
    const invalidTurn = { code: 'invalid_field', details: { field: 'turn' } }
    await expect(hold.fork(source.id)).rejects.toMatchObject(invalidTurn)
    await expect(hold.fork(source.id, { turn: failed })).rejects.toMatchObject(invalidTurn)
    const unknown = hold.fork(source.id, { turn: 't999' })
    await expect(unknown).rejects.toMatchObject({ code: 'turn_unknown' })
    await expect(hold.fork('nowhere')).rejects.toMatchObject({ code: 'session_unknown' })
  })
})

describe('the position that a runner is told', () => {
  it('is the last that was kept, with what was said since then', async () => {
    const session = await talked('any', 'a', 'lost', 'lost', 'b')
    const none = { position: null, inputs: [] }
    const after = { position: { after: 'a' } }
    expect(positions).toEqual([
      none,
      { ...after, inputs: [] },
      { ...after, inputs: ['lost'] },
      { ...after, inputs: ['lost', 'lost'] },
    ])
    await (await hold.fork(session.id)).turn('x')
    await (await hold.adopt('c', { agent: 'any' })).turn('x')
    // That of a fork's source is not its own.
    expect(positions.slice(4)).toEqual([none, { position: { bytes: 7 }, inputs: [] }])
  })

  it('is found at the end of a log of whatever length, or not at all', async () => {
    const session = await talked('busy', '900', '900', 'kept', '600')
    const read = vi.spyOn(store, 'read')
    const eventsRead = async (): Promise<number> => {
      const results = await Promise.all(read.mock.results.map(({ value }) => value))
      return results.reduce((sum, { events }) => sum + events.length, 0)
    }
    await session.turn('where')
    expect(positions).toEqual([{ position: { after: 'kept' }, inputs: ['600'] }])
    expect(await eventsRead()).toBeLessThan(900)
    for (let turns = 0; turns < 5; turns += 1) await session.turn('990')
    read.mockClear()
    await session.turn('where')
    expect(positions.at(-1)).toEqual({ position: null, inputs: [] })
    expect(await eventsRead()).toBeLessThanOrEqual(4_096)
  })
})

describe('an adopted conversation', () => {
  it('goes on under its own id, with its messages and settings', async () => {
    const adopted = await hold.adopt('c-1', { agent: 'any', key: 'mine' })
    const { backend, settings, origin } = await adopted.state()
    expect({ backend, settings, origin }).toEqual({
      backend: 'c-1',
      settings: { model: 'm' },
      origin: { backend: 'c-1', position: { bytes: 7 } },
    })
    expect((await adopted.turn('now')).reply?.text).toBe('before yes now')
  })

  it('has one session, until that is closed', async () => {
    const first = await hold.adopt('c-1', { agent: 'any', key: 'mine' })
    const again = await hold.adopt('c-1', { agent: 'any', key: 'mine' })
    expect([again.id, again.isNew]).toEqual([first.id, false])
    const other = hold.adopt('c-1', { agent: 'any', key: 'another' })
    await expect(other).rejects.toMatchObject({ code: 'key_taken' })
    await first.close()
    const later = await hold.adopt('c-1', { agent: 'any', key: 'mine' })
    expect(later.isNew).toBe(true)
    expect(later.id).not.toBe(first.id)
  })

  it('is refused where the agent cannot, knows none, or the caller may not', async () => {
    const cannot = hold.adopt('c-1', { agent: 'none' })
    await expect(cannot).rejects.toMatchObject({ details: { capability: 'adopt' } })
    const gone = hold.adopt('gone', { agent: 'any' })
    await expect(gone).rejects.toMatchObject({ code: 'invalid_field' })
    const access = { principal: 'p', groups: [], scopes: ['talk', 'manage'] } as const
    const caller = hold.as({ kind: 'token', issuer: 'holdfast', id: 'p' }, access)
    const forbidden = caller.adopt('c-1', { agent: 'any' })
    await expect(forbidden).rejects.toMatchObject({ code: 'forbidden' })
  })
})
