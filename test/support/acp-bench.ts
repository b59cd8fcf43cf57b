/** Holdfast with the tiny ACP agent behind it, and what a test wants to know of both. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import {
  acpRunner,
  openHoldfast,
  type AcpOptions,
  type Holdfast,
  type Limits,
  type SessionHandle,
} from 'holdfast'
import { isAlive } from './processes.ts'

const AGENT = fileURLToPath(new URL('acp-agent.mjs', import.meta.url))

export type BenchOptions = Partial<AcpOptions> & {
  readonly limits?: Partial<Limits>
  /** The store outlives `restart`. */
  readonly isKept?: boolean
}

export class AcpBench {
  readonly folder: string
  holdfast: Holdfast
  readonly #open: () => Promise<Holdfast>

  constructor(folder: string, holdfast: Holdfast, open: () => Promise<Holdfast>) {
    this.folder = folder
    this.holdfast = holdfast
    this.#open = open
  }

  async restart(): Promise<void> {
    await this.holdfast.close()
    this.holdfast = await this.#open()
  }

  /** The agents that were started so far, in order. */
  get pids(): readonly number[] {
    const file = join(this.folder, 'starts')
    if (!existsSync(file)) return []
    return readFileSync(file, 'utf8').trim().split('\n').map(Number)
  }

  get living(): readonly number[] {
    return this.pids.filter(isAlive)
  }

  session(key: string): Promise<SessionHandle> {
    return this.holdfast.resolve({ key })
  }

  async events(session: SessionHandle): Promise<any[]> {
    return (await session.read(0, 500)).events.map(({ body }) => JSON.parse(body) as unknown)
  }

  async activities(session: SessionHandle, kind: string): Promise<any[]> {
    const events = await this.events(session)
    return events
      .filter((event) => event.type === 'turn.activity' && event.kind === kind)
      .map(({ data }) => data as unknown)
  }

  /** Throws if an agent has outlived Holdfast. */
  async close(): Promise<void> {
    await this.holdfast.close()
    const { living } = this
    rmSync(this.folder, { recursive: true })
    if (living.length > 0) throw new Error(`agents were left: ${living.join(', ')}`)
  }
}

export async function openBench({
  limits,
  env,
  isKept = false,
  ...options
}: BenchOptions = {}): Promise<AcpBench> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-acp-'))
  const open = (): Promise<Holdfast> => {
    const tiny = acpRunner({
      command: process.execPath,
      args: [AGENT],
      env: { KEEP: folder, RESTORE: 'load', ...env },
      ...options,
    })
    return openHoldfast({
      store: isKept ? `sqlite:${join(folder, 'holdfast.db')}` : 'memory:',
      agents: { tiny },
      ...(limits === undefined ? {} : { limits }),
    })
  }
  return new AcpBench(folder, await open(), open)
}
