/**
 * What clients with little or no right did to the server, one by one. All of it goes to 127.0.0.1, is
 * bounded in number and time, and ends by itself.
 */
import { createHash } from 'node:crypto'
import { fuzzFrames, fuzzRequests } from './fuzz.ts'
import { frame, openSocket, PING, RawConnection, requestText, TEXT } from './raw.ts'
import type { Target, TargetOptions } from './target.ts'

/** How much of it: `npm run attack` does more than `npm test`. */
export type Size = {
  /** How long a flood lasts. */
  readonly ms: number
  /** How many fuzzed requests and frames, half of each. */
  readonly fuzzed: number
  readonly seed: number
}

export type Attack = TargetOptions & {
  readonly name: string
  /** The most that the process may ever have had. */
  readonly memoryMbMax: number
  /** What it must have said of it. */
  readonly told: readonly RegExp[]
  /** Returns what it should not have seen. */
  readonly run: (target: Target, size: Size) => Promise<readonly string[]>
}

const HEAP = { heapMb: 512, memoryMbMax: 700 } as const

function refused(reason: string): RegExp {
  return new RegExp(
    `"code":"client_refused".*"reason":"${reason}"|"reason":"${reason}".*"code":"client_refused"`,
  )
}

export const ATTACKS: readonly Attack[] = [
  { ...HEAP, name: 'ping flood', told: [refused('control_frames')], run: floodPings },
  { ...HEAP, name: 'pipelining', told: [refused('pipelining')], run: floodRequests },
  {
    ...HEAP,
    name: 'sockets without a hello',
    descriptors: 1_024,
    told: [refused('too_many')],
    run: floodNewcomers,
  },
  {
    ...HEAP,
    name: 'bad tokens',
    told: [refused('unauthorized'), refused('too_many')],
    run: guessTokens,
  },
  {
    ...HEAP,
    name: 'descriptors',
    descriptors: 1_024,
    told: [refused('too_many')],
    run: takeDescriptors,
  },
  { ...HEAP, name: 'attach and drop', told: [refused('too_many')], run: attachAndDrop },
  { ...HEAP, name: 'slow readers', told: [refused('too_slow')], run: readNothing },
  { ...HEAP, name: 'deep JSON', told: [refused('bad_request')], run: nestDeeply },
  { ...HEAP, name: 'fuzzed requests', told: [refused('unauthorized')], run: fuzzRequests },
  { ...HEAP, name: 'fuzzed frames', told: [refused('bad_request')], run: fuzzFrames },
]

/** Does it again and again, each time anew, until the time is up. */
async function keepOn(ms: number, count: number, one: () => Promise<void>): Promise<void> {
  const until = performance.now() + ms
  const work = async (): Promise<void> => {
    while (performance.now() < until) await one()
  }
  await Promise.all(Array.from({ length: count }, work))
}

/** Writes it until the connection is closed, or the time is up. */
async function pour(
  connection: RawConnection,
  data: Buffer | string,
  until: number,
): Promise<void> {
  const late = new Promise<void>((resolve) => {
    setTimeout(resolve, Math.max(0, until - performance.now())).unref()
  })
  while (!connection.isClosed && performance.now() < until) {
    await Promise.race([connection.write(data), late])
    await new Promise((resolve) => setImmediate(resolve))
  }
  connection.close()
}

/** Three guests with a link that only lets them watch: pings that are sent and never read. */
async function floodPings(target: Target, { ms }: Size): Promise<readonly string[]> {
  const session = await target.session()
  const made = await target.call('POST', `/v1/sessions/${session}/links`, {
    body: { scopes: ['watch'] },
  })
  const pings = Buffer.concat(Array.from({ length: 500 }, () => frame(PING, 'x'.repeat(125))))
  const until = performance.now() + ms
  await keepOn(ms, 3, async () => {
    const auth = { link: made.body.token as string }
    const guest = await openSocket(target, { session, role: 'watcher', auth })
    await pour(guest.pause(), pings, until)
  })
  return []
}

/** 60 connections with a watch token: requests of all kinds, whose answers are never read. */
async function floodRequests(target: Target, { ms }: Size): Promise<readonly string[]> {
  const session = await target.session()
  await target.call('POST', `/v1/sessions/${session}/turns`, {
    body: { input: 'x'.repeat(200_000) },
  })
  const auth = { Authorization: `Bearer ${target.tokens.watch}` }
  const stream = { ...auth, Accept: 'text/event-stream' }
  const floods = [
    requestText('GET', `/v1/sessions/${session}/events`, auth).repeat(500),
    requestText('GET', `/v1/sessions/${session}/events`, stream).repeat(500),
    requestText('GET', '/v1/sessions', auth, 'x'.repeat(60_000)).repeat(10),
    requestText('GET', '/health').repeat(2_000),
  ]
  const until = performance.now() + ms
  let turn = 0
  await keepOn(ms, 60, async () => {
    turn += 1
    const flood = floods[turn % floods.length] ?? ''
    await pour(new RawConnection(target.port).pause(), flood, until)
  })
  return []
}

/** Connections that never say who they are: sockets without a hello, and nothing at all. */
async function floodNewcomers(target: Target, { ms }: Size): Promise<readonly string[]> {
  const idle: RawConnection[] = []
  // A hello that never ends, a byte at a time.
  const drip = async (socket: RawConnection): Promise<void> => {
    await socket.write(frame(TEXT, '{"type":"hello"', false))
    for (let n = 0; n < 50; n += 1) await socket.write(frame(0, 'x', false))
  }
  const until = performance.now() + ms
  while (idle.length < 600 || (performance.now() < until && idle.length < 6_000)) {
    const sockets = await Promise.all(Array.from({ length: 40 }, () => openSocket(target)))
    await Promise.all(sockets.slice(20).map(drip))
    idle.push(...sockets, ...Array.from({ length: 20 }, () => new RawConnection(target.port)))
  }
  for (const connection of idle) connection.close()
  return []
}

/** From the address of the good clients. */
async function guessTokens(target: Target, { ms }: Size): Promise<readonly string[]> {
  const statuses = new Set<number>()
  let n = 0
  await keepOn(ms, 8, async () => {
    n += 1
    const token = createHash('sha256').update(`guess ${n}`).digest('base64url')
    statuses.add((await target.call('GET', '/v1/sessions', { token })).status)
    const socket = await openSocket(target)
    const hello = { type: 'hello', v: 1, key: 'guess', auth: { token } }
    await socket.write(frame(TEXT, JSON.stringify(hello)))
    await socket.until('"type":"refuse"')
    socket.close()
  })
  const wrong = [...statuses].filter((status) => status !== 401 && status !== 429)
  return wrong.map((status) => `a guessed token was answered with ${status}`)
}

/** 1,000 connections without a token, where 1,024 descriptors are all there are. */
async function takeDescriptors(target: Target, { ms }: Size): Promise<readonly string[]> {
  const problems: string[] = []
  const held = Array.from({ length: 1_000 }, () => new RawConnection(target.port))
  await Promise.all(held.map((connection) => connection.settled()))
  const until = performance.now() + ms
  let n = 0
  do {
    n += 1
    const body = { agent: 'program', input: 'good day' }
    const key = `descriptors-${n}`
    const { status, body: answer } = await target.call('POST', `/v1/keys/${key}/turns`, { body })
    if (status !== 200 || answer.turn.state !== 'done') {
      problems.push(`a program was not started: ${status} ${JSON.stringify(answer)}`)
    }
    await new Promise((resolve) => setTimeout(resolve, 100))
  } while (performance.now() < until && problems.length < 5)
  for (const connection of held) connection.close()
  return problems
}

/** A watch token attaches and goes, more often than a session has room, and then stays. */
async function attachAndDrop(target: Target): Promise<readonly string[]> {
  const session = await target.session()
  const { watch: token, talk } = target.tokens
  const attach = (): Promise<RawConnection> =>
    openSocket(target, { session, role: 'watcher', auth: { token } })
  for (let round = 0; round < 10; round += 1) {
    const all = Array.from({ length: 80 }, attach)
    for (const connection of await Promise.all(all)) connection.close()
  }
  const staying: RawConnection[] = []
  const isFull = (): boolean => staying.at(-1)?.heard.includes('too_many') === true
  while (staying.length < 2_000 && !isFull()) {
    staying.push(...(await Promise.all(Array.from({ length: 80 }, attach))))
  }
  const problems: string[] = []
  const driver = await openSocket(target, { session, auth: { token: talk } })
  if (driver.isClosed) problems.push(`the driver was refused: ${driver.heard.slice(-200)}`)
  driver.close()
  for (const connection of staying) connection.close()
  const page = await target.call('GET', `/v1/sessions/${session}/events`)
  const count = page.body.events.length as number
  if (count > 50) problems.push(`the log has ${count} events or more`)
  return problems
}

/** Connections that ask for much and read nothing. */
async function readNothing(target: Target, { ms }: Size): Promise<readonly string[]> {
  const session = await target.session()
  for (let n = 0; n < 8; n += 1) {
    const body = { input: 'x'.repeat(900_000) }
    await target.call('POST', `/v1/sessions/${session}/turns`, { body })
  }
  const auth = { Authorization: `Bearer ${target.tokens.watch}` }
  const stream = { ...auth, Accept: 'text/event-stream' }
  const { watch: token } = target.tokens
  const readers: RawConnection[] = []
  const ask = (headers: Record<string, string>, what: string): void => {
    const connection = new RawConnection(target.port).pause()
    void connection.write(requestText('GET', `/v1/sessions/${session}/${what}`, headers))
    readers.push(connection)
  }
  // More than there is memory for, each with a part of the log of its own.
  const count = ms > 5_000 ? 300 : 60
  for (let n = 0; n < count; n += 1) {
    ask(auth, 'events')
    ask(stream, 'events')
    ask(auth, 'transcript')
    readers.push((await openSocket(target, { session, role: 'watcher', auth: { token } })).pause())
  }
  await new Promise((resolve) => setTimeout(resolve, ms))
  for (const connection of readers) connection.close()
  return []
}

/** Bodies and frames that nest deeper than anything that walks them could follow. */
async function nestDeeply(target: Target): Promise<readonly string[]> {
  const depth = 120_000
  const session = await target.session()
  const deep = [
    '['.repeat(depth) + ']'.repeat(depth),
    '{"a":'.repeat(depth) + '1' + '}'.repeat(depth),
    '['.repeat(depth),
  ]
  const problems: string[] = []
  const headers = {
    Authorization: `Bearer ${target.tokens.admin}`,
    'Content-Type': 'application/json',
    Connection: 'close',
  }
  for (const path of [
    `/v1/sessions/${session}/turns`,
    '/v1/sessions',
    `/v1/sessions/${session}/asks/a1`,
    `/v1/sessions/${session}/links`,
    '/v1/chat/completions',
    '/v1/responses',
    '/v1/conversations',
    '/v1/conversations/conv_x/items',
  ]) {
    for (const nested of deep) {
      for (const body of [nested, `{"input":${nested}}`, `{"answer":${nested}}`]) {
        const connection = new RawConnection(target.port)
        await connection.write(requestText('POST', path, headers, body))
        await connection.closed()
        const status = Number(/^HTTP\/1.1 (\d+)/.exec(connection.heard)?.[1])
        if (!(status >= 400 && status < 500)) problems.push(`${path}: ${status}`)
      }
    }
  }
  for (const nested of deep) {
    for (const text of [nested, `{"type":"turn","id":"1","input":{"text":"x","a":${nested}}}`]) {
      const auth = { token: target.tokens.talk }
      const socket = await openSocket(target, { session, auth })
      await socket.write(frame(TEXT, text))
      await socket.until('"type":"ending"')
      if (!socket.heard.includes('bad_request')) problems.push('a deep frame was not refused')
      socket.close()
    }
  }
  return problems
}
