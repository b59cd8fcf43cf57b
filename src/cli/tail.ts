/** `holdfast tail`: follows the events of a session. */
import { defineCommand, ONE_SESSION } from './command.ts'
import { deltaLine, eventLine } from './event-line.ts'
import { followEvents } from './event-reader.ts'
import { orElse, text, toggle, UsageError } from './flags.ts'
import { Remote, REMOTE_FLAGS } from './remote.ts'

export const tail = defineCommand({
  name: 'tail',
  operands: ONE_SESSION,
  summary: 'Follows the events of a session until it is closed; resumes after a lost connection.',
  flags: {
    after: orElse(text('N', 'start after event N'), '0'),
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
      if (json) console.log(JSON.stringify(event))
      else console.log(event.type === 'delta' ? deltaLine(event) : eventLine(event))
    }
    return 0
  },
})
