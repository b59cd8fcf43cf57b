import { describe, expect, it } from 'vitest'
import { eventMethod, inSession, replyId, sessionOf, underId } from './protocol.ts'

const [THEIRS, OURS] = ['A'.repeat(32), 'B'.repeat(32)]

describe('a reply', () => {
  it.each([0, 7, -1, 2_147_483_647, -2_147_483_648])('gets the id %i in place of ours', (id) => {
    const text = `{"id":1000000042,"result":{"a":"ü"},"sessionId":"${THEIRS}"}`
    const message = Buffer.from(text)
    expect(replyId(message)).toBe(1_000_000_042)
    const changed = underId(inSession(message, OURS), id)
    expect(JSON.parse(changed.toString())).toEqual({ id, result: { a: 'ü' }, sessionId: OURS })
  })

  it('loses its session where it goes to the connection itself', () => {
    const message = Buffer.from(`{"id":1000000001,"error":{"code":1},"sessionId":"${THEIRS}"}`)
    const changed = underId(inSession(message, ''), 3)
    expect(changed.toString()).toBe('{"id":3,"error":{"code":1}}')
  })
})

describe('what looks unlike Chromium’s', () => {
  it.each([
    '{"id":7,"result":{}}',
    '{"result":{},"id":1000000001}',
    '{ "id":1000000001,"result":{}}',
    '{"method":"A.b","params":{}}',
    '',
  ])('is left to be parsed: %s', (text) => {
    expect(replyId(Buffer.from(text))).toBeNull()
  })

  it.each([
    `{"method":"A.b","params":{"sessionId":"${THEIRS}"}}`,
    `{"method":"A.b","params":{"text":",\\"sessionId\\":\\"${THEIRS}\\"}"}}`,
    `{"method":"A.b","sessionId":"${THEIRS}","params":{}}`,
    `{"sessionId":"SID-1"}`,
  ])('is not taken for a session’s: %s', (text) => {
    expect(sessionOf(Buffer.from(text))).toBeNull()
  })

  it('has its method only where Chromium has it', () => {
    expect(eventMethod(Buffer.from('{"method":"Page.loadEventFired","params":{}}'))).toBe(
      'Page.loadEventFired',
    )
    expect(eventMethod(Buffer.from('{"params":{},"method":"A.b"}'))).toBeNull()
  })
})
