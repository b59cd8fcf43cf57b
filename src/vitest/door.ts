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

/** Says why there is no test session any more. */
function overPage(reason: string): string {
  const text = `This test session is over: ${reason}.`
  return page(`<p>${escape(text)}</p>
<p>Run the tests again, and Vitest opens a new page.</p>`)
}

/** Asks for the session once it is loaded; shows the tests if it is free, or why it is not. */
function waitingPage(): string {
  return page(`<p id="reason">Connecting to the test session …</p>
<p><button id="again" hidden>Try again</button></p>
<script>${SCRIPT}</script>`)
}

/** Runs in the browser. Loading the page again either shows the tests or why they are over. */
const SCRIPT = `
const url = new URL(location.href)
url.searchParams.set('holdfast', 'claim')
const again = document.getElementById('again')
again.onclick = () => location.reload()
fetch(url)
  .then((response) => response.json())
  .catch(() => ({ refusal: 'Vitest does not answer.' }))
  .then(({ refusal }) => {
    if (refusal === null) return location.reload()
    document.getElementById('reason').textContent = refusal
    again.hidden = false
  })
`

function page(body: string): string {
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Vitest: test session</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 15vh auto; max-width: 34em; padding: 1em }
</style>
${body}
</html>
`
}

function escape(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
}
