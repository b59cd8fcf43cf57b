import { describe, expect, it } from 'vitest'
import type { Clock } from '../core/index.ts'
import { Tickets } from './tickets.ts'

let now = 1_000_000
const clock: Clock = { now: () => now, monotonic: () => now, after: () => () => undefined }
const tickets = new Tickets(clock, Buffer.alloc(32, 1))
const made = { token: 'hf_secret', browser: 'chromium', key: 'alice', lifeMs: 1_000 }

describe('a ticket', () => {
  it('is good for its time, on every node with the same key', () => {
    const { text, expiresAt } = tickets.make(made)
    const other = new Tickets(clock, Buffer.alloc(32, 1))
    const { lifeMs: _, ...parts } = made
    expect(other.read(text)).toEqual({ ...parts, expiresAt })
    now += 1_000
    expect(other.read(text)).toBeNull()
  })

  it('shows nothing of the token, and two are never alike', () => {
    const texts = [tickets.make(made).text, tickets.make(made).text]
    expect(texts[0]).not.toBe(texts[1])
    for (const text of texts) {
      const bytes = Buffer.from(text.slice(4), 'base64url').toString('latin1')
      expect(`${text}${bytes}`).not.toContain('secret')
    }
  })

  it('is good nowhere else, nor when a character of it is changed', () => {
    const { text } = tickets.make(made)
    expect(new Tickets(clock).read(text)).toBeNull()
    for (let at = 0; at < text.length; at += 7) {
      const changed = `${text.slice(0, at)}${text[at] === 'A' ? 'B' : 'A'}${text.slice(at + 1)}`
      expect(tickets.read(changed), changed).toBeNull()
    }
    for (const other of ['', 'hft_', 'hft_AAAA', 'hf_secret', `hft_${'A'.repeat(100_000)}`]) {
      expect(tickets.read(other)).toBeNull()
    }
  })
})
