/** `holdfast queue`: the running and waiting turns of a session. */
import { principalText, sessionPath, type SessionView } from '../wire/views.ts'
import { defineCommand, ONE_SESSION } from './command.ts'
import { text, toggle } from './flags.ts'
import { printable, printJson, printTable, say } from './output.ts'
import { Remote, REMOTE_FLAGS } from './remote.ts'

export const queue = defineCommand({
  name: 'queue',
  operands: ONE_SESSION,
  summary: 'Lists the running turn of a session and the queue, the next turn first.',
  flags: {
    cancel: text('ID', 'cancel this turn or waiting request instead'),
    json: toggle('one JSON object per line for each waiting entry'),
    ...REMOTE_FLAGS,
  },
  async run({ cancel, json, ...values }, [name = '']) {
    const remote = new Remote(values)
    const path = sessionPath(await remote.find(name))
    if (cancel !== null) {
      await cancelTurn(remote, `${path}/turns/${encodeURIComponent(cancel)}`, json)
      return 0
    }
    const { running, queued } = await remote.json<SessionView>(path)
    if (json) printJson(queued)
    else printQueue(running, queued)
    return 0
  },
})

type Cancelled =
  | { readonly turn: { readonly id: string; readonly state: string } }
  | { readonly request: { readonly id: string } }

async function cancelTurn(remote: Remote, path: string, json: boolean): Promise<void> {
  const body = await remote.json<Cancelled>(path, 'DELETE')
  if (json) printJson([body])
  else if ('turn' in body) say(`turn ${body.turn.id} is ${body.turn.state}`)
  else say(`request ${body.request.id} is cancelled; nothing of it has run`)
}

function printQueue(running: string | null, queued: SessionView['queued']): void {
  if (running === null && queued.length === 0) return console.log('no turn is running or waiting')
  const first = running === null ? [] : [['-', running, 'running', '-', '-', '-']]
  const rows = queued.map((row) => [
    String(row.position),
    row.state === 'queued' ? row.turn : row.request,
    row.state,
    row.busy,
    row.since === null ? '-' : new Date(row.since).toISOString(),
    printable(principalText(row.by) ?? '-'),
  ])
  printTable([['PLACE', 'ID', 'STATE', 'BUSY', 'SINCE', 'BY'], ...first, ...rows])
}
