/** `holdfast close`: closes a session. */
import { sessionPath } from '../wire/views.ts'
import { defineCommand, ONE_SESSION } from './command.ts'
import { toggle } from './flags.ts'
import { printJson, say } from './output.ts'
import { Remote, REMOTE_FLAGS } from './remote.ts'

export const close = defineCommand({
  name: 'close',
  operands: ONE_SESSION,
  summary: 'Closes a session: its running and waiting turns are cancelled, and its key is free.',
  flags: {
    erase: toggle('erase its log too; this cannot be undone'),
    json: toggle('print the result as JSON'),
    ...REMOTE_FLAGS,
  },
  async run(values, [name = '']) {
    const remote = new Remote(values)
    const id = await remote.find(name)
    const query = values.erase ? '?erase=true' : ''
    const body = await remote.json(`${sessionPath(id)}${query}`, 'DELETE')
    if (values.json) printJson([body])
    else say(`session ${id} is closed${values.erase ? ' and erased' : ''}`)
    return 0
  },
})
