/**
 * What Node's HTTP parser gives up on never becomes a request: a head over its bound, one that does
 * not arrive in time, bytes that are no HTTP. It is refused as a request is: by a problem document.
 */
import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { HoldfastError, type Diagnose } from '../core/index.ts'
import { plainAddress } from './addresses.ts'
import { answerAndClose } from './connections.ts'
import { headTooLarge } from './request-head.ts'

/** Takes what a server tells as `clientError`. */
export class Unparsed {
  readonly #diagnose: Diagnose
  /** The parser fails again at everything that still comes. */
  readonly #refused = new WeakSet<Duplex>()

  constructor(diagnose: Diagnose) {
    this.#diagnose = diagnose
  }

  /** `answering`: the response that is under way on this connection. */
  refuse(thrown: Error, socket: Duplex, answering: ServerResponse | undefined): void {
    if (this.#refused.has(socket)) return
    const { code = '' } = thrown as NodeJS.ErrnoException
    // What comes after the last request of a connection: it ends with the answer to that one.
    if (code === 'HPE_CLOSED_CONNECTION' && answering !== undefined) return
    const error = refusalOf(code)
    if (error === null) return void socket.destroy()
    this.#refused.add(socket)
    const { remoteAddress = '', bytesRead } = socket as Socket
    // A client that left in the middle, or never asked for anything, was not refused.
    if (code !== 'HPE_INVALID_EOF_STATE' && bytesRead > 0) {
      const facts = { reason: error.code, address: plainAddress(remoteAddress) }
      this.#diagnose('client_refused', error.message, facts)
    }
    // It would be taken for a part of the answer before it, or for the answer itself.
    const isMixed = answering !== undefined && (answering.headersSent || answering.req.complete)
    if (isMixed || !socket.writable) return void socket.destroy()
    answerAndClose(socket, error)
  }
}

/** Null if the connection broke: nothing is refused then. */
function refusalOf(code: string): HoldfastError | null {
  if (code === 'HPE_HEADER_OVERFLOW') return headTooLarge()
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') {
    return new HoldfastError('request_timeout', 'the request did not arrive in time')
  }
  if (!code.startsWith('HPE_')) return null
  return new HoldfastError('bad_request', 'the request cannot be read as HTTP')
}
