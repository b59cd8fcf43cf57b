/** A real agent in isolation behind a server of its own, with the stub model behind it. */
import { createHash } from 'node:crypto'
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sandboxed } from './isolation.ts'
import { offline, programOf, type AgentName } from './real-agents.ts'
import { ServerProcess, type ProcessOptions } from './server-process.ts'
import { StubModel } from './stub-model.ts'

/** What an operator adds to the preset of an agent whose own tools need no second sandbox. */
const ARGS: Partial<Record<AgentName, (model: string) => readonly string[]>> = {
  claude: () => ['--dangerously-skip-permissions'],
  codex: (model) =>
    [
      'sandbox_mode="danger-full-access"',
      'model="stub-model"',
      'model_provider="stub"',
      'model_providers.stub.name="stub"',
      `model_providers.stub.base_url="${model}/v1"`,
      'model_providers.stub.env_key="STUB_KEY"',
      'model_providers.stub.wire_api="responses"',
      'model_providers.stub.request_max_retries=0',
    ].flatMap((setting) => ['-c', setting]),
  gemini: () => ['-m', 'gemini-2.5-flash', '--approval-mode', 'yolo'],
  copilot: () => ['--allow-all-tools'],
}

/** Settings that are a file in the home that an isolated agent does not see, as variables. */
const SETTINGS: Partial<Record<AgentName, (home: string) => Record<string, string>>> = {
  opencode: (home) => {
    const own = readFileSync(join(home, '.config/opencode/opencode.json'), 'utf8')
    const config = { ...JSON.parse(own), permission: { external_directory: 'allow' } }
    return { OPENCODE_CONFIG_CONTENT: JSON.stringify(config) }
  },
}

const TOKEN = 'hf_secret-of-the-operator'
const sha256 = createHash('sha256').update(TOKEN).digest('hex')
const TOKENS = { version: 3, tokens: [{ name: 'operator', scopes: ['talk'], sha256 }] }
const AUTHORIZATION = { authorization: `Bearer ${TOKEN}` }

/** The options of bubblewrap with which this agent sees its program. */
export function sandboxOf(name: AgentName) {
  return sandboxed(programOf(name).replace(/\/node_modules\/.*$/, ''))
}

export class IsolatedAgent {
  readonly data: string
  readonly tokens: string
  readonly #model: StubModel
  readonly #folder: string
  readonly #start: () => Promise<ServerProcess>
  #server: ServerProcess | null = null

  private constructor(folder: string, model: StubModel, options: ProcessOptions) {
    this.data = join(folder, 'data')
    this.tokens = join(folder, 'tokens.json')
    this.#folder = folder
    this.#model = model
    this.#start = () => ServerProcess.start({ data: this.data, ...options })
  }

  /**
   * The server's environment names folders of its own home, as that of an operator may. `isolation`
   * gets the folder with all that an agent must not see.
   */
  static async open(
    name: AgentName,
    isolation: (folder: string) => object,
  ): Promise<IsolatedAgent> {
    const folder = mkdtempSync(join(tmpdir(), `holdfast-isolated-${name}-`))
    // An agent of another user has to pass through it.
    chmodSync(folder, 0o711)
    const model = await StubModel.start()
    const home = join(folder, 'home')
    const env = { ...(await offline(name, home, model.url)), ...SETTINGS[name]?.(home) }
    const args = ARGS[name]?.(model.url) ?? []
    const own = { preset: name, command: programOf(name), args, envAllow: ['STUB_KEY'] }
    const config = join(folder, 'config.json')
    writeFileSync(config, JSON.stringify({ agents: { [name]: { ...own, ...isolation(folder) } } }))
    const flags = ['--config', config, '--tokens', join(folder, 'tokens.json')]
    const options = { flags, env: { PATH: process.env['PATH'], ...env } }
    const agent = new IsolatedAgent(folder, model, options)
    writeFileSync(agent.tokens, JSON.stringify(TOKENS), { mode: 0o600 })
    await agent.restart()
    return agent
  }

  /** The answer of a turn that is done. */
  async ask(input: string, key = 'chat'): Promise<string> {
    const turn = { input, waitMs: 120_000 }
    const { body } = (await this.#server?.post(`/v1/keys/${key}/turns`, turn, AUTHORIZATION)) ?? {}
    if (body?.turn?.state !== 'done') throw new Error(JSON.stringify(body))
    return String(body.turn.reply.text).trim()
  }

  async restart(): Promise<void> {
    await this.#server?.stop()
    this.#server = await this.#start()
  }

  async close(): Promise<void> {
    await this.#server?.stop()
    await this.#model.close()
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 })
  }
}
