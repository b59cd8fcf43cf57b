/** Real nodes as processes: on one database, each to be killed, paused and stopped. */
import { spawn, type ChildProcess } from 'node:child_process'
import { randomBytes, randomInt } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { GUARDED, guarded } from './guarded.ts'
import { listeningUrl } from './listening.ts'

const { pathname } = new URL(import.meta.url)
/** The repository's root, from `test` as well as from `.build/test`. */
export const ROOT = fileURLToPath(
  new URL(pathname.includes('/.build/') ? '../../../' : '../../', import.meta.url),
)

export const CLI = `${ROOT}dist/cli/main.js`

export class Cluster {
  readonly store: string
  readonly #folder: string
  readonly #leaseMs: number
  nodes: NodeProcess[] = []

  constructor(
    store: string,
    { leaseMs, parent = tmpdir() }: { readonly leaseMs: number; readonly parent?: string },
  ) {
    this.store = store
    this.#leaseMs = leaseMs
    this.#folder = mkdtempSync(join(parent, 'holdfast-cluster-'))
    const mode = { mode: 0o600 }
    writeFileSync(this.#secretFile, `${randomBytes(32).toString('hex')}\n`, mode)
  }

  get #secretFile(): string {
    return join(this.#folder, 'secret')
  }

  /** `nodeFlags` are Node's own, before the program. */
  async add(
    flags: readonly string[] = [],
    nodeFlags: readonly string[] = [],
    place: Place = {},
  ): Promise<NodeProcess> {
    const port = await freePort()
    const own = [
      ...['--port', String(port), '--store', this.store, '--lease-ms', String(this.#leaseMs)],
      ...['--advertise', `http://127.0.0.1:${port}`, '--cluster-secret-file', this.#secretFile],
      ...flags,
    ]
    const node = await NodeProcess.start(own, [...nodeFlags, CLI, 'serve'], place)
    this.nodes.push(node)
    return node
  }

  /** Nodes may be added afterwards: they have the same store and secret. */
  async killNodes(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.kill()))
    this.nodes = []
  }

  async close(): Promise<void> {
    await this.killNodes()
    rmSync(this.#folder, { recursive: true })
  }
}

/** Where a process runs, if not where this one does. */
export type Place = { readonly cwd?: string; readonly env?: NodeJS.ProcessEnv }

export class NodeProcess {
  readonly url: string
  readonly exited: Promise<number | null>
  readonly output: string[]
  readonly #process: ChildProcess

  private constructor(url: string, process: ChildProcess, output: string[]) {
    this.url = url
    this.output = output
    this.#process = process
    this.exited = once(process, 'exit').then(([code]) => code as number | null)
  }

  static async start(
    flags: readonly string[],
    program: readonly string[] = [CLI, 'serve'],
    place: Place = {},
  ): Promise<NodeProcess> {
    const args = [...program, ...flags]
    const child = guarded(
      spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'], ...GUARDED, ...place }),
    )
    const output: string[] = []
    return new NodeProcess(await listeningUrl(child, output), child, output)
  }

  get isRunning(): boolean {
    return this.#process.exitCode === null && this.#process.signalCode === null
  }

  async kill(): Promise<void> {
    if (!this.isRunning) return
    this.#process.kill('SIGKILL')
    await this.exited
  }

  pause(): void {
    this.#process.kill('SIGSTOP')
  }

  resume(): void {
    this.#process.kill('SIGCONT')
  }

  /** The exit code. */
  async stop(): Promise<number | null> {
    this.#process.kill('SIGTERM')
    return this.exited
  }

  async get(path: string): Promise<NodeAnswer> {
    return this.#call(path, {})
  }

  async post(
    path: string,
    body: unknown,
    headers: Record<string, string> = {},
  ): Promise<NodeAnswer> {
    return this.#call(path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    })
  }

  async delete(path: string): Promise<NodeAnswer> {
    return this.#call(path, { method: 'DELETE' })
  }

  async #call(path: string, init: RequestInit): Promise<NodeAnswer> {
    const response = await fetch(`${this.url}${path}`, init)
    const text = await response.text()
    const type = response.headers.get('content-type') ?? ''
    const isJson = type.includes('json') && !type.includes('jsonl')
    return {
      status: response.status,
      headers: response.headers,
      body: isJson ? JSON.parse(text) : text,
    }
  }
}

export type NodeAnswer = {
  readonly status: number
  readonly headers: Headers
  readonly body: any
}

/** Below those that connections get by themselves: else one might take it before its node is up. */
const PORTS = { from: 10_000, to: 32_000 } as const

/** A port that is free, and stays so while a node that listened there is down. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(PORTS.from, PORTS.to)
    const probe = createServer().listen(port, '127.0.0.1')
    const isFree = await once(probe, 'listening').then(
      () => true,
      () => false,
    )
    if (!isFree) continue
    probe.close()
    await once(probe, 'close')
    return port
  }
}
