import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { CDP_LIMITS } from './limits.ts'
import { readCommand, rewritten, type CdpCommand } from './command.ts'

const PADDING = 'x'.repeat(5_000)

function command(text: string): CdpCommand {
  const read = readCommand(Buffer.from(text), CDP_LIMITS)
  if ('error' in read) throw new Error(read.error.message)
  return read
}

function sent(text: string): unknown {
  const parts = rewritten(command(text), 1_000_000_007, 'A'.repeat(32))
  return JSON.parse(parts.map((part) => Buffer.from(part).toString()).join(''))
}

describe('a large command', () => {
  it('is cut and pasted to what it would be if it were written anew', () => {
    const json = fc.json({ maxDepth: 4 })
    fc.assert(
      fc.property(json, fc.constantFrom('', ' ', '\n\t'), fc.boolean(), (value, gap, isLast) => {
        const params = `{"value":${value},"pad":"${PADDING}\\"}"}`
        const method = '"method":"A.b"'
        const fields = isLast
          ? [`"id" : 7`, method, `"params":${gap}${params}`]
          : [`"params"${gap}:${params}`, '"sessionId":"B"', method, '"id":7']
        const text = `${gap}{${gap}${fields.join(`${gap},${gap}`)}${gap}}${gap}`
        expect(sent(text)).toEqual({
          id: 1_000_000_007,
          method: 'A.b',
          params: JSON.parse(params) as unknown,
          sessionId: 'A'.repeat(32),
        })
      }),
      { numRuns: 300 },
    )
  })

  it.each([
    ['twice', `{"id":1,"params":{"a":1},"method":"A.b","params":{"pad":"${PADDING}"}}`],
    ['under an escaped name', `{"id":1,"method":"A.b","p\\u0061rams":{"pad":"${PADDING}"}}`],
  ])('with its params %s is written anew', (_, text) => {
    expect(sent(text)).toMatchObject({ params: { pad: PADDING } })
  })

  it('cannot smuggle a second message or another session', () => {
    const inner = `"}},"sessionId":"B","x":{"y":"${PADDING}`
    const text = JSON.stringify({ id: 1, method: 'A.b', params: { inner } })
    expect(sent(text)).toMatchObject({ params: { inner }, sessionId: 'A'.repeat(32) })
    expect(
      readCommand(Buffer.from(`{"id":1,"method":"A","params":{}}},"x":"${PADDING}"}`), CDP_LIMITS),
    ).toEqual({
      error: { code: -32700, message: 'JSON: syntax error' },
    })
  })
})

describe('a command that says too much', () => {
  const many = `{"x":[${'{},'.repeat(300_000)}1]}`

  it('passes unread, and is not looked at', () => {
    const read = command(`{"id":1,"method":"A.b","params":${many}}`)
    expect(read.isVast).toBe(true)
    expect(() => read.params).toThrow(RangeError)
    expect(rewritten(read, 1_000_000_007, '')[1]).toHaveLength(many.length)
  })

  it('is refused if a browser would have to read it for seconds', () => {
    const params = `{"x":[${'0,'.repeat(4_300_000)}1]}`
    const read = readCommand(Buffer.from(`{"params":${params},"id":1,"method":"A.b"}`), CDP_LIMITS)
    expect(read).toMatchObject({ id: 1, error: { code: -32600 } })
  })

  it('is not taken apart to tell what is wrong with it', () => {
    const large = `{"id":1,"method":"A.b","extra":"${'x'.repeat(1_048_576)}"}`
    expect(readCommand(Buffer.from(large), CDP_LIMITS)).toMatchObject({ error: { code: -32600 } })
  })
})
