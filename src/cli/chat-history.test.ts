import { describe, expect, it } from 'vitest'
import type { SessionEvent } from '../core/index.ts'
import { lastTurns, readHistory } from './chat-history.ts'
import type { Remote } from './remote.ts'

/** A log of so many turns, each of four events, after its first event. */
function logOf(turns: number): readonly SessionEvent[] {
  const types = ['turn.started', 'turn.activity', 'message.added', 'turn.done']
  const events = Array.from({ length: turns }, () => types).flat()
  return ['session.created', ...events].map((type, index) => ({ type, seq: index + 1 }) as never)
}

/** Pages of the log, as a server gives them. */
function serverOf(log: readonly SessionEvent[], pageEvents: number) {
  const reads: number[] = []
  const json = async (path: string): Promise<object> => {
    const after = Number(/after=(\d+)$/.exec(path)?.[1])
    reads.push(after)
    const events = log.slice(after, after + pageEvents)
    const nextAfter = after + events.length
    return { events, nextAfter, hasMore: nextAfter < log.length }
  }
  return { remote: { json } as unknown as Remote, reads }
}

const turnsIn = (events: readonly SessionEvent[]): number =>
  events.filter(({ type }) => type === 'turn.started').length

describe('the history of a chat', () => {
  it('is the last turns from their start, and says how many are before', () => {
    const { events, earlierTurns } = lastTurns(logOf(7), 3, true)
    expect([turnsIn(events), events[0]?.type, earlierTurns]).toEqual([3, 'turn.started', 4])
    expect(lastTurns(logOf(7), 0, true)).toEqual({ events: [], earlierTurns: 7 })
  })

  it('is all of a short one, with what was before its first turn', () => {
    expect(lastTurns(logOf(2), 3, true)).toEqual({ events: logOf(2), earlierTurns: 0 })
  })

  it('is read from the end of a long log, and no more of it than is shown', async () => {
    const log = logOf(1_000)
    const { remote, reads } = serverOf(log, 200)
    const { events, earlierTurns } = await readHistory(remote, { id: 's', seq: 4_001 }, 5)
    expect([turnsIn(events), events.at(-1)?.seq, earlierTurns]).toEqual([5, 4_001, null])
    expect(Math.min(...reads)).toBe(3_501)
    const more = await readHistory(remote, { id: 's', seq: 4_001 }, 200)
    expect([turnsIn(more.events), more.events.length]).toEqual([200, 800])
  })

  it('ends at the position that the chat goes on from', async () => {
    const { remote } = serverOf(logOf(10), 200)
    const { events } = await readHistory(remote, { id: 's', seq: 21 }, 2)
    expect(events.map(({ seq }) => seq)).toEqual([14, 15, 16, 17, 18, 19, 20, 21])
  })
})
