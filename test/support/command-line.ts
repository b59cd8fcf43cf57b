/** The command line as a process of its own, and what it says. */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { until } from './gate.ts'

const MAIN = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))

/** Runs another command as if at a terminal. */
export const hasTerminal = spawnSync('script', ['--version']).status === 0

const running = new Set<ChildProcess>()

export class CommandLine {
  readonly child: ChildProcess
  /** With its exit code, once all it said was read. */
  readonly exited: Promise<number | null>
  stdout = ''
  stderr = ''

  constructor(args: readonly string[], { env = {}, input }: CommandOptions = {}) {
    this.child = spawn(process.execPath, [MAIN, ...args], {
      stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
      env: { ...process.env, ...env },
    })
    this.exited = this.#listen()
    if (input !== undefined) this.child.stdin?.end(input)
  }

  /** When it has said this, on either stream. */
  async said(text: string): Promise<void> {
    let isOver = false
    void this.exited.then(() => (isOver = true))
    await until(() => isOver || `${this.stdout}${this.stderr}`.includes(text))
    if (!`${this.stdout}${this.stderr}`.includes(text)) {
      throw new Error(`never said ${text}:\n${this.stdout}${this.stderr}`)
    }
  }

  async #listen(): Promise<number | null> {
    running.add(this.child)
    this.child.stdout?.on('data', (data: Buffer) => (this.stdout += data.toString()))
    this.child.stderr?.on('data', (data: Buffer) => (this.stderr += data.toString()))
    const [code] = (await once(this.child, 'close')) as [number | null]
    running.delete(this.child)
    return code
  }
}

export type CommandOptions = {
  readonly env?: Readonly<Record<string, string>>
  readonly input?: string
}

/** At a terminal of its own: what is typed goes in, what is shown comes out. */
export class TerminalLine {
  readonly exited: Promise<number | null>
  shown = ''
  readonly #child: ChildProcess

  constructor(args: readonly string[]) {
    const command = [process.execPath, MAIN, ...args].map((word) => `'${word}'`).join(' ')
    this.#child = spawn('script', ['-qefc', command, '/dev/null'], { stdio: 'pipe' })
    running.add(this.#child)
    this.#child.stdout?.on('data', (data: Buffer) => (this.shown += data.toString()))
    this.exited = once(this.#child, 'close').then(([code]) => {
      running.delete(this.#child)
      return code as number | null
    })
  }

  type(text: string): void {
    this.#child.stdin?.write(text)
  }

  shows(text: string): Promise<void> {
    return until(() => this.shown.includes(text))
  }
}

/** Ends whatever a test left running. */
export function killCommands(): void {
  for (const child of running) child.kill('SIGKILL')
}
