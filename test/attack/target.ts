/** The real server as a process that is attacked, with a small heap and a token for every kind of client. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { mintToken, tokenSha256 } from '../../src/server/tokens.ts'
import type { Answer } from '../support/endpoint.ts'
import { ServerProcess } from '../support/server-process.ts'

export type TargetOptions = {
  /** What JavaScript may hold: a leak shows as a crash. */
  readonly heapMb: number
  /** The hard limit of file descriptors. */
  readonly descriptors?: number
}

const NAMES = ['watch', 'talk', 'answer', 'admin'] as const

export class Target {
  readonly tokens: Readonly<Record<(typeof NAMES)[number], string>>
  readonly #folder: string
  readonly #process: ServerProcess

  private constructor(folder: string, tokens: Target['tokens'], process: ServerProcess) {
    this.#folder = folder
    this.tokens = tokens
    this.#process = process
  }

  static async start({ heapMb, descriptors }: TargetOptions): Promise<Target> {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-attack-'))
    const minted = NAMES.map((name) => [name, mintToken()] as const)
    const entries = minted.map(([name, token]) => ({
      name,
      sha256: tokenSha256(token),
      scopes: [name],
    }))
    const file = join(folder, 'tokens.json')
    writeFileSync(file, JSON.stringify({ tokens: entries }), { mode: 0o600 })
    // An agent that is a program of its own, and so needs descriptors for its pipes.
    const agents = { program: { runner: 'process', command: 'cat' } }
    const config = join(folder, 'holdfast.config.json')
    writeFileSync(config, JSON.stringify({ agents }))
    const under =
      descriptors === undefined ? [] : ['prlimit', `--nofile=${descriptors}:${descriptors}`]
    const flags = ['--tokens', file, '--config', config, '--log-format', 'json']
    const env = { ...process.env, NODE_OPTIONS: `--max-old-space-size=${heapMb}` }
    const child = await ServerProcess.start({ data: join(folder, 'data'), under, flags, env })
    return new Target(folder, Object.fromEntries(minted) as Target['tokens'], child)
  }

  get url(): string {
    return this.#process.url
  }

  get port(): number {
    return this.#process.port
  }

  /** The most memory that the process has had so far. */
  get peakMb(): number {
    const status = readFileSync(`/proc/${this.#process.pid}/status`, 'utf8')
    return Math.round(Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1]) / 1_024)
  }

  /** What it has told since, as far as it is about what it refused. */
  get said(): string {
    return this.#process.output.join('')
  }

  async call(
    method: string,
    path: string,
    { token = this.tokens.admin, body }: { readonly token?: string; readonly body?: unknown } = {},
  ): Promise<Answer> {
    const headers = { authorization: `Bearer ${token}` }
    return this.#process.call(method, path, { body, headers })
  }

  /** A session, by its id. */
  async session(): Promise<string> {
    return (await this.call('POST', '/v1/sessions', { body: { agent: 'echo' } })).body.id
  }

  /** The exit code, once it has stopped; it counts what it refused only then. */
  stop(): Promise<number | null> {
    return this.#process.stop()
  }

  async remove(): Promise<void> {
    await this.#process.kill()
    rmSync(this.#folder, { recursive: true, force: true })
  }
}
