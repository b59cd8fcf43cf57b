/** Connections that send what no client would, and do not read unless they are told to. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import type { Target } from './target.ts'

export class RawConnection {
  readonly socket: Socket
  /** What came, as far as it was read. */
  heard = ''
  isClosed = false

  constructor(port: number) {
    this.socket = connect({ port, host: '127.0.0.1' })
    this.socket.on('error', () => undefined)
    this.socket.on('close', () => {
      this.isClosed = true
    })
    this.socket.on('data', (data: Buffer) => {
      this.heard = (this.heard + data.toString('latin1')).slice(-65_536)
    })
  }

  /** Reads nothing from now on. */
  pause(): this {
    this.socket.pause()
    return this
  }

  /** Resolves when there is room for more, or the connection is closed. */
  async write(data: string | Buffer): Promise<void> {
    if (this.isClosed || this.socket.destroyed) return
    if (this.socket.write(data)) return
    await Promise.race([once(this.socket, 'drain'), this.closed()]).catch(() => undefined)
  }

  async closed(): Promise<void> {
    if (!this.isClosed) await once(this.socket, 'close')
  }

  async until(text: string): Promise<void> {
    while (!this.heard.includes(text) && !this.isClosed) {
      await Promise.race([once(this.socket, 'data'), this.closed()]).catch(() => undefined)
    }
  }

  close(): void {
    this.socket.destroy()
  }
}

/** A request's text. */
export function requestText(
  method: string,
  path: string,
  headers: Readonly<Record<string, string>> = {},
  body = '',
): string {
  const all = { Host: '127.0.0.1', ...headers, 'Content-Length': String(Buffer.byteLength(body)) }
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}`)
  return `${method} ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${body}`
}

/** A frame of a client, masked with zeros. */
export function frame(opcode: number, payload: Buffer | string = '', isLast = true): Buffer {
  const data = Buffer.from(payload)
  const length = data.length
  const head = length < 126 ? [length | 0x80] : length < 65_536 ? [0xfe] : [0xff]
  const size = Buffer.alloc(length < 126 ? 0 : length < 65_536 ? 2 : 8)
  if (size.length === 2) size.writeUInt16BE(length)
  if (size.length === 8) size.writeBigUInt64BE(BigInt(length))
  const mask = Buffer.alloc(4)
  return Buffer.concat([Buffer.from([(isLast ? 0x80 : 0) | opcode, ...head]), size, mask, data])
}

export const TEXT = 0x1
export const PING = 0x9

/** A WebSocket that is open, with its hello sent if there is one. */
export async function openSocket(target: Target, hello?: object): Promise<RawConnection> {
  const connection = new RawConnection(target.port)
  const upgrade = {
    Connection: 'Upgrade',
    Upgrade: 'websocket',
    'Sec-WebSocket-Version': '13',
    'Sec-WebSocket-Key': 'AAAAAAAAAAAAAAAAAAAAAA==',
  }
  await connection.write(requestText('GET', '/v1/connect', upgrade))
  await connection.until('101 Switching')
  if (hello === undefined) return connection
  await connection.write(frame(TEXT, JSON.stringify({ type: 'hello', v: 1, ...hello })))
  await connection.until('"type":"welcome"')
  return connection
}
