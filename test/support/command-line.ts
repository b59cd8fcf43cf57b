/** The command line as a process of its own, and what it says. */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { GUARDED, guarded } from './guarded.ts'
import { CLI } from './repository.ts'

/** `script` runs another command as if at a terminal. */
export const hasTerminal = spawnSync('script', ['--version']).status === 0

const running = new Set<ChildProcess>()

/** Ends whatever a test left running. */
export function killCommands(): void {
  for (const child of running) child.kill('SIGKILL')
}

/** A process whose output is kept, and can be waited for. */
class Spoken {
  readonly child: ChildProcess
  /** With its exit code, once all it said was read. */
  readonly exited: Promise<number | null>
  stdout = ''
  stderr = ''
  #isOver = false
  #waiting: (() => void)[] = []

  constructor(child: ChildProcess) {
    this.child = guarded(child)
    running.add(child)
    child.stdout?.on('data', (data: Buffer) => {
      this.stdout += data.toString()
      this.#wake()
    })
    child.stderr?.on('data', (data: Buffer) => {
      this.stderr += data.toString()
      this.#wake()
    })
    this.exited = once(child, 'close').then(([code]) => {
      running.delete(child)
      this.#isOver = true
      this.#wake()
      return code as number | null
    })
  }

  /** When it has said this, on either stream. */
  async said(text: string): Promise<void> {
    while (!this.stdout.includes(text) && !this.stderr.includes(text)) await this.more(text)
  }

  /** When it has said something more; throws if it has ended without saying what was `wanted`. */
  more(wanted: string): Promise<void> {
    if (this.#isOver) throw new Error(`never said ${wanted}:\n${this.stdout}${this.stderr}`)
    return new Promise<void>((resolve) => this.#waiting.push(resolve))
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake()
  }
}

export type CommandOptions = {
  readonly env?: Readonly<Record<string, string>>
  /** All of stdin. */
  readonly input?: string
}

export class CommandLine extends Spoken {
  constructor(args: readonly string[], { env = {}, input }: CommandOptions = {}) {
    const stdin = input === undefined ? 'ignore' : 'pipe'
    super(
      spawn(process.execPath, [CLI, ...args], {
        stdio: [stdin, 'pipe', 'pipe'],
        env: { ...process.env, ...env },
        ...GUARDED,
      }),
    )
    if (input !== undefined) this.child.stdin?.end(input)
  }
}

/** At a terminal of its own: what is typed goes in, what is shown comes out. */
export class TerminalLine extends Spoken {
  constructor(args: readonly string[]) {
    const command = [process.execPath, CLI, ...args].map((word) => `'${word}'`).join(' ')
    super(spawn('script', ['-qefc', command, '/dev/null'], { stdio: 'pipe', ...GUARDED }))
  }

  type(text: string): void {
    this.child.stdin?.write(text)
  }
}
