import { describe, expect, it } from 'vitest'
import { FrameReader, frameOf } from './framing.ts'

function read(bytes: string | Buffer, most = 1_000): readonly string[] {
  return [...new FrameReader(() => most).push(Buffer.from(bytes))]
}
const frame = (text: string): string => `Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`

describe('a frame', () => {
  it('is a length, an empty line and so many bytes', () => {
    expect(read(frame('{"a":"ä"}') + frame('[]'))).toEqual(['{"a":"ä"}', '[]'])
    const [head, body] = frameOf(Buffer.from('ä'))
    expect([head, Buffer.from(body).toString()]).toEqual(['Content-Length: 2\r\n\r\n', 'ä'])
  })

  it.each(['Content-Type: application/vscode-jsonrpc; charset=utf-8'])(
    'may have the header %s, on either side of the length',
    (type) => {
      expect(read(`${type}\r\nContent-Length: 2\r\n\r\n{}`)).toEqual(['{}'])
      expect(read(`Content-Length: 2\r\n${type}\r\n\r\n{}`)).toEqual(['{}'])
    },
  )

  it.each([
    'G',
    'POST / HTTP/1.1\r\n',
    'Cx',
    'content-length: 2\r\n\r\n{}',
    'Content-Length: 2\r\nHost: x\r\n\r\n{}',
    'Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ',
    'Content-Type: x\r\n\r\n{}',
    'Content-Length: 02\r\n\r\n{}',
    'Content-Length: 2 \r\n\r\n{}',
    'Content-Length: 2\n\n{}',
    'Content-Length: 0\r\n\r\n',
    '\r\n\r\n{}',
    `Content-Type: ${'x'.repeat(300)}`,
  ])('is refused as soon as it cannot become one: %j', (bytes) => {
    expect(() => read(bytes)).toThrow(/only frames|is empty/)
  })

  it('may be incomplete anywhere, and is no mistake until it is one', () => {
    const whole = Buffer.from(`Content-Type: x\r\n${frame('{"a":1}')}`)
    for (let length = 0; length < whole.length; length += 1) {
      const reader = new FrameReader(() => 100)
      expect([...reader.push(whole.subarray(0, length))]).toEqual([])
      expect([...reader.push(whole.subarray(length))]).toEqual(['{"a":1}'])
    }
  })

  it('has a bound, which its length alone can break', () => {
    expect(() => read('Content-Length: 1001\r\n\r\n')).toThrow('more than 1000 bytes')
    expect(read(frame('x'.repeat(1_000)))).toHaveLength(1)
  })

  it('takes no more memory than what has come of it, and a little', () => {
    const reader = new FrameReader(() => 10_000_000)
    const head = 'Content-Length: 9000000\r\n\r\n'
    expect([...reader.push(Buffer.from(`${head}x`))]).toEqual([])
    expect(reader.bytes).toBeLessThan(20_000)
    for (let n = 0; n < 50; n += 1) expect([...reader.push(Buffer.alloc(2_000, 'x'))]).toEqual([])
    expect(reader.bytes).toBeLessThan(300_000)
  })
})
