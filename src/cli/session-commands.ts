/** `holdfast sessions`, `queue` and `close`: the sessions of a running server. */
import { principalText, sessionPath, type SessionView } from '../wire/views.ts'
import { defineCommand, ONE_SESSION } from './command.ts'
import { choice, number, text, toggle } from './flags.ts'
import { isoTime, printable, printJson, printTable, say } from './output.ts'
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
    json: toggle('one JSON object per line for each waiting entry'),
    ...REMOTE_FLAGS,
  },
  async run({ cancel, json, ...values }, [name = '']) {
    const remote = new Remote(values)
    const path = sessionPath(await remote.find(name))
    if (cancel !== null) {
      return cancelTurn(remote, `${path}/turns/${encodeURIComponent(cancel)}`, json)
    }
    const session = await remote.json<SessionView>(path)
    if (json) printJson(session.queued)
    else printQueue(session)
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
    if (json) printJson([body])
    else say(`session ${id} is closed${erase ? ' and erased' : ''}`)
  },
})
