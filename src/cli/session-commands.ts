/** `holdfast sessions`, `queue`, `close`, `tail` and `export`: the sessions of a running server. */
import { open } from 'node:fs/promises'
import type { Delta, SessionEvent } from '../core/index.ts'
import { eventSummary, principalText, sessionPath, type SessionView } from '../wire/views.ts'
import { choice, defineCommand, number, ONE_SESSION, text, toggle, UsageError } from './command.ts'
import { followStream } from './event-streams.ts'
import { isoTime, note, printable, printableJson, printJson, printTable, say } from './output.ts'
import { Remote, REMOTE_FLAGS, type RunningBrowsers } from './remote.ts'

export const sessions = defineCommand({
  name: 'sessions',
  summary: 'Lists the sessions of a running server, newest first, and its browsers.',
  flags: {
    state: choice('STATE', 'only sessions that are open, or closed', ['open', 'closed']),
    key: text('KEY', 'only sessions of this key'),
    label: text('NAME:VALUE', 'only sessions with this label'),
    limit: number('N', 'at most so many sessions').between(1, 1_000_000).or(100),
    json: toggle('one JSON object per line, for programs'),
    ...REMOTE_FLAGS,
  },
  async run({ state, key, label, limit, json, ...values }) {
    const remote = new Remote(values)
    const found = await remote.sessions({ state, key, label }, limit)
    if (json) printJson(found)
    else if (found.length === 0) console.log('no sessions')
    else {
      printTable(found, {
        ID: ({ id }) => id,
        KEY: (session) => session.key,
        AGENT: ({ agent }) => agent,
        STATE: (session) => session.state,
        STATUS: ({ status }) => status,
        EVENTS: ({ seq }) => seq,
        CHANGED: ({ updatedAt }) => isoTime(updatedAt),
      })
    }
    // Browsers have no key and no labels, and only running ones are listed.
    if (!json && key === null && label === null && state !== 'closed') {
      printBrowsers(await remote.browsers())
    }
  },
})

function printBrowsers({ node = null, browsers }: RunningBrowsers): void {
  if (browsers.length > 0) {
    console.log('')
    printTable(browsers, {
      BROWSER: ({ name }) => name,
      FOR: ({ session, key }) => (session === null ? 'shared' : (key ?? session)),
      PID: ({ pid }) => pid,
      HEALTH: ({ health }) => health,
      SESSIONS: ({ sessions: count }) => count,
      CLIENTS: ({ clients }) => clients,
      PAGES: ({ pages }) => pages,
      MEMORY: ({ memoryBytes: bytes }) => (bytes === null ? null : `${Math.round(bytes / 1e6)} MB`),
      STARTED: ({ startedAt }) => isoTime(startedAt),
    })
  }
  if (node === null) return
  const which = browsers.length > 0 ? 'these browsers run' : 'no browsers run'
  console.log(`\n${which} on node ${printable(node)}; ask each other node for its own`)
}

export const queue = defineCommand({
  name: 'queue',
  operands: ONE_SESSION,
  summary: 'Lists the running turn of a session and the queue, the next turn first.',
  flags: {
    cancel: text('ID', 'cancel this turn or waiting request instead'),
    move: text('TURN', 'let this turn of yours run after your other ones that wait'),
    before: text('TURN', 'with --move: directly before this one of them'),
    json: toggle('one JSON object per line for each waiting entry'),
    ...REMOTE_FLAGS,
  },
  async run({ cancel, move, before, json, ...values }, [name = '']) {
    if (before !== null && move === null) throw new UsageError('--before goes with --move')
    const remote = new Remote(values)
    const path = sessionPath(await remote.find(name))
    if (cancel !== null) {
      return cancelTurn(remote, `${path}/turns/${encodeURIComponent(cancel)}`, json)
    }
    if (move !== null) {
      await remote.json(`${path}/turns/${encodeURIComponent(move)}/move`, 'POST', { before })
    }
    const session = await remote.json<SessionView>(path)
    if (json) printJson(session.queued)
    else printQueue(session)
  },
})

type Cancelled =
  | { readonly turn: { readonly id: string; readonly state: string } }
  | { readonly request: { readonly id: string } }

export async function cancelTurn(remote: Remote, path: string, json: boolean): Promise<void> {
  const body = await remote.json<Cancelled>(path, 'DELETE')
  if (json) printJson([body])
  else if ('turn' in body) say(`turn ${body.turn.id} is ${body.turn.state}`)
  else say(`request ${body.request.id} is cancelled; nothing of it has run`)
}

function printQueue({ running, queued }: SessionView): void {
  if (running === null && queued.length === 0) return console.log('no turn is running or waiting')
  const unknown = { position: null, busy: null, since: null, by: null }
  const first = running === null ? [] : [{ state: 'running', turn: running, ...unknown } as const]
  printTable([...first, ...queued], {
    PLACE: ({ position }) => position,
    ID: (row) => (row.state === 'waiting' ? row.request : row.turn),
    STATE: ({ state }) => state,
    BUSY: ({ busy }) => busy,
    SINCE: ({ since }) => (since === null ? null : isoTime(since)),
    BY: ({ by }) => principalText(by),
  })
}

export const close = defineCommand({
  name: 'close',
  operands: ONE_SESSION,
  summary: 'Closes a session: its running and waiting turns are cancelled, and its key is free.',
  flags: {
    erase: toggle('erase its log too; this cannot be undone'),
    json: toggle('print the result as JSON'),
    ...REMOTE_FLAGS,
  },
  async run({ erase, json, ...values }, [name = '']) {
    const remote = new Remote(values)
    const id = await remote.find(name)
    const body = await remote.json(`${sessionPath(id)}${erase ? '?erase=true' : ''}`, 'DELETE')
    if (json) return printJson([body])
    say(`session ${id} is closed${erase ? ' and erased' : ''}`)
    for (const what of (body as { left?: readonly string[] }).left ?? [])
      say(`not removed: ${what}`)
  },
})

export const tail = defineCommand({
  name: 'tail',
  operands: ONE_SESSION,
  summary: 'Follows the events of a session until it is closed; resumes after a lost connection.',
  flags: {
    after: text('N', 'start after event N').or('0'),
    deltas: toggle('also the parts of answers, as they arrive'),
    json: toggle('one JSON object per line, as in the log'),
    ...REMOTE_FLAGS,
  },
  async run({ after, deltas, json, ...values }, [name = '']) {
    if (!/^\d{1,15}(\.\d{1,15})?$/.test(after)) {
      throw new UsageError(`--after must be the number of an event, not ${after}`)
    }
    const remote = new Remote(values)
    for await (const event of followEvents(remote, await remote.find(name), after)) {
      if (event.type === 'delta' && !deltas) continue
      if (json) printJson([event])
      else console.log(eventLine(event))
    }
  },
})

function eventLine(event: SessionEvent | Delta): string {
  if (event.type === 'delta') {
    return `${' '.repeat(21)}${event.turn} delta ${event.n}  ${printable(event.text)}`
  }
  const turn = 'turn' in event ? `${event.turn} ` : ''
  const head = `${String(event.seq).padStart(5)}  ${isoTime(event.at).slice(11, 23)}  ${turn}`
  return `${head}${event.type}  ${printable(eventSummary(event))}`.trimEnd()
}

/** The events after a position, then new ones, until the session is closed. */
async function* followEvents(
  remote: Remote,
  session: string,
  after: string,
): AsyncGenerator<SessionEvent | Delta> {
  for await (const { data } of followStream(remote, `${sessionPath(session)}/events`, after)) {
    yield JSON.parse(data) as SessionEvent | Delta
  }
}

export const exportLog = defineCommand({
  name: 'export',
  operands: ONE_SESSION,
  summary: 'Writes all events of a session as JSON lines, oldest first.',
  flags: {
    transcript: toggle('the conversation instead: one message per line'),
    archive: toggle('an archive of the closed session instead, as import takes it'),
    out: text('FILE', 'write to a file, which must not exist, instead of stdout'),
    ...REMOTE_FLAGS,
  },
  async run({ transcript, archive, out, ...values }, [name = '']) {
    if (transcript && archive) throw new UsageError('--transcript and --archive exclude each other')
    const remote = new Remote(values)
    const id = await remote.find(name)
    const path = sessionPath(id)
    const lines = transcript
      ? readLines(remote, `${path}/transcript`)
      : archive
        ? readLines(remote, `${path}/archive`)
        : readLog(remote, id)
    if (out !== null) return writeFile(out, lines)
    const shown = process.stdout.isTTY ? printableJson : String
    for await (const line of lines) process.stdout.write(`${shown(line)}\n`)
  },
})

async function* readLog(remote: Remote, id: string): AsyncGenerator<string> {
  for await (const event of remote.events(id)) yield JSON.stringify(event)
}

async function* readLines(remote: Remote, path: string): AsyncGenerator<string> {
  const { body } = await remote.call(path)
  const decoder = new TextDecoder()
  let rest = ''
  for await (const chunk of body ?? []) {
    const lines = (rest + decoder.decode(chunk as Uint8Array, { stream: true })).split('\n')
    rest = lines.pop() ?? ''
    yield* lines
  }
  if (rest !== '') throw new Error('the answer was cut short')
}

async function writeFile(out: string, lines: AsyncIterable<string>): Promise<void> {
  const file = await open(out, 'wx', 0o600).catch((error: NodeJS.ErrnoException) => {
    const reason = error.code === 'EEXIST' ? 'it exists' : error.code
    throw new Error(`cannot write ${out}: ${reason}`)
  })
  let count = 0
  try {
    for await (const line of lines) {
      await file.write(`${line}\n`)
      count += 1
    }
    await file.sync()
  } finally {
    await file.close()
  }
  note(`${count} lines are in ${out}`)
}
