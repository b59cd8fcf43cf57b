import { EventEmitter } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { Duplex } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { Connections, parserRefuser } from './http-server.ts'

/** A connection of which something was read. */
class Connection extends Duplex {
  readonly bytesRead: number
  readonly remoteAddress = '127.0.0.1'
  text = ''

  constructor(bytesRead = 1) {
    super()
    this.bytesRead = bytesRead
  }

  override _read(): void {}

  override _write(chunk: Buffer, _: string, done: () => void): void {
    this.text += chunk.toString()
    done()
  }
}

type Answering = { readonly headersSent: boolean; readonly complete: boolean }

function refuse(code: string, socket = new Connection(), answering?: Answering) {
  const told: unknown[] = []
  const refuseUnparsed = parserRefuser((_, __, facts) => void told.push(facts?.['reason']))
  const error = Object.assign(new Error('no'), { code })
  const { headersSent, complete } = answering ?? {}
  const response = answering && ({ headersSent, req: { complete } } as unknown as ServerResponse)
  // The parser fails again at what comes next.
  for (let n = 0; n < 2; n += 1) refuseUnparsed(error, socket, response)
  const isCut = socket.destroyed
  socket.destroy()
  return { told, isCut, line: socket.text.split('\r\n')[0], text: socket.text }
}

describe('what cannot be parsed', () => {
  it.each([
    ['HPE_HEADER_OVERFLOW', '431 Request Header Fields Too Large', 'headers_too_large'],
    ['ERR_HTTP_REQUEST_TIMEOUT', '408 Request Timeout', 'request_timeout'],
    ['HPE_INVALID_METHOD', '400 Bad Request', 'bad_request'],
  ])('is refused with a problem document, and told once: %s', (code, status, reason) => {
    const { told, isCut, line, text } = refuse(code)
    expect([line, told, isCut]).toEqual([`HTTP/1.1 ${status}`, [reason], false])
    expect(text).toContain('Content-Type: application/problem+json')
    expect(text).toContain(`"code":"${reason}"`)
  })

  it.each(['ECONNRESET', 'EPIPE', ''])(
    'because the connection broke is not refused: %s',
    (code) => {
      expect(refuse(code)).toMatchObject({ told: [], isCut: true, text: '' })
    },
  )

  it('is not told of a client that left in the middle or never asked', () => {
    expect(refuse('HPE_INVALID_EOF_STATE').told).toEqual([])
    expect(refuse('ERR_HTTP_REQUEST_TIMEOUT', new Connection(0))).toMatchObject({ told: [] })
  })

  it('is answered only where no other answer is due or has begun', () => {
    const due = { headersSent: false, complete: true }
    const begun = { headersSent: true, complete: false }
    for (const answering of [due, begun]) {
      const refused = refuse('HPE_INVALID_METHOD', new Connection(), answering)
      expect(refused).toMatchObject({ told: ['bad_request'], isCut: true, text: '' })
    }
    const own = { headersSent: false, complete: false }
    const { line } = refuse('HPE_INVALID_CHUNK_SIZE', new Connection(), own)
    expect(line).toBe('HTTP/1.1 400 Bad Request')
  })
  it('after the last request of a connection leaves the answer to that one alone', () => {
    const last = { headersSent: false, complete: true }
    const { told, isCut, text } = refuse('HPE_CLOSED_CONNECTION', new Connection(), last)
    expect({ told, isCut, text }).toEqual({ told: [], isCut: false, text: '' })
  })
})

describe('a connection for which there is no room', () => {
  const take = (connections: Connections): Connection => {
    const socket = new Connection()
    connections.take(socket as unknown as Socket)
    return socket
  }
  /** A request of this connection begins; it is answered when the returned function is called. */
  const ask = (connections: Connections, socket: Connection): (() => void) => {
    const response = new EventEmitter()
    const request = { socket } as unknown as IncomingMessage
    connections.serve(request, response as unknown as ServerResponse, () => undefined)
    return () => response.emit('close')
  }

  it('takes that of one that never sent a request, before that of one that was served', () => {
    const connections = new Connections(3, () => undefined)
    const served = take(connections)
    ask(connections, served)()
    const silent = [take(connections), take(connections)]
    take(connections)
    expect([served, ...silent].map(({ destroyed }) => destroyed)).toEqual([false, true, false])
  })

  it('takes that of the one that was idle longest, if all were served', () => {
    const connections = new Connections(2, () => undefined)
    const [first, second] = [take(connections), take(connections)]
    for (const socket of [second, first]) ask(connections, socket)()
    take(connections)
    expect([first, second].map(({ destroyed }) => destroyed)).toEqual([false, true])
  })

  it('is refused if all are in use', () => {
    const connections = new Connections(1, () => undefined)
    const busy = take(connections)
    ask(connections, busy)
    const refused = take(connections)
    expect(busy.destroyed).toBe(false)
    expect(refused.text).toContain('HTTP/1.1 429')
    refused.destroy()
  })
})
