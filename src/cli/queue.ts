/** `holdfast queue`: what runs and what waits in a session, and how to take one back. */
import { principalText, type SessionView } from '../wire/views.ts'
import { oneName } from './close.ts'
import { textFlag, type Command, type Values } from './command.ts'
import { Remote, REMOTE_FLAGS, REMOTE_HELP, sessionPath } from './remote.ts'
import { printable, printTable } from './sessions.ts'

export const queue: Command = {
  name: 'queue',
  usage: 'queue ID|KEY [--cancel TURN|REQUEST] [flags]',
  summary: 'Lists the turn that runs in a session and what waits for its turn, the next one first.',
  flags: { ...REMOTE_FLAGS, cancel: { type: 'string' }, json: { type: 'boolean' } },
  help: [
    ['--cancel ID', 'cancel that turn, or the request that waits to be one, instead'],
    ['--json', 'one JSON object per line, for programs'],
    ...REMOTE_HELP,
  ],
  run: showQueue,
}

type Cancelled =
  | { readonly turn: { readonly id: string; readonly state: string } }
  | { readonly request: { readonly id: string } }

async function showQueue(values: Values, words: readonly string[]): Promise<number> {
  const name = oneName('queue', words)
  const turn = textFlag(values, 'cancel')
  const remote = new Remote(values)
  const path = sessionPath(await remote.find(name))
  const isJson = values['json'] === true
  if (turn !== null) await cancelTurn(remote, `${path}/turns/${encodeURIComponent(turn)}`, isJson)
  else await listQueue(remote, path, isJson)
  return 0
}

async function cancelTurn(remote: Remote, path: string, isJson: boolean): Promise<void> {
  const body = await remote.json<Cancelled>(path, { method: 'DELETE' })
  if (isJson) return console.log(JSON.stringify(body))
  if ('request' in body) {
    return console.log(`holdfast: request ${body.request.id} is cancelled; nothing of it has run`)
  }
  console.log(`holdfast: turn ${body.turn.id} is ${body.turn.state}`)
}

async function listQueue(remote: Remote, path: string, isJson: boolean): Promise<void> {
  const { running, queued } = await remote.json<SessionView>(path)
  if (isJson) for (const row of queued) console.log(JSON.stringify(row))
  else printQueue(running, queued)
}

function printQueue(running: string | null, queued: SessionView['queued']): void {
  if (running === null && queued.length === 0) return console.log('nothing runs or waits')
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
