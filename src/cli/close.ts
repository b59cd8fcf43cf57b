/** `holdfast close`: ends a session for good. */
import { UsageError, type Command, type Values } from './command.ts'
import { Remote, REMOTE_FLAGS, REMOTE_HELP, sessionPath } from './remote.ts'

export const close: Command = {
  name: 'close',
  usage: 'close ID|KEY [--erase] [flags]',
  summary: 'Closes a session: what runs or waits in it is cancelled, and its key is free again.',
  flags: { ...REMOTE_FLAGS, erase: { type: 'boolean' }, json: { type: 'boolean' } },
  help: [
    ['--erase', 'erase its log too, for ever'],
    ['--json', 'tell it as JSON, for programs'],
    ...REMOTE_HELP,
  ],
  run: closeSession,
}

async function closeSession(values: Values, words: readonly string[]): Promise<number> {
  const name = oneName('close', words)
  const remote = new Remote(values)
  const id = await remote.find(name)
  const erase = values['erase'] === true ? '?erase=true' : ''
  const body = await remote.json(`${sessionPath(id)}${erase}`, { method: 'DELETE' })
  if (values['json'] === true) console.log(JSON.stringify(body))
  else console.log(`holdfast: session ${id} is closed${erase === '' ? '' : ' and erased'}`)
  return 0
}

/** The one word that a command takes: which session. */
export function oneName(command: string, words: readonly string[]): string {
  const [name, ...more] = words
  if (name !== undefined && name !== '' && more.length === 0) return name
  throw new UsageError(`${command} takes one ID or KEY (see holdfast ${command} --help)`)
}
