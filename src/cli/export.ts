/** `holdfast export`: a session's log, or its conversation, as JSON lines. */
import { open } from 'node:fs/promises'
import { textFlag, type Command, type Values } from './command.ts'
import { oneName } from './close.ts'
import { Remote, REMOTE_FLAGS, REMOTE_HELP, sessionPath } from './remote.ts'

export const exportLog: Command = {
  name: 'export',
  usage: 'export ID|KEY [--transcript] [--out FILE] [flags]',
  summary: 'Writes all events of a session as JSON lines, oldest first.',
  flags: { ...REMOTE_FLAGS, transcript: { type: 'boolean' }, out: { type: 'string' } },
  help: [
    ['--transcript', 'what was said instead: one message per line'],
    ['--out FILE', 'to a file that must not exist, instead of stdout'],
    ...REMOTE_HELP,
  ],
  run: exportSession,
}

async function exportSession(values: Values, words: readonly string[]): Promise<number> {
  const name = oneName('export', words)
  const out = textFlag(values, 'out')
  const remote = new Remote(values)
  const id = await remote.find(name)
  const lines = values['transcript'] === true ? readTranscript(remote, id) : readLog(remote, id)
  if (out !== null) return writeFile(out, lines)
  for await (const line of lines) process.stdout.write(`${line}\n`)
  return 0
}

type EventPage = {
  readonly events: readonly unknown[]
  readonly nextAfter: number
  readonly hasMore: boolean
}

/** Every event, as JSON, up to what is the log's end then. */
export async function* readLog(remote: Remote, id: string): AsyncGenerator<string> {
  let after = 0
  for (;;) {
    const page = await remote.json<EventPage>(`${sessionPath(id)}/events?after=${after}`)
    for (const event of page.events) yield JSON.stringify(event)
    if (!page.hasMore) return
    after = page.nextAfter
  }
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

async function writeFile(out: string, lines: AsyncIterable<string>): Promise<number> {
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
  console.error(`holdfast: ${count} lines are in ${out}`)
  return 0
}
