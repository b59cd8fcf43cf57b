import { describe, expect, it } from 'vitest'
import { negotiate } from './exchange.ts'

const TYPES = ['application/json', 'text/event-stream'] as const

describe('negotiate', () => {
  it.each([
    [undefined, TYPES[0]],
    ['*/*', TYPES[0]],
    ['application/json', TYPES[0]],
    ['text/event-stream', TYPES[1]],
    ['Text/Event-Stream', TYPES[1]],
    ['text/*', TYPES[1]],
    ['text/html, application/xhtml+xml, */*;q=0.8', TYPES[0]],
    ['application/json, text/event-stream', TYPES[0]],
    ['text/event-stream, application/json', TYPES[1]],
    ['application/json;q=0.5, text/event-stream', TYPES[1]],
    ['application/json;q=0, text/event-stream;q=0.1', TYPES[1]],
  ])('answers Accept: %s with %s', (accept, type) => {
    expect(negotiate(accept, TYPES)).toBe(type)
  })

  it.each(['text/html', '', 'application/json;q=0'])('refuses Accept: %s', (accept) => {
    expect(() => negotiate(accept, TYPES)).toThrow(
      expect.objectContaining({ code: 'not_acceptable' }),
    )
  })
})
