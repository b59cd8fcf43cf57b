/** `holdfast tail` and `holdfast export`: the log of a session of a running server. */
import { open } from 'node:fs/promises'
import { ApiError } from '../client/http-api.ts'
import type { Delta, SessionEvent } from '../core/index.ts'
import { readLines } from '../platform/text.ts'
import { eventSummary, sessionPath } from '../wire/views.ts'
import { defineCommand, ONE_SESSION } from './command.ts'
import { text, toggle, UsageError } from './flags.ts'
import { isoTime, note, printable, printJson } from './output.ts'
import { Remote, REMOTE_FLAGS } from './remote.ts'

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

const RETRY_MS = 1_000
/** The time without a connection after which the command gives up. */
const GIVE_UP_MS = 60_000
const TEMPORARY = ['unreachable', 'draining', 'too_many', 'not_owner', 'store_unavailable']
/** The longest line, in characters: an event may contain an input of many megabytes. */
const LINE_CHARS_MAX = 1_073_741_824

/** The events after a position, then new ones, until the session is closed. */
async function* followEvents(
  remote: Remote,
  session: string,
  after: string,
): AsyncGenerator<SessionEvent | Delta> {
  let position = after
  let lostAt: number | null = null
  for (;;) {
    try {
      for await (const { event, id, data } of serverSentEvents(remote, session, position)) {
        lostAt = null
        if (event === 'end') return
        if (event === 'ending') break
        position = id ?? position
        yield JSON.parse(data) as SessionEvent | Delta
      }
    } catch (error) {
      if (error instanceof ApiError && !TEMPORARY.includes(error.code)) throw error
      lostAt ??= performance.now()
      if (performance.now() - lostAt > GIVE_UP_MS) throw error
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS))
  }
}

async function* serverSentEvents(remote: Remote, session: string, position: string) {
  const { body } = await remote.call(`${sessionPath(session)}/events`, {
    headers: { accept: 'text/event-stream', 'last-event-id': position },
  })
  if (body === null) return
  let fields: Partial<Record<string, string>> = {}
  for await (const line of readLines(body, LINE_CHARS_MAX)) {
    const colon = line.indexOf(': ')
    if (line !== '') {
      fields[line.slice(0, colon)] = line.slice(colon + 2)
      continue
    }
    const { event, id, data } = fields
    // Without both it is a comment, or the time to wait before reconnecting.
    if (event !== undefined && data !== undefined) yield { event, id, data }
    fields = {}
  }
}

export const exportLog = defineCommand({
  name: 'export',
  operands: ONE_SESSION,
  summary: 'Writes all events of a session as JSON lines, oldest first.',
  flags: {
    transcript: toggle('the conversation instead: one message per line'),
    out: text('FILE', 'write to a file, which must not exist, instead of stdout'),
    ...REMOTE_FLAGS,
  },
  async run({ transcript, out, ...values }, [name = '']) {
    const remote = new Remote(values)
    const id = await remote.find(name)
    const lines = transcript ? readTranscript(remote, id) : readLog(remote, id)
    if (out !== null) return writeFile(out, lines)
    for await (const line of lines) process.stdout.write(`${line}\n`)
  },
})

async function* readLog(remote: Remote, id: string): AsyncGenerator<string> {
  for await (const event of remote.events(id)) yield JSON.stringify(event)
}

async function* readTranscript(remote: Remote, id: string): AsyncGenerator<string> {
  const { body } = await remote.call(`${sessionPath(id)}/transcript`)
  const decoder = new TextDecoder()
  let rest = ''
  for await (const chunk of body ?? []) {
    const lines = (rest + decoder.decode(chunk as Uint8Array, { stream: true })).split('\n')
    rest = lines.pop() ?? ''
    yield* lines
  }
  if (rest !== '') throw new Error('the transcript was cut short')
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
