import { describe, expect, it } from 'vitest'
import {
  readAnswerBody,
  readKeyTurnBody,
  readLinkBody,
  readSessionBody,
  readTurnBody,
} from './bodies.ts'

describe('a body', () => {
  it('of a turn by key is parted into the turn and its session', () => {
    const body = { input: 'x', waitMs: 1, agent: 'echo', labels: { a: 'b' } }
    expect(readKeyTurnBody(body)).toEqual({
      turn: { input: 'x', waitMs: 1 },
      session: { agent: 'echo', labels: { a: 'b' } },
    })
  })

  it('may answer an ask with anything, null too', () => {
    expect(readAnswerBody({ answer: null }).answer).toBeNull()
  })

  it.each([
    [readSessionBody, { kee: 'x' }, 'kee is no field here'],
    [readSessionBody, JSON.parse('{"__proto__":1}'), '__proto__ is no field here'],
    [readSessionBody, { key: 1 }, 'key must be a text'],
    [readSessionBody, { graceMs: null }, 'graceMs must be a whole number'],
    [readSessionBody, { internal: 'yes' }, 'internal must be true or false'],
    [readSessionBody, { exclusive: 1 }, 'exclusive must be true or false'],
    [readSessionBody, { labels: [] }, 'labels must be an object'],
    [readTurnBody, { input: 'x', agent: 'echo' }, 'agent is no field here'],
    [readTurnBody, { input: nest(66) }, 'input must not nest deeper than 64'],
    [readKeyTurnBody, { input: 'x', key: 'a' }, 'key is no field here'],
    [readAnswerBody, {}, 'answer is missing'],
    [readLinkBody, { scopes: 'talk' }, 'scopes must be a list'],
    [readLinkBody, { scopes: ['talk'], expiresInMs: 1, expiresAt: 1 }, 'exclude each other'],
    [readAnswerBody, [], 'must be a JSON object'],
    [readTurnBody, null, 'must be a JSON object'],
  ] as const)('read by %o is refused: %j', (read, body, problem) => {
    expect(() => read(body)).toThrow(problem)
  })

  it('may be empty, or nest as deep as is allowed', () => {
    expect(readSessionBody({})).toEqual({})
    expect(() => readTurnBody({ input: { text: 'x', deep: nest(63) } })).not.toThrow()
  })
})

function nest(depth: number): unknown {
  return depth === 0 ? 1 : [nest(depth - 1)]
}
