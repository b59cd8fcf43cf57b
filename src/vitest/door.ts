/**
 * What stands before Vitest's server: it sees a runner page's request and its socket first.
 *
 * A request for the page decides nothing, since on a reload it comes before the old socket closes.
 * If the seat looks taken, the answer is a small page that asks again when it is loaded: by then a
 * tab that was reloaded has let go of the seat, and one that is still open has not.
 */
import type { EventEmitter } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import { asHoldfastError, type HoldfastError } from '../core/index.ts'
import { httpStatus } from '../wire/error-table.ts'
import type { Vitest } from './internals.ts'
import { overPage, waitingPage } from './notice.ts'
import type { Seat } from './seat.ts'
import type { Seats } from './seats.ts'

const PAGE_PATH = '/__vitest_test__/'
const SOCKET_PATH = '/__vitest_browser_api__'
const guarded = new WeakSet<EventEmitter>()

export function guard(server: EventEmitter, seats: Seats, { config }: Vitest): void {
  if (guarded.has(server)) return
  guarded.add(server)
  const emit = server.emit.bind(server)
  const pages = new Pages(seats)
  const sockets = new Sockets(seats, () => config.api.token)
  server.emit = (event: string | symbol, ...args: unknown[]): boolean => {
    const pass = (): boolean => emit(event, ...args)
    if (event === 'upgrade')
      return sockets.take(args[0] as IncomingMessage, args[1] as Duplex, pass)
    if (event === 'request') {
      return pages.take(args[0] as IncomingMessage, args[1] as ServerResponse, pass)
    }
    return pass()
  }
}

class Pages {
  readonly #seats: Seats

  constructor(seats: Seats) {
    this.#seats = seats
  }

  take(request: IncomingMessage, response: ServerResponse, pass: () => boolean): boolean {
    const { pathname, searchParams } = urlOf(request)
    const seat = this.#seats.get(searchParams.get('sessionId') ?? '')
    if (seat === undefined || !pathname.endsWith(PAGE_PATH)) return pass()
    if (searchParams.get('holdfast') === 'claim') void answerClaim(seat, response)
    else if (seat.over !== null) send(response, 410, overPage(seat.over))
    else if (seat.isTaken) send(response, 200, waitingPage())
    else {
      if (isNavigation(request)) awaitSocket(seat, response)
      return pass()
    }
    return true
  }
}

/** A tab that loads the page; Vite also fetches it by itself to be ready. */
function isNavigation({ headers }: IncomingMessage): boolean {
  return headers['sec-fetch-dest'] === 'document'
}

function awaitSocket(seat: Seat, response: ServerResponse): void {
  const giveUp = seat.open()
  response.once('close', () => {
    if (!response.writableFinished) giveUp()
  })
}

async function answerClaim(seat: Seat, response: ServerResponse): Promise<void> {
  const refusal = await seat.claim().then(
    () => null,
    (error: unknown) => asHoldfastError(error).message,
  )
  send(response, 200, JSON.stringify({ refusal }), 'application/json')
}

class Sockets {
  readonly #seats: Seats
  readonly #token: () => string

  constructor(seats: Seats, token: () => string) {
    this.#seats = seats
    this.#token = token
  }

  take(request: IncomingMessage, socket: Duplex, pass: () => boolean): boolean {
    const { pathname, searchParams } = urlOf(request)
    const seat = this.#seats.get(searchParams.get('sessionId') ?? '')
    const isPage = pathname === SOCKET_PATH && searchParams.get('type') === 'orchestrator'
    // Whom Vitest will turn away is no claimant.
    if (seat === undefined || !isPage || searchParams.get('token') !== this.#token()) return pass()
    void admit(seat, socket, pass)
    return true
  }
}

async function admit(seat: Seat, socket: Duplex, pass: () => boolean): Promise<void> {
  const ignore = (): void => {}
  // The socket's close tells the seat.
  socket.on('error', ignore)
  try {
    await seat.admit(socket)
  } catch (error) {
    refuse(socket, asHoldfastError(error))
    return
  }
  socket.off('error', ignore)
  pass()
  if (!seat.isConnected) seat.lost()
}

function refuse(socket: Duplex, error: HoldfastError): void {
  const { message } = error
  const head = [
    `HTTP/1.1 ${httpStatus(error)} Refused`,
    'Connection: close',
    'Content-Type: text/plain',
  ]
  socket.end(`${head.join('\r\n')}\r\n\r\n${message}\n`)
}

function send(response: ServerResponse, status: number, body: string, type = 'text/html'): void {
  const headers = { 'content-type': `${type}; charset=utf-8`, 'cache-control': 'no-store' }
  response.writeHead(status, headers).end(body)
}

function urlOf({ url = '/' }: IncomingMessage): URL {
  return new URL(url, 'http://localhost')
}
