/** What many sessions and long ones cost: memory of idle sessions, and the time to open a long one. */
import { openHoldfast, type Holdfast } from 'holdfast'
import { openSqliteStore } from 'holdfast/sqlite'

/** Bytes of memory that so many idle sessions, each with one turn behind it, add to the process. */
export async function idleSessions(file: string, count: number): Promise<number> {
  const holdfast = await openHoldfast({ store: `sqlite:${file}` })
  await makeSessions(holdfast, 'warm', 5_000)
  const before = settledMemory()
  await makeSessions(holdfast, 'idle', count)
  const after = settledMemory()
  await holdfast.close()
  return after - before
}

async function makeSessions(holdfast: Holdfast, prefix: string, count: number): Promise<void> {
  let next = 0
  const work = async (): Promise<void> => {
    while (next < count) await holdfast.turn({ key: `${prefix}-${next++}` }, 'hello')
  }
  await Promise.all(Array.from({ length: 200 }, work))
}

function settledMemory(): number {
  globalThis.gc?.()
  globalThis.gc?.()
  return process.memoryUsage().rss
}

/** Milliseconds to open a session of so many events in a process that has not seen it yet. */
export async function openLong(file: string, events: number): Promise<number> {
  const id = `long-${events}`
  await writeLong(file, id, events)
  const holdfast = await openHoldfast({ store: `sqlite:${file}` })
  await holdfast.resolve({ key: 'another' })
  const begin = performance.now()
  const { seq } = await holdfast.session(id).state()
  const taken = performance.now() - begin
  await holdfast.close()
  if (seq < events) throw new Error(`the session has ${seq} events`)
  return taken
}

/** Real turns at both ends; the bulk between them is appended to the log as Holdfast would. */
async function writeLong(file: string, id: string, events: number): Promise<void> {
  const first = await openHoldfast({ store: `sqlite:${file}` })
  const session = await first.resolve({ id })
  await session.turn('the first')
  const state = await session.state()
  await first.close()
  const store = await openSqliteStore({ file })
  const claim = await store.claim(id, 'bench')
  const epoch = claim.type === 'claimed' ? (claim.epoch ?? 0) : 0
  for (let seq = state.seq; seq < events;) {
    const bodies = Array.from({ length: Math.min(1_000, events - seq) }, (_, index) => {
      const event = { type: 'message.added', turn: 't2', role: 'assistant', text: 'x'.repeat(80) }
      return JSON.stringify({ ...event, seq: seq + index + 1, at: 0 })
    })
    const after = seq
    seq += bodies.length
    const snapshot = JSON.stringify({ ...state, seq })
    const rest = { snapshot, at: 0, closed: false, pending: false, expiresAt: null }
    await store.append([{ session: id, epoch, after, events: bodies, ...rest }])
  }
  await store.close()
  const last = await openHoldfast({ store: `sqlite:${file}` })
  await last.session(id).turn('the last')
  await last.close()
}
