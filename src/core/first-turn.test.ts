/** A first turn by key that is refused leaves no session behind (I11). */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openHoldfast, type Agent } from '../index.ts'
import { MemoryStore } from '../stores/memory.ts'
import { withIncluded, type Access } from './access.ts'
import type { Holdfast } from './holdfast.ts'
import type { QuotaOptions } from './quotas.ts'
import { LOCAL } from './state.ts'
import { NO_CAPABILITIES, type Runner } from './runner.ts'

let store: MemoryStore
let hold: Holdfast
let release: () => void
const text: Agent = async ({ text: said }) => said
const busy: Runner = {
  capabilities: { ...NO_CAPABILITIES, images: true },
  async *run() {
    await new Promise<void>((resolve) => (release = resolve))
    yield { type: 'delta', text: 'done' }
    return undefined
  },
}
const quotas: QuotaOptions = {
  principals: {
    slow: { turnsPerMinute: 0 },
    idle: { runningTurns: 0 },
    full: { storedBytes: 500 },
    one: { runningTurns: 1 },
  },
}

beforeEach(async () => {
  store = new MemoryStore()
  release = () => undefined
  const limits = { storedPartsBytesMax: 1_000 }
  hold = await openHoldfast({ store, agents: { text, busy }, limits, quotas })
})
afterEach(async () => {
  release()
  await hold.close()
})

const scopes = withIncluded(['talk', 'manage'])
const as = (principal: string, more: Partial<Access> = {}): Holdfast =>
  hold.as(LOCAL, { principal, groups: [], scopes, ...more })
/** Where nothing is, not even what was erased. */
async function assertNothing(): Promise<void> {
  const { changes } = await store.changes(0, 100)
  expect(changes).toEqual([])
}

const image = (bytes: number) =>
  ({ parts: [{ type: 'image', mediaType: 'image/png', data: new Uint8Array(bytes) }] }) as const
const digest = `sha256:${'0'.repeat(64)}`
const named = { parts: [{ type: 'image', mediaType: 'image/png', digest }] } as const

describe('a first turn that is refused leaves no session, however it is asked for', () => {
  const key = 'fresh'
  const agent = 'busy'
  const watcher = { scopes: withIncluded(['watch']) }
  it.each([
    ['setting_unsupported', () => hold, { key }, 'a', { settings: { mode: 'plan' } }],
    ['setting_unsupported', () => hold, { key, settings: { cwd: '/' } }, 'a', {}],
    ['input_unsupported', () => hold, { key }, image(10), {}],
    ['invalid_field', () => hold, { key, agent }, named, {}],
    ['body_too_large', () => hold, { key, agent }, image(1_001), {}],
    ['agent_unknown', () => hold, { key, agent: 'none' }, 'a', {}],
    ['invalid_field', () => hold, { key }, 'a', { busy: 'maybe' as never }],
    ['quota_exceeded', () => as('slow'), { key }, 'a', {}],
    ['quota_exceeded', () => as('idle'), { key }, 'a', {}],
    ['quota_exceeded', () => as('full'), { key, agent }, image(600), {}],
    ['forbidden', () => as('bob', watcher), { key }, 'a', {}],
  ] as const)('with %s: %#', async (code, caller, options, input, turnOptions) => {
    const turn = caller().turn(options, input, turnOptions)
    await expect(turn).rejects.toMatchObject({ code })
    await expect(caller().submit(options, input, turnOptions)).rejects.toMatchObject({ code })
    await assertNothing()
  })

  it('while the server is about to stop', async () => {
    await hold.authority.drain(0)
    await expect(hold.turn({ key: 'fresh' }, 'a')).rejects.toMatchObject({ code: 'draining' })
    await assertNothing()
  })
})

it('a refused turn in a session that is there is decided by its own agent', async () => {
  const session = await hold.resolve({ key: 'k', agent: 'busy' })
  // The agent that would be its own by default takes no images.
  const turn = hold.turn({ key: 'k' }, image(10))
  await turn.admission
  const refused = hold.turn({ key: 'k' }, 'a', { settings: { mode: 'plan' } })
  await expect(refused).rejects.toMatchObject({ code: 'setting_unsupported' })
  release()
  expect((await turn).state).toBe('done')
  expect((await session.state()).turns).toBe(1)
})

it('a session that is not held is found, and refuses by itself', async () => {
  await hold.resolve({ key: 'k', agent: 'busy' })
  // It outlives a restart, as a file does.
  store.close = () => Promise.resolve()
  await hold.close()
  hold = await openHoldfast({ store, agents: { text, busy }, quotas })
  const turn = hold.turn({ key: 'k' }, image(10))
  await turn.admission
  release()
  expect((await turn).state).toBe('done')
})

it('of two first turns at once the one that is too many leaves no open session', async () => {
  const one = as('one')
  const turns = ['a', 'b'].map((key) => one.turn({ key, agent: 'busy' }, 'a'))
  const admitted = await Promise.allSettled(turns.map(({ admission }) => admission))
  expect(admitted.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected'])
  expect((await one.list()).sessions).toHaveLength(1)
  release()
  await Promise.allSettled(turns)
})

it('keeps a session that another request has found, though its first turn is refused', async () => {
  const made = await hold.resolve({ key: 'k' })
  const found = await hold.resolve({ key: 'k' })
  await hold.authority.discard(made.id)
  expect((await found.state()).closed).toBeNull()
  const unseen = await hold.resolve({ key: 'unseen' })
  await hold.authority.discard(unseen.id)
  await expect(unseen.state()).rejects.toMatchObject({ code: 'session_erased' })
})

it('an id that the caller has chosen is still good after a refusal', async () => {
  const put = store.putBlobs.bind(store)
  store.putBlobs = () => Promise.reject(new Error('the disk is full'))
  const first = (): Promise<unknown> =>
    hold.turn({ id: 'chosen', agent: 'busy' }, image(10)).admission
  await expect(first()).rejects.toThrow('the disk is full')
  store.putBlobs = put
  await first()
  release()
})
