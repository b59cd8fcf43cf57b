/** `turn.moved`: a principal moves its turns that wait among their own places. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openHoldfast, type Holdfast, type Principal, type SessionHandle } from '../index.ts'
import { MemoryStore } from '../stores/memory.ts'
import { checkLog } from './log-check.ts'
import type { QueueRow } from './queued-request.ts'

const [ALICE, BOB]: readonly Principal[] = ['alice', 'bob'].map((id) => {
  return { kind: 'token', issuer: 'test', id } as const
})

let store: MemoryStore
let hold: Holdfast
let session: SessionHandle
let ran: string[]
let end: () => void
/** The ids of turns, and their inputs, by each other. */
let ids: Map<string, string>

beforeEach(async () => {
  // It outlives the first Holdfast that uses it.
  store = Object.assign(new MemoryStore(), { close: async () => undefined })
  await open()
  session = await hold.resolve({ key: 'k' })
  await session.submit('first')
  await expect.poll(() => ran).toEqual(['first'])
})
afterEach(() => hold.close())

async function open(): Promise<void> {
  ran = []
  ids = new Map()
  const first = new Promise<void>((resolve) => (end = resolve))
  const agent = async ({ text }: { readonly text: string }): Promise<string> => {
    ran.push(text)
    if (text === 'first') await first
    return text
  }
  hold = await openHoldfast({ store, agents: { agent } })
}

async function submit(text: string, by = ALICE, busy: 'queue' | 'collect' = 'queue') {
  const { id } = await session.as(by!).submit(text, { busy })
  ids.set(text, id).set(id, text)
}

const move = (text: string, before: string | null, by = ALICE): Promise<void> =>
  session
    .as(by!)
    .moveTurn(ids.get(text) ?? text, before === null ? null : (ids.get(before) ?? before))

const nameOf = (row: QueueRow) => ('turn' in row ? ids.get(row.turn) : 'a request')
const queue = async () => (await session.overview()).queue.map(nameOf)

/** The inputs in the order in which they ran; the log must be in order too. */
async function runAll(): Promise<readonly string[]> {
  end()
  await expect.poll(queue).toEqual([])
  await expect.poll(async () => (await session.state()).running).toBeNull()
  const { events } = await session.read(0, 500)
  expect(
    checkLog(
      events.map(({ body }) => JSON.parse(body)),
      { isAtRest: true },
    ),
  ).toEqual([])
  return ran.slice(1)
}

describe('a turn that is moved', () => {
  it.each<[string, string, string | null, string]>([
    ['before the first', 'c', 'a', 'cab'],
    ['before another', 'c', 'b', 'acb'],
    ['to the end', 'a', null, 'bca'],
    ['back', 'a', 'c', 'bac'],
    ['to where it is', 'b', 'c', 'abc'],
    ['before itself', 'b', 'b', 'abc'],
  ])('runs at its new place: %s', async (_, turn, before, order) => {
    for (const text of 'abc') await submit(text)
    await move(turn, before)
    expect((await queue()).join('')).toBe(order)
    expect((await runAll()).join('')).toBe(order)
  })

  it('leaves the turns of other principals where they are', async () => {
    for (const text of ['a1', 'a2']) await submit(text)
    await submit('b1', BOB)
    await submit('a3')
    await submit('b2', BOB)
    await move('a3', 'a1')
    expect(await queue()).toEqual(['a3', 'a1', 'b1', 'a2', 'b2'])
    expect(await runAll()).toEqual(['a3', 'a1', 'b1', 'a2', 'b2'])
  })

  it('leaves requests that are not admitted where they are', async () => {
    await submit('a1')
    const waiting = session.as(BOB!).turn('b')
    await expect.poll(queue).toEqual(['a1', 'a request'])
    await submit('a2')
    await move('a2', 'a1')
    expect(await queue()).toEqual(['a2', 'a request', 'a1'])
    expect(await runAll()).toEqual(['a2', 'b', 'a1'])
    await waiting
  })

  it('keeps its place over a restart', async () => {
    for (const text of 'abc') await submit(text)
    await move('c', 'a')
    const names = new Map(ids)
    await hold.close()
    await open()
    ids = names
    session = await hold.resolve({ key: 'k' })
    await expect.poll(() => ran.join('')).toBe('cab')
  })

  it('is recorded once, and not if nothing changes', async () => {
    for (const text of 'ab') await submit(text)
    await move('a', 'b')
    await move('b', 'a')
    await move('b', 'a')
    const { events } = await session.read(0, 500)
    const moves = events
      .map(({ body }) => JSON.parse(body))
      .filter(({ type }) => type === 'turn.moved')
    expect(moves).toEqual([
      expect.objectContaining({ turn: ids.get('b'), before: ids.get('a'), by: ALICE }),
    ])
    await runAll()
  })
})

describe('a move is refused', () => {
  it("of another principal's turn, or before one", async () => {
    await submit('a')
    await submit('b', BOB)
    await expect(move('b', null)).rejects.toMatchObject({ code: 'forbidden' })
    await expect(move('a', 'b')).rejects.toMatchObject({ code: 'forbidden' })
    expect(await runAll()).toEqual(['a', 'b'])
  })

  it('of a turn that others may have joined', async () => {
    await submit('a')
    await submit('c', ALICE, 'collect')
    await submit('d', BOB, 'collect')
    await expect(move('c', 'a')).rejects.toMatchObject({ code: 'forbidden' })
    expect(await runAll()).toEqual(['a', 'c\n\nd'])
  })

  it('of a turn that runs, is over, or never was', async () => {
    await submit('a')
    const running = (await session.state()).running?.id ?? ''
    for (const turn of [running, 't99']) {
      await expect(move(turn, null)).rejects.toMatchObject({ code: 'turn_over' })
      await expect(move('a', turn)).rejects.toMatchObject({ code: 'turn_over' })
    }
    await runAll()
    await expect(move('a', null)).rejects.toMatchObject({ code: 'turn_over' })
    await session.close()
    await expect(move('a', null)).rejects.toMatchObject({ code: 'session_closed' })
  })
})
