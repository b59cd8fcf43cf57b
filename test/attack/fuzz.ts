/** Requests and frames at random, near the protocol and far from it: none may be answered with a 500. */
import fc from 'fast-check'
import { messages } from '../fuzz/client-frames.ts'
import { frame, openSocket, RawConnection, requestText, TEXT } from './raw.ts'
import type { Target } from './target.ts'

/** How many go over one connection before it is closed. */
const BATCH = 100
const AT_ONCE = 16
/** How long each may take to be answered. */
const PATIENCE_MS = 100
/** How a server says that a socket is at its end: two frames, and the answer to a goodbye. */
const ENDED = ['"type":"ending"', '"type":"refuse"', '\x03\xe8bye']

const segment = fc.oneof(
  fc.constantFrom('v1', 'sessions', 'keys', 'turns', 'events', 'asks', 'links', 'transcript'),
  fc.constantFrom('chat', 'completions', 'responses', 'conversations', 'items', 'models', 'cdp'),
  fc.constantFrom(
    'health',
    'metrics',
    'openapi.json',
    'assets',
    '..',
    '.',
    '',
    '%',
    '%00',
    '%2e%2e',
  ),
  fc.webSegment(),
)
const known = fc.constantFrom(
  ...['/v1/sessions', '/v1/sessions/S', '/v1/sessions/S/turns', '/v1/sessions/S/events'],
  ...['/v1/sessions/S/asks', '/v1/sessions/S/asks/a1', '/v1/sessions/S/transcript'],
  ...['/v1/sessions/S/turns/t2', '/v1/sessions/S/links', '/v1/sessions/S/links/l1'],
  ...['/v1/keys/fuzzed/turns', '/v1/chat/completions', '/v1/responses', '/v1/conversations'],
  ...['/v1/responses/resp_S_t2', '/v1/responses/resp_S_t2/input_items'],
  ...['/v1/conversations/conv_S/items', '/v1/conversations/conv_S/items/msg_S_n2_0'],
)
const query = fc.oneof(
  fc.constant(''),
  fc.webQueryParameters().map((text) => `?${text}`),
  fc
    .tuple(
      fc.constantFrom('after', 'limit', 'cursor', 'state', 'erase', 'label', 'key'),
      fc.string(),
    )
    .map(([name, value]) => `?${name}=${encodeURIComponent(value.toWellFormed())}`),
)
const path = fc
  .tuple(
    fc.oneof(
      known,
      fc.array(segment, { maxLength: 6 }).map((all) => `/${all.join('/')}`),
    ),
    query,
  )
  .map(([before, after]) => `${before}${after}`)

/** What may stand in a header's value. */
const VALUE_CHARS = 'abc019 ,;:=/*"-_.~\t{}'.split('')
const value = fc.string({ unit: fc.constantFrom(...VALUE_CHARS), maxLength: 60 })
const header = fc.tuple(
  fc.constantFrom(
    ...['Accept', 'Prefer', 'Idempotency-Key', 'Last-Event-ID', 'Content-Type', 'Origin', 'Expect'],
    ...['x-session-key', 'x-session-busy', 'x-session-wait-ms', 'x-stainless-retry-count'],
    ...['x-holdfast-seal', 'x-holdfast-client', 'X-Forwarded-For', 'X-Anything'],
  ),
  value,
)

/** Almost what a body should be. */
const body = fc.oneof(
  messages,
  fc
    .record(
      {
        input: fc.oneof(fc.string(), fc.jsonValue()),
        agent: fc.constantFrom('echo', 'ask', 'nobody'),
        busy: fc.constantFrom('queue', 'reject', 'interrupt', 'collect', 'x'),
        waitMs: fc.integer({ min: -1, max: 5 }),
        key: fc.string(),
        answer: fc.jsonValue(),
        scopes: fc.array(fc.constantFrom('watch', 'talk', 'answer', 'admin', 'x')),
        model: fc.constantFrom('echo', 'x'),
        messages: fc.array(
          fc.record({ role: fc.constantFrom('user', 'x'), content: fc.jsonValue() }),
        ),
      },
      { requiredKeys: [] },
    )
    .map((fields) => JSON.stringify(fields)),
)

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}

type Request = {
  readonly method: string
  readonly path: string
  readonly isJson: boolean
  readonly headers: readonly (readonly [string, string])[]
  readonly body: string
}

const requests: fc.Arbitrary<Request> = fc.record({
  method: fc.constantFrom(
    'GET',
    'GET',
    'POST',
    'POST',
    'DELETE',
    'PUT',
    'HEAD',
    'OPTIONS',
    'PATCH',
  ),
  path,
  isJson: fc.boolean(),
  headers: fc.array(header, { maxLength: 3 }),
  body: fc.oneof(fc.constant(''), body),
})

/** How many, and which. */
type Fuzzing = { readonly fuzzed: number; readonly seed: number }

/** Samples in batches: so many at once would fill the memory of this process. */
async function inBatches<Value>(
  arbitrary: fc.Arbitrary<Value>,
  { count, seed }: { readonly count: number; readonly seed: number },
  send: (batch: readonly Value[]) => Promise<void>,
): Promise<void> {
  let next = 0
  const work = async (): Promise<void> => {
    while (next < count) {
      const from = next
      next += BATCH
      await send(
        fc.sample(arbitrary, { numRuns: Math.min(BATCH, count - from), seed: seed + from }),
      )
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
}

/** By every token in turn, on connections that send all of a batch at once. */
export async function fuzzRequests(
  target: Target,
  { fuzzed, seed }: Fuzzing,
): Promise<readonly string[]> {
  const problems: string[] = []
  const session = await target.session()
  const { admin, talk, watch } = target.tokens
  let turn = 0
  await inBatches(requests, { count: fuzzed / 2, seed }, async (batch) => {
    for (const one of batch) {
      turn += 1
      const token = [admin, talk, watch, 'x'][turn % 4] ?? ''
      const status = await answerOf(target, one, { token, session })
      if (status >= 500) problems.push(`${status}: ${JSON.stringify(one)}`)
    }
  })
  return problems
}

async function answerOf(
  target: Target,
  { method, path, isJson, headers, body }: Request,
  { token, session }: { readonly token: string; readonly session: string },
): Promise<number> {
  const connection = new RawConnection(target.port)
  const all = {
    ...Object.fromEntries(headers),
    ...(isJson ? { 'Content-Type': 'application/json' } : {}),
    Authorization: `Bearer ${token}`,
    Connection: 'close',
  }
  const target_ = path.replace('/S', `/${session}`)
  await connection.write(requestText(method, target_, all, body))
  // A turn may wait for another one, which is not what is tried here.
  await Promise.race([connection.until('\r\n\r\n'), pause(PATIENCE_MS)])
  connection.close()
  return Number(/^HTTP\/1.1 (\d+)/.exec(connection.heard)?.[1] ?? 0)
}

/** Messages after a hello, and some in place of one. */
export async function fuzzFrames(
  target: Target,
  { fuzzed, seed }: Fuzzing,
): Promise<readonly string[]> {
  const problems: string[] = []
  const { talk: token } = target.tokens
  await inBatches(messages, { count: fuzzed / 2, seed }, async (batch) => {
    let socket: RawConnection | null = null
    for (const [index, text] of batch.entries()) {
      const known = { key: `fuzzed ${index % 4}`, options: { agent: 'echo' }, auth: { token } }
      const hello = index % 10 === 0 ? undefined : known
      socket ??= await openSocket(target, hello)
      socket.heard = ''
      await socket.write(frame(TEXT, text.toWellFormed()))
      await socket.write(frame(TEXT, '{"type":"ping"}'))
      await Promise.race([socket.until('"type":"pong"', ...ENDED), pause(PATIENCE_MS)])
      if (socket.heard.includes('"code":"internal"')) problems.push(`internal: ${text}`)
      // One that does not answer was closed by the server: the next message needs another.
      if (socket.heard.includes('"type":"pong"') && !socket.isClosed) continue
      socket.close()
      socket = null
    }
    socket?.close()
  })
  return problems
}
