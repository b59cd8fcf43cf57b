/** A real agent in isolation behind a server of its own, with the stub model behind it. */
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
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
}

/** The options of bubblewrap with which this agent sees its program. */
export function sandboxOf(name: AgentName) {
  return sandboxed(programOf(name).replace(/\/node_modules\/.*$/, ''))
}

export class IsolatedAgent {
  readonly data: string
  readonly #model: StubModel
  readonly #folder: string
  readonly #start: () => Promise<ServerProcess>
  #server: ServerProcess | null = null

  private constructor(folder: string, model: StubModel, options: ProcessOptions) {
    this.data = join(folder, 'data')
    this.#folder = folder
    this.#model = model
    this.#start = () => ServerProcess.start({ data: this.data, ...options })
  }

  /** The server's environment names folders of its own home, as that of an operator may. */
  static async open(name: AgentName, isolation: object): Promise<IsolatedAgent> {
    const folder = mkdtempSync(join(tmpdir(), `holdfast-isolated-${name}-`))
    // An agent of another user has to pass through it.
    chmodSync(folder, 0o711)
    const model = await StubModel.start()
    const env = await offline(name, join(folder, 'home'), model.url)
    const args = ARGS[name]?.(model.url) ?? []
    const own = { preset: name, command: programOf(name), args, envAllow: ['STUB_KEY'] }
    const config = join(folder, 'config.json')
    writeFileSync(config, JSON.stringify({ agents: { [name]: { ...own, ...isolation } } }))
    const options = { flags: ['--config', config], env: { PATH: process.env['PATH'], ...env } }
    const agent = new IsolatedAgent(folder, model, options)
    await agent.restart()
    return agent
  }

  /** The answer of a turn that is done. */
  async ask(input: string, key = 'chat'): Promise<string> {
    const turn = { input, waitMs: 120_000 }
    const { body } = (await this.#server?.post(`/v1/keys/${key}/turns`, turn)) ?? {}
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
