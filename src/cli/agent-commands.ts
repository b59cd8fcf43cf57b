/** `holdfast agents`, `cancel`, `fork`, `adopt` and `open`: agents and their conversations. */
import { hostname } from 'node:os'
import type { Holdfast, TerminalCommand } from '../core/index.ts'
import { sessionPath, type SessionView } from '../wire/views.ts'
import { defineCommand, ONE_SESSION, text, toggle } from './command.ts'
import { note, printable, printJson, printTable, quoted, say } from './output.ts'
import { Remote, REMOTE_FLAGS } from './remote.ts'
import { cancelTurn } from './session-commands.ts'

type AgentRow = ReturnType<Holdfast['describeAgents']>[number]
type AgentList = { readonly agents: readonly AgentRow[] }

const CELL_CHARS = 40

export const agents = defineCommand({
  name: 'agents',
  summary: 'Lists the agents of a running server, and what each can do.',
  flags: { json: toggle('one JSON object per line, for programs'), ...REMOTE_FLAGS },
  async run({ json, ...values }) {
    const body = await new Remote(values).json<AgentList>('/v1/agents')
    if (json) return printJson(body.agents)
    printTable(body.agents, {
      AGENT: ({ name, isDefault }) => (isDefault ? `${name} (default)` : name),
      CAN: (agent) => abilities(agent) || null,
      SETTINGS: ({ capabilities }) => capabilities.settings.join(',') || null,
      MODES: ({ capabilities }) => firstOf(capabilities.modes),
      MODELS: ({ capabilities }) => firstOf(capabilities.models),
    })
  },
})

function abilities({ capabilities }: AgentRow): string {
  const { asks, images, files, steering, plans, commands, clientTools, load, fork } = capabilities
  const can = { asks, images, files, steering, plans, commands, clientTools, load }
  const named = Object.entries(can)
  const has = named.filter(([, can]) => can).map(([name]) => name)
  return [...has, ...(fork === null ? [] : [`fork:${fork}`])].join(',')
}

/** As many as a cell has room for; `--json` has all. */
function firstOf(names: readonly string[]): string | null {
  let shown = 1
  while (shown < names.length && names.slice(0, shown + 1).join(',').length <= CELL_CHARS)
    shown += 1
  const more = names.length - shown
  return names.slice(0, shown).join(',') + (more > 0 ? `,… (+${more})` : '') || null
}

export const cancel = defineCommand({
  name: 'cancel',
  operands: {
    usage: 'ID|KEY [TURN]',
    takes: 'one ID or KEY, and perhaps a TURN',
    min: 1,
    max: 2,
  },
  summary: 'Cancels the running turn of a session, or the turn or waiting request that is named.',
  flags: { json: toggle('print the result as JSON'), ...REMOTE_FLAGS },
  async run({ json, ...values }, [name = '', turn]) {
    const remote = new Remote(values)
    const path = sessionPath(await remote.find(name))
    const wanted = turn ?? (await remote.json<SessionView>(path)).running
    if (wanted === null) throw new Error('no turn is running')
    await cancelTurn(remote, `${path}/turns/${encodeURIComponent(wanted)}`, json)
  },
})

type OwnProgram = TerminalCommand & {
  readonly host: string
  readonly writtenOutside: number | null
}
type Resolved = { readonly id: string; readonly isNew: boolean }

export const fork = defineCommand({
  name: 'fork',
  operands: ONE_SESSION,
  summary: 'Makes a session that continues from a finished turn of another, if its agent can.',
  flags: {
    turn: text('TURN', 'at the end of this turn').showing('the last one done'),
    key: text('KEY', 'the key of the new session').required(),
    json: toggle('print the new session as JSON'),
    ...REMOTE_FLAGS,
  },
  async run({ turn, key, json, ...values }, [name = '']) {
    const remote = new Remote(values)
    const path = `${sessionPath(await remote.find(name))}/fork`
    const body = await remote.json<Resolved>(path, 'POST', { key, ...(turn && { turn }) })
    if (json) printJson([body])
    else say(`session ${body.id} of ${key} ${body.isNew ? 'is a fork' : 'was forked before'}`)
  },
})

export const adopt = defineCommand({
  name: 'adopt',
  operands: {
    usage: 'AGENT CONVERSATION',
    takes: "an AGENT and the agent's own id of a CONVERSATION",
    min: 2,
    max: 2,
  },
  summary:
    'Makes a session that continues a conversation of an agent that was begun in a terminal. ' +
    'Needs the scope admin.',
  flags: {
    key: text('KEY', 'the key of the session').required(),
    cwd: text('DIR', 'the folder that it was begun in, if the agent does not say'),
    json: toggle('print the session as JSON'),
    ...REMOTE_FLAGS,
  },
  async run({ key, cwd, json, ...values }, [agent = '', backend = '']) {
    const path = `/v1/agents/${encodeURIComponent(agent)}/adopt`
    const settings = cwd === null ? {} : { settings: { cwd } }
    const body = await new Remote(values).json<Resolved>(path, 'POST', {
      backend,
      key,
      ...settings,
    })
    if (json) printJson([body])
    else say(`session ${body.id} of ${key} ${body.isNew ? 'continues' : 'has'} ${backend}`)
  },
})

export const open = defineCommand({
  name: 'open',
  operands: ONE_SESSION,
  summary:
    "Prints the command that continues a session in the agent's own terminal program. That " +
    'program takes no lock: run no turn through Holdfast meanwhile. Needs the scope manage.',
  flags: { json: toggle('print the command, its folder and machine as JSON'), ...REMOTE_FLAGS },
  async run({ json, ...values }, [name = '']) {
    const remote = new Remote(values)
    const path = sessionPath(await remote.find(name))
    const [found, { running }] = await Promise.all([
      remote.json<OwnProgram>(`${path}/terminal`, 'POST'),
      remote.json<SessionView>(path),
    ])
    if (json) return printJson([found])
    const { command, cwd, host, writtenOutside: written } = found
    if (host !== hostname()) note(`run this on ${printable(host)}, the machine of the server`)
    if (written) note(`${written} messages were written there since the last turn`)
    if (running !== null) note(`turn ${running} runs: wait for its end, or cancel it`)
    console.log(printable(`cd ${quoted(cwd)} && ${command.map(quoted).join(' ')}`))
  },
})
