import { expect, it } from 'vitest'
import { Lane, type LaneEntry, type Member, type QueuedEntry, type WaitingEntry } from './lanes.ts'
import { LOCAL } from './principal.ts'
import { inputText } from './turns.ts'

/** A lane of these: `q…` is a recorded turn, anything else a waiting entry, a letter a request. */
function laneOf(names: readonly string[]) {
  const lane = new Lane()
  const requests = new Map<string, { member: Member; entry: WaitingEntry }>()
  for (const name of names) lane.push(name.startsWith('q') ? queued(name) : waiting(name))
  return { lane, requests }

  function waiting(name: string): WaitingEntry {
    const members = name
      .split('')
      .map((input) => lane.newMember({ input, chars: 1, keys: [], by: LOCAL }))
    const entry: WaitingEntry = { type: 'waiting', collect: true, interrupts: false, members }
    for (const member of members) requests.set(inputText(member.input), { member, entry })
    return entry
  }
}

function queued(turn: string): QueuedEntry {
  return { type: 'queued', turn, chars: 1, by: LOCAL }
}

function nameOf(entry: LaneEntry): string {
  if (entry.type === 'queued') return entry.turn ?? ''
  return entry.members.map(({ input }) => inputText(input)).join('')
}

it.each([
  ['alone', ['a'], 'a', ['qa']],
  ['before others', ['a', 'b', 'c'], 'a', ['qa', 'b', 'c']],
  ['between others', ['a', 'b', 'c'], 'b', ['a', 'qb', 'c']],
  ['behind a recorded one', ['q1', 'a', 'b'], 'a', ['q1', 'qa', 'b']],
  ['collected, as the first', ['abc', 'd'], 'a', ['qa', 'bc', 'd']],
  ['collected, in the middle', ['abc', 'd'], 'b', ['ac', 'qb', 'd']],
  ['collected, as the last', ['abc', 'd'], 'c', ['ab', 'qc', 'd']],
  ['before a recorded one', ['a', 'b', 'q1', 'c'], 'a', ['b', 'q1', 'qa', 'c']],
  ['collected, before a recorded one', ['abc', 'q1'], 'b', ['ac', 'q1', 'qb']],
])('a waiting request that is recorded keeps its place: %s', (_, names, request, expected) => {
  const { lane, requests } = laneOf(names)
  lane.replace(requests.get(request)!, queued(`q${request}`))
  const entries = Array.from({ length: lane.length }, () => lane.shift()!)
  expect(entries.map(nameOf)).toEqual(expected)
})
