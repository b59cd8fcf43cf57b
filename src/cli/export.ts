/** `holdfast export`: a session's log, or its conversation, as JSON lines. */
import { open } from 'node:fs/promises'
import { sessionPath } from '../wire/views.ts'
import { defineCommand, ONE_SESSION } from './command.ts'
import { text, toggle } from './flags.ts'
import { note } from './output.ts'
import { Remote, REMOTE_FLAGS } from './remote.ts'

export const exportLog = defineCommand({
  name: 'export',
  operands: ONE_SESSION,
  summary: 'Writes all events of a session as JSON lines, oldest first.',
  flags: {
    transcript: toggle('the conversation instead: one message per line'),
    out: text('FILE', 'write to a file, which must not exist, instead of stdout'),
    ...REMOTE_FLAGS,
  },
  async run(values, [name = '']) {
    const remote = new Remote(values)
    const id = await remote.find(name)
    const lines = values.transcript ? readTranscript(remote, id) : readLog(remote, id)
    if (values.out !== null) return writeFile(values.out, lines)
    for await (const line of lines) process.stdout.write(`${line}\n`)
    return 0
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
  note(`${count} lines are in ${out}`)
  return 0
}
