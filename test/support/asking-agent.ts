/**
 * Real agents that ask before they act, behind real servers over HTTP: what makes each ask, and what
 * it must leave behind.
 */
import { existsSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { mkdir, mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect } from 'vitest'
import { claudeTranscripts } from './claude-transcript.ts'
import { CommandLine } from './command-line.ts'
import type { Answer, Endpoint } from './endpoint.ts'
import { until } from './gate.ts'
import { allIn } from './processes.ts'
import { ADAPTER, agentConfig, offline, type AgentName } from './real-agents.ts'
import { StubModel } from './stub-model.ts'

/** What makes the model call a tool that needs a permission: it runs this command. */
const CALLS: Partial<Record<AgentName, (command: string) => readonly [string, object]>> = {
  claude: (command) => ['Bash', { command, description: 'to try' }],
  [ADAPTER]: (command) => ['Bash', { command, description: 'to try' }],
  codex: (cmd) => {
    const escalated = { sandbox_permissions: 'require_escalated', justification: 'to try' }
    return ['exec_command', { cmd, ...escalated }]
  },
}

/** What makes it call one that makes a file with one line. */
const EDITS: Partial<Record<AgentName, (path: string, line: string) => readonly [string, object]>> =
  {
    claude: (path, line) => ['Write', { file_path: path, content: `${line}\n` }],
    [ADAPTER]: (path, line) => ['Write', { file_path: path, content: `${line}\n` }],
    codex: (path, line) => {
      const patch = `*** Begin Patch\n*** Add File: ${path}\n+${line}\n*** End Patch`
      return ['exec_command', { cmd: `apply_patch <<'EOF'\n${patch}\nEOF` }]
    },
  }

export const ASKING = ['claude', 'codex', ADAPTER] as const

export class AskingAgent {
  readonly name: AgentName
  readonly model: StubModel
  readonly env: Record<string, string>
  readonly #folder: string

  private constructor(name: AgentName, folder: string, model: StubModel, env: AskingAgent['env']) {
    this.name = name
    this.#folder = folder
    this.model = model
    this.env = env
  }

  static async open(name: AgentName): Promise<AskingAgent> {
    const folder = realpathSync(await mkdtemp(join(tmpdir(), `holdfast-asking-${name}-`)))
    const model = await StubModel.start()
    const env = await offline(name, join(folder, 'home'), model.url)
    const agent = new AskingAgent(name, folder, model, env)
    await mkdir(agent.work)
    const own = { ...agentConfig(name, env), cwd: agent.work }
    const hasty = { ...own, askMs: 300 }
    const agents = { [name]: own, hasty, brief: { ...own, idleMs: 100 } }
    writeFileSync(agent.config, JSON.stringify({ agents, defaultAgent: name }))
    return agent
  }

  /** Where it works, whichever node it runs on. */
  get work(): string {
    return join(this.#folder, 'work')
  }

  get data(): string {
    return join(this.#folder, 'data')
  }

  get config(): string {
    return join(this.#folder, 'config.json')
  }

  /** How a server with this agent is started. */
  get starting() {
    const env = { PATH: process.env['PATH'], ...this.env }
    return { flags: ['--config', this.config], env }
  }

  /** A text for which the model makes the agent run this command, if that is allowed. */
  wants(command: string): string {
    const [tool, input] = CALLS[this.name]!(command)
    return `tool ${tool} ${JSON.stringify(input)}`
  }

  /** A text for which the model makes the agent make a file with this line. */
  wantsFile(name: string, line: string): string {
    const [tool, input] = EDITS[this.name]!(join(this.work, name), line)
    return `tool ${tool} ${JSON.stringify(input)}`
  }

  has(name: string): boolean {
    return existsSync(join(this.work, name))
  }

  /** Its processes, but not these servers. */
  running(...servers: readonly { readonly pid?: number | undefined }[]): readonly number[] {
    const own = servers.map(({ pid }) => pid)
    return allIn(this.env['HOME'] ?? '').filter((pid) => !own.includes(pid))
  }

  /**
   * `holdfast verify` finds nothing in the log, in the transcript, and in Claude Code's own; Codex
   * has one file too, with what was said in the order of the log.
   */
  async expectLinear(server: Endpoint, key: string): Promise<void> {
    const stored = await this.#storedFile(await eventsOf(server, key))
    const transcript = join(this.#folder, 'transcript.jsonl')
    rmSync(transcript, { force: true })
    const url = ['--url', server.url]
    await succeed(['export', key, '--transcript', '--out', transcript, ...url])
    const files = stored.endsWith('.jsonl') && this.name !== 'codex' ? [stored] : []
    await succeed(['verify', '--settled', key, ...url])
    // A turn that was interrupted has no answer there.
    await succeed(['verify', transcript, ...files])
  }

  /** The one file of the one conversation, once it has the last answer. */
  async #storedFile(log: readonly any[]): Promise<string> {
    const [bound, ...others] = log.filter(({ type }) => type === 'session.bound')
    expect(others).toEqual([])
    const said = log.filter(({ type, role, partial }) => {
      return type === 'message.added' && role === 'assistant' && partial !== true
    })
    if (this.name === 'codex') return this.#expectRollout(bound.backend, log)
    const named = async () => {
      const all = await claudeTranscripts(this.env['CLAUDE_CONFIG_DIR'] ?? '')
      return all.filter(({ file }) => file.includes(bound.backend))
    }
    // It writes its transcript a moment after its answer.
    await until(async () => (await named())[0]?.said.includes(said.at(-1)?.text) === true)
    const [transcript, ...more] = await named()
    expect(more).toEqual([])
    return transcript!.file
  }

  #expectRollout(backend: string, log: readonly any[]): string {
    const sessions = join(this.env['CODEX_HOME'] ?? '', 'sessions')
    const names = readdirSync(sessions, { recursive: true }) as string[]
    const [name = '', ...others] = names.filter((one) => one.includes(backend))
    expect(others).toEqual([])
    const lines = readFileSync(join(sessions, name), 'utf8').trim().split('\n')
    const users = lines
      .map((line) => JSON.parse(line))
      .filter(({ type, payload }) => type === 'response_item' && payload.role === 'user')
      .map(({ payload }) => payload.content.map(({ text }: any) => text).join('\n') as string)
    const inputs = log.flatMap(({ type, input }) => (type === 'turn.started' ? [input] : []))
    expect(users.filter((text) => inputs.includes(text))).toEqual(inputs)
    return join(sessions, name)
  }

  async close(): Promise<void> {
    await until(() => this.running().length === 0)
    await this.model.close()
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 })
  }
}

async function succeed(args: readonly string[]): Promise<void> {
  const command = new CommandLine(args)
  const code = await command.exited
  expect(code, `${args.join(' ')}:\n${command.stdout}${command.stderr}`).toBe(0)
}

export async function sessionOf(server: Endpoint, key: string): Promise<string> {
  const { body } = await server.get(`/v1/sessions?key=${key}`)
  return body.sessions[0].id as string
}

export async function eventsOf(server: Endpoint, key: string): Promise<any[]> {
  const path = `/v1/sessions/${await sessionOf(server, key)}/events`
  const events: any[] = []
  for (let [after, hasMore] = [0, true]; hasMore;) {
    const { body } = await server.get(`${path}?after=${after}`)
    events.push(...body.events)
    ;({ nextAfter: after, hasMore } = body)
  }
  return events
}

/** How the asks of a session ended, in order. */
export async function outcomesOf(server: Endpoint, key: string): Promise<readonly string[]> {
  const events = await eventsOf(server, key)
  return events.flatMap(({ type, outcome }) => (type === 'ask.settled' ? [outcome] : []))
}

/** The asks that wait, when there are any. */
export async function asksAt(server: Endpoint): Promise<readonly any[]> {
  let asks: readonly any[] = []
  await until(async () => {
    asks = (await server.get('/v1/asks')).body.asks
    return asks.length > 0
  })
  return asks
}

/** The option that allows, or refuses, for this once. */
export function optionOf({ options }: any, kind: 'allow' | 'deny'): string {
  const names = kind === 'allow' ? /^(allow|allow_once|once)$/ : /^(deny|reject|reject_once)$/
  const found = options.find(({ id }: { id: string }) => names.test(id))
  if (found === undefined) throw new Error(`no option to ${kind}: ${JSON.stringify(options)}`)
  return found.id as string
}

/** Answers an ask by HTTP. */
export function answer(server: Endpoint, ask: any, given: unknown): Promise<Answer> {
  return server.post(`/v1/sessions/${ask.session.id}/asks/${ask.id}`, { answer: given })
}
