import type { IncomingMessage } from 'node:http'
import { describe, expect, it } from 'vitest'
import { CLIENT_HEADER, Seal, SEAL_HEADER } from './seal.ts'

const SECRET = 'a secret of at least thirty-two characters'
const REQUEST = { method: 'POST', url: '/v1/sessions', from: '192.0.2.7' }

let now = 1_000_000_000_000
const seal = new Seal(SECRET, () => now)

/** What another node receives. */
function received({ method, url, from }: typeof REQUEST, sealed: string): IncomingMessage {
  const headers = { [SEAL_HEADER]: sealed, [CLIENT_HEADER]: from }
  return { method, url, headers } as unknown as IncomingMessage
}

describe('a seal', () => {
  it('is good on the request that it was made for, for some minutes', () => {
    const sealed = seal.make(REQUEST)
    expect(seal.isOn(received(REQUEST, sealed))).toBe(true)
    now += 299_000
    expect(seal.isOn(received(REQUEST, sealed))).toBe(true)
    now += 2_000
    expect(seal.isOn(received(REQUEST, sealed))).toBe(false)
  })

  it.each([
    ['another method', { method: 'DELETE' }],
    ['another path', { url: '/v1/sessions?x' }],
    ['a caller at another address', { from: '192.0.2.8' }],
  ])('is not good on %s', (_, changed) => {
    expect(seal.isOn(received({ ...REQUEST, ...changed }, seal.make(REQUEST)))).toBe(false)
  })

  it('cannot be made without the secret', () => {
    const stranger = new Seal(`${SECRET}!`, () => now)
    expect(seal.isOn(received(REQUEST, stranger.make(REQUEST)))).toBe(false)
    for (const text of ['', '.', 'x', `${now.toString(36)}.`]) {
      expect(seal.isOn(received(REQUEST, text))).toBe(false)
    }
  })
})
