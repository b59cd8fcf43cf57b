/** Connections that send what no client would, and do not read unless they are told to. */
import { connect, type Socket } from 'node:net'
import type { Target } from './target.ts'

export class RawConnection {
  readonly socket: Socket
  /** What came, as far as it was read. */
  heard = ''
  isClosed = false
  #waiting: (() => void)[] = []

  constructor(port: number) {
    this.socket = connect({ port, host: '127.0.0.1' })
    this.socket.on('error', () => undefined)
    this.socket.on('close', () => {
      this.isClosed = true
      this.#wake()
    })
    this.socket.on('connect', () => this.#wake())
    this.socket.on('drain', () => this.#wake())
    this.socket.on('data', (data: Buffer) => {
      this.heard = (this.heard + data.toString('latin1')).slice(-65_536)
      this.#wake()
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
    if (!this.socket.write(data)) await this.#until(() => !this.socket.writableNeedDrain)
  }

  /** Resolves when it is open, or closed. */
  settled(): Promise<void> {
    return this.#until(() => !this.socket.connecting)
  }

  closed(): Promise<void> {
    return this.#until(() => false)
  }

  until(...texts: readonly string[]): Promise<void> {
    return this.#until(() => texts.some((text) => this.heard.includes(text)))
  }

  /** Resolves when it is so, or the connection is closed. */
  async #until(isSo: () => boolean): Promise<void> {
    while (!this.isClosed && !isSo()) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve))
    }
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve()
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
  await connection.until('"type":"welcome"', '"type":"refuse"')
  return connection
}
