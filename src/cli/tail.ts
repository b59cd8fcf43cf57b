/** `holdfast tail`: a session's events as they happen. */
import { textFlag, UsageError, type Command, type Values } from './command.ts'
import { oneName } from './close.ts'
import { deltaLine, eventLine } from './event-line.ts'
import { followEvents } from './event-reader.ts'
import { Remote, REMOTE_FLAGS, REMOTE_HELP } from './remote.ts'

export const tail: Command = {
  name: 'tail',
  usage: 'tail ID|KEY [--after N] [flags]',
  summary:
    'Follows the events of a session until it is closed. A lost connection is taken up again.',
  flags: {
    ...REMOTE_FLAGS,
    after: { type: 'string' },
    deltas: { type: 'boolean' },
    json: { type: 'boolean' },
  },
  help: [
    ['--after N', 'begin after event N (0: with the first)'],
    ['--deltas', 'the parts of an answer too, as they come'],
    ['--json', 'one JSON object per line, as in the log'],
    ...REMOTE_HELP,
  ],
  run: followSession,
}

async function followSession(values: Values, words: readonly string[]): Promise<number> {
  const name = oneName('tail', words)
  const after = textFlag(values, 'after') ?? '0'
  if (!/^\d{1,15}(\.\d{1,15})?$/.test(after)) {
    throw new UsageError(`--after must be the number of an event, not ${after}`)
  }
  const remote = new Remote(values)
  const isJson = values['json'] === true
  for await (const event of followEvents(remote, await remote.find(name), after)) {
    if (event.type === 'delta') {
      if (values['deltas'] !== true) continue
      console.log(isJson ? JSON.stringify(event) : deltaLine(event))
    } else {
      console.log(isJson ? JSON.stringify(event) : eventLine(event))
    }
  }
  return 0
}
