/** The bytes of requests that are refused after these were stored go again, and no others. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { openHoldfast, type Runner } from '../index.ts'
import { MemoryStore } from '../stores/memory.ts'
import type { Holdfast } from './holdfast.ts'
import { LooseBlobs } from './loose-blobs.ts'
import { NO_CAPABILITIES } from './runner.ts'
import type { SessionHandle } from './session-handle.ts'
import type { Part } from './state.ts'
import type { TurnOptions } from './requests.ts'

let store: MemoryStore
let hold: Holdfast
let session: SessionHandle
let end: () => void
const agent: Runner = {
  capabilities: { ...NO_CAPABILITIES, images: true },
  async *run({ text }) {
    if (text === 'first') await new Promise<void>((resolve) => (end = resolve))
    yield { type: 'delta', text }
    return undefined
  },
}

beforeEach(async () => {
  store = new MemoryStore()
  hold = await openHoldfast({ store, agents: { agent }, limits: { storedPartsBytesMax: 1_000 } })
  session = await hold.resolve({ key: 'k' })
})
afterEach(() => hold.close())

const image = (fill: number) => {
  const data = new Uint8Array(600).fill(fill)
  return { parts: [{ type: 'image', mediaType: 'image/png', data }] } as const
}
const stored = (): Promise<number> => store.usage('default', 'storedBytes', 1_000_000)
const waiting = async (count: number): Promise<void> =>
  vi.waitFor(async () => expect((await session.overview()).queue).toHaveLength(count))

/** A request that waits behind a turn, until its caller goes away. */
function waitingImage(fill: number, options: TurnOptions = {}) {
  const gone = new AbortController()
  const turn = session.turn(image(fill), { ...options, signal: gone.signal })
  const refused = turn.then(
    () => null,
    (error: unknown) => (error as { readonly code: string }).code,
  )
  return { turn, refused, leave: () => gone.abort() }
}

async function begin(): Promise<void> {
  const turn = session.turn('first')
  turn.then(undefined, () => undefined)
  await turn.admission
}

/** All that is stored is the log. */
const onlyTheLog = (): Promise<void> =>
  vi.waitFor(async () => {
    const { events } = await session.read(0, 100)
    expect(await stored()).toBe(events.reduce((sum, { body }) => sum + body.length, 0))
  })

it.each([
  ['its caller goes away', 'turn_over', async (leave: () => void) => leave()],
  [
    'it is cancelled',
    'cancelled',
    async () => {
      const [row] = (await session.overview()).queue
      await session.cancelRequest(row !== undefined && 'request' in row ? row.request : '')
    },
  ],
  ['its session is closed', 'session_closed', async () => void (await session.close())],
] as const)('of a request that waits go when %s', async (_name, code, refuse) => {
  await begin()
  const before = await stored()
  const { refused, leave } = waitingImage(1)
  await waiting(1)
  expect(await stored()).toBe(before + 600)
  await refuse(leave)
  expect(await refused).toBe(code)
  await onlyTheLog()
})

it('go when its time is over', async () => {
  await begin()
  expect(await waitingImage(1, { waitMs: 1 }).refused).toBe('session_busy')
  await onlyTheLog()
})

it('stay while another request has them, and when its turn has begun', async () => {
  await begin()
  const one = waitingImage(1)
  await waiting(1)
  const other = waitingImage(1)
  await waiting(2)
  one.leave()
  expect(await one.refused).toBe('turn_over')
  end()
  expect((await other.turn).state).toBe('done')
  // One more that is refused takes nothing away from the turn.
  const refused = session.turn({ ...image(1), text: 'a' }, { settings: { mode: 'none' } })
  await expect(refused).rejects.toMatchObject({ code: 'setting_unsupported' })
  let part: Part | undefined
  for await (const { parts } of session.messages()) part = parts?.at(-1) ?? part
  expect(part?.type === 'image' && (await session.readBlob(part.digest))).toHaveLength(600)
})

it('stay for another caller of the same request', async () => {
  await begin()
  const one = waitingImage(1, { idempotencyKey: 'same' })
  await waiting(1)
  const other = waitingImage(1, { idempotencyKey: 'same' })
  // Its caller is in the queue too: requests enter in their order.
  await expect(session.turn('now', { busy: 'reject' })).rejects.toThrow()
  one.leave()
  expect(await one.refused).toBe('turn_over')
  end()
  expect((await other.turn).state).toBe('done')
})

it('make room for the next request', async () => {
  await begin()
  const { refused, leave } = waitingImage(1)
  await waiting(1)
  leave()
  expect(await refused).toBe('turn_over')
  const next = waitingImage(2)
  await waiting(1)
  end()
  expect((await next.turn).state).toBe('done')
})

it('that a client has put by themselves stay, also when a turn with them is refused', async () => {
  await begin()
  const data = new Uint8Array(600).fill(1)
  const digest = await session.putBlob(data)
  const { refused, leave } = waitingImage(1)
  await waiting(1)
  leave()
  expect(await refused).toBe('turn_over')
  const next = session.turn({ parts: [{ type: 'image', mediaType: 'image/png', digest }] })
  end()
  expect((await next).state).toBe('done')
})

it('are not removed while the outcome of an append is unknown', async () => {
  const dropped: string[] = []
  const dropBlobs = async (digests: readonly string[]): Promise<void> =>
    void dropped.push(...digests)
  const lost = new LooseBlobs({ isSettled: false, dropBlobs })
  lost.need([{ digest: 'a', data: null }])(false)
  await lost.ready()
  expect(dropped).toEqual([])
})

it('are not removed by a removal that was asked for before they were needed again', async () => {
  const dropped: string[] = []
  let release = (): void => undefined
  const first = new Promise<void>((resolve) => (release = resolve))
  const loose = new LooseBlobs({
    isSettled: true,
    dropBlobs: async (digests) => {
      dropped.push(...digests)
      await first
    },
  })
  const blob = (digest: string) => [{ digest, data: null }]
  loose.need(blob('a'))(false)
  loose.need(blob('b'))(false)
  const leave = loose.need(blob('b'))
  let isReady = false
  const ready = loose.ready().then(() => (isReady = true))
  await Promise.resolve()
  expect(isReady).toBe(false)
  release()
  await ready
  expect(dropped).toEqual(['a'])
  leave(true)
})
