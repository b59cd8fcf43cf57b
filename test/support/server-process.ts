/** Servers as processes of their own: to be killed, paused, stopped, and several on one database. */
import { spawn, type ChildProcess } from 'node:child_process'
import { randomBytes, randomInt } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { Endpoint } from './endpoint.ts'
import { GUARDED, guarded } from './guarded.ts'
import { CLI } from './repository.ts'

export type ProcessOptions = {
  /** The folder of `--data`, or the address of a PostgreSQL. */
  readonly data?: string
  /** Any that is free, if not given. */
  readonly port?: number
  readonly flags?: readonly string[]
  /** Node's own, before the program. */
  readonly nodeFlags?: readonly string[]
  /** Another program that starts Node (`strace …`). */
  readonly under?: readonly string[]
  /** Runs with `flags` alone instead of `holdfast serve`. */
  readonly program?: string
  readonly cwd?: string
  readonly env?: NodeJS.ProcessEnv
  /** Whether `child.send` is possible. */
  readonly hasChannel?: boolean
}

export class ServerProcess extends Endpoint {
  override readonly url: string
  readonly child: ChildProcess
  readonly exited: Promise<number | null>
  /** All that it has printed so far. */
  readonly output: readonly string[]

  private constructor(url: string, child: ChildProcess, output: readonly string[]) {
    super()
    this.url = url
    this.child = child
    this.output = output
    this.exited = once(child, 'exit').then(([code]) => code as number | null)
  }

  /** Resolves when it listens; throws if it ends before. */
  static async start(options: ProcessOptions): Promise<ServerProcess> {
    const child = spawnServer(options)
    const output: string[] = []
    return new ServerProcess(await listeningUrl(child, output), child, output)
  }

  get pid(): number | undefined {
    return this.child.pid
  }

  get isRunning(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null
  }

  async kill(): Promise<void> {
    if (!this.isRunning) return
    this.child.kill('SIGKILL')
    await this.exited
  }

  pause(): void {
    this.child.kill('SIGSTOP')
  }

  resume(): void {
    this.child.kill('SIGCONT')
  }

  /** The exit code. */
  async stop(): Promise<number | null> {
    this.child.kill('SIGTERM')
    return this.exited
  }
}

/** Does not wait: for a server that is expected not to start. */
export function spawnServer(options: ProcessOptions): ChildProcess {
  const { under = [], nodeFlags = [], flags = [], program, cwd, env = process.env } = options
  const serve = program === undefined ? [CLI, 'serve', ...placeFlags(options)] : [program]
  const [command = '', ...args] = [...under, process.execPath, ...nodeFlags, ...serve, ...flags]
  return guarded(
    spawn(command, args, {
      stdio: ['ignore', 'pipe', 'pipe', ...(options.hasChannel === true ? ['ipc' as const] : [])],
      env,
      ...(cwd === undefined ? {} : { cwd }),
      ...GUARDED,
    }),
  )
}

function placeFlags({ port = 0, data }: ProcessOptions): readonly string[] {
  const listen = ['--port', String(port)]
  if (data === undefined) return listen
  return [...listen, data.startsWith('postgres:') ? '--store' : '--data', data]
}

/** The first address that it prints. What it prints, then and later, goes to `output`. */
async function listeningUrl(child: ChildProcess, output: string[]): Promise<string> {
  child.stderr?.on('data', (chunk: Buffer) => output.push(chunk.toString()))
  const lines = createInterface({ input: child.stdout! })
  const url = await new Promise<string | null>((resolve) => {
    // Not a loop that is left: the lines that came with the address would be lost.
    lines.on('line', (line) => {
      output.push(`${line}\n`)
      const found = /http:\/\/127\.0\.0\.1:\d+/.exec(line)?.[0]
      if (found !== undefined) resolve(found)
    })
    lines.once('close', () => resolve(null))
  })
  if (url !== null) return url
  throw new Error(`the server did not start:\n${output.join('')}`)
}

/** Nodes that share a store and a secret. */
export class Cluster {
  readonly store: string
  readonly #folder: string
  readonly #leaseMs: number
  nodes: ServerProcess[] = []

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

  async add(
    flags: readonly string[] = [],
    options: Omit<ProcessOptions, 'data' | 'port' | 'flags'> = {},
  ): Promise<ServerProcess> {
    const port = await freePort()
    const own = [
      ...['--store', this.store, '--lease-ms', String(this.#leaseMs)],
      ...['--advertise', `http://127.0.0.1:${port}`, '--cluster-secret-file', this.#secretFile],
    ]
    const node = await ServerProcess.start({ ...options, port, flags: [...own, ...flags] })
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
