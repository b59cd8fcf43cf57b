/**
 * Sees the requests and sockets of runner pages before Vitest's own server does.
 *
 * A request for the page decides nothing, since on a reload it comes before the old socket closes.
 * If another page seems to hold the session, the answer is a small page that asks again when it is
 * loaded: by then a tab that was reloaded has closed its socket, and one that is open has not.
 */
import type { EventEmitter } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import { asHoldfastError } from '../core/index.ts'
import { httpStatus } from '../wire/error-table.ts'
import type { Vitest } from './internals.ts'
import { overPage, waitingPage } from './notice.ts'
import type { TestSession } from './test-session.ts'
import type { TestSessions } from './test-sessions.ts'

const PAGE_PATH = '/__vitest_test__/'
const SOCKET_PATH = '/__vitest_browser_api__'
const guarded = new WeakSet<EventEmitter>()

export function guard(server: EventEmitter, sessions: TestSessions, { config }: Vitest): void {
  if (guarded.has(server)) return
  guarded.add(server)
  const emit = server.emit.bind(server)
  server.emit = (event: string | symbol, ...args: unknown[]): boolean => {
    const pass = (): boolean => emit(event, ...args)
    const request = args[0] as IncomingMessage
    if (event === 'request') return takePage(sessions, request, args[1] as ServerResponse, pass)
    if (event !== 'upgrade') return pass()
    const session = socketSession(sessions, request, config.api.token)
    if (session === undefined) return pass()
    void admit(session, args[1] as Duplex, pass)
    return true
  }
}

function takePage(
  sessions: TestSessions,
  request: IncomingMessage,
  response: ServerResponse,
  pass: () => boolean,
): boolean {
  const { pathname, searchParams } = urlOf(request)
  const session = sessions.get(searchParams.get('sessionId') ?? '')
  if (session === undefined || !pathname.endsWith(PAGE_PATH)) return pass()
  if (searchParams.get('holdfast') === 'claim') void answerClaim(session, response)
  else if (session.over !== null) send(response, 410, overPage(session.over))
  else if (session.isTaken) send(response, 200, waitingPage())
  else {
    // A tab loads the page; Vite also fetches it by itself to be ready.
    if (request.headers['sec-fetch-dest'] === 'document') awaitSocket(session, response)
    return pass()
  }
  return true
}

/** The session that the socket of a runner page is for; Vitest answers all other sockets itself. */
function socketSession(
  sessions: TestSessions,
  request: IncomingMessage,
  token: string,
): TestSession | undefined {
  const { pathname, searchParams } = urlOf(request)
  const isPage = pathname === SOCKET_PATH && searchParams.get('type') === 'orchestrator'
  if (!isPage || searchParams.get('token') !== token) return undefined
  return sessions.get(searchParams.get('sessionId') ?? '')
}

function awaitSocket(session: TestSession, response: ServerResponse): void {
  const giveUp = session.open()
  response.once('close', () => {
    if (!response.writableFinished) giveUp()
  })
}

async function answerClaim(session: TestSession, response: ServerResponse): Promise<void> {
  const refusal = await session.claim().then(
    () => null,
    (error: unknown) => asHoldfastError(error).message,
  )
  send(response, 200, JSON.stringify({ refusal }), 'application/json')
}

async function admit(session: TestSession, socket: Duplex, pass: () => boolean): Promise<void> {
  const ignore = (): void => {}
  // The socket's close tells the session.
  socket.on('error', ignore)
  try {
    await session.admit(socket)
  } catch (thrown) {
    const error = asHoldfastError(thrown)
    const head = `HTTP/1.1 ${httpStatus(error)} Refused\r\nConnection: close\r\n`
    socket.end(`${head}Content-Type: text/plain\r\n\r\n${error.message}\n`)
    return
  }
  socket.off('error', ignore)
  pass()
  if (!session.isConnected) session.lost()
}

function send(response: ServerResponse, status: number, body: string, type = 'text/html'): void {
  const headers = { 'content-type': `${type}; charset=utf-8`, 'cache-control': 'no-store' }
  response.writeHead(status, headers).end(body)
}

function urlOf({ url = '/' }: IncomingMessage): URL {
  return new URL(url, 'http://localhost')
}
