/**
 * A child process of a runner: its environment by allow-list, its own process group, its stderr
 * kept and bounded, and an end that always comes: asked for with SIGTERM, then with SIGKILL. A
 * guard sees to it that it does not outlive this process, however that ends.
 */
import type { ChildProcess } from 'node:child_process'
import { basename } from 'node:path'
import { PassThrough, type Readable, type Writable } from 'node:stream'
import type { Diagnose, Facts } from '../core/index.ts'
import { guard } from './guard.ts'
import { startProcess } from './start.ts'
import { killFamily, markedFor } from './stragglers.ts'

export type ChildOptions = {
  readonly command: string
  readonly args?: readonly string[]
  readonly cwd?: string
  /** The whole environment of the child; see `childEnvironment`. */
  readonly env: Readonly<Record<string, string>>
  /** Told of its start and its end; never of its arguments or what it says. */
  readonly diagnose?: Diagnose
}

/** How a child ended; `error` if it could not even be started. */
export type ChildEnd = {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly error: NodeJS.ErrnoException | null
}

/** What is kept of a child's stderr: its end, in characters. */
export const STDERR_CHARS_MAX = 8_192
/** Between asking a child to end and killing it, unless the caller says otherwise. */
export const STOP_GRACE_MS = 2_000

const hasGroups = process.platform !== 'win32'

export class Child {
  readonly command: string
  /** What it and all that it starts carry in their environment, if they are marked. */
  readonly mark: string | null
  readonly stdin: Writable
  readonly stdout: Readable
  /** Resolves when the process is gone and its output is read; never rejects. */
  readonly ended: Promise<ChildEnd>
  readonly #process: ChildProcess
  readonly #errors: Readable
  readonly #diagnose: Diagnose
  #stderr = ''
  /** Whether it was told to end while it ran. */
  #isStopped = false
  #end: ChildEnd | null = null

  constructor({ command, args = [], cwd, env, diagnose = () => undefined }: ChildOptions) {
    const marked = markedFor(env)
    this.command = command
    this.#diagnose = diagnose
    this.mark = marked.mark
    this.#process = startProcess(command, [...args], {
      ...(cwd === undefined ? {} : { cwd }),
      env: marked.env,
      stdio: ['pipe', 'pipe', 'pipe'],
      // A group of its own: what it starts in turn can be ended with it.
      detached: hasGroups,
      windowsHide: true,
    })
    // First of all: that it could not be started is an event too.
    this.ended = new Promise((resolve) => this.#whenEnded(resolve))
    const { stdin, stdout, stderr, pid } = this.#process
    // Without descriptors left it has no pipes.
    this.stdin = stdin ?? new PassThrough()
    this.stdout = stdout ?? new PassThrough().end()
    this.#errors = stderr ?? new PassThrough().end()
    for (const stream of [this.stdin, this.stdout, this.#errors]) {
      // A pipe that breaks, or writing to a child that has ended: its end is what is told.
      stream.on('error', () => undefined)
    }
    this.#errors.setEncoding('utf8').on('data', (text: string) => this.#keep(text))
    if (pid !== undefined && hasGroups) guard.watch(pid)
    this.#tellStarted()
  }

  get pid(): number | undefined {
    return this.#process.pid
  }

  /** How it ended, or null while it lives. */
  get end(): ChildEnd | null {
    return this.#end
  }

  /** Whether it may still be spoken to; what it said last may come after it is not. */
  get isRunning(): boolean {
    const { pid, exitCode, signalCode } = this.#process
    return pid !== undefined && exitCode === null && signalCode === null
  }

  /** The end of what it said on stderr. */
  get stderr(): string {
    return this.#stderr
  }

  /** Ends it and whatever it started; resolves when it is gone. */
  async stop(graceMs: number = STOP_GRACE_MS): Promise<void> {
    if (this.#end !== null) return
    this.#signal('SIGTERM')
    const timer = setTimeout(() => this.kill(), graceMs)
    await this.ended
    clearTimeout(timer)
  }

  /** Ends it and whatever it started, at once. */
  kill(): void {
    this.#signal('SIGKILL')
    // What has left the group may still hold the pipes: nobody waits for that.
    this.stdout.destroy()
    this.#errors.destroy()
  }

  #signal(signal: NodeJS.Signals): void {
    const { pid } = this.#process
    if (pid === undefined || this.#end !== null) return
    if (this.isRunning) this.#isStopped = true
    try {
      if (hasGroups) process.kill(-pid, signal)
      else this.#process.kill(signal)
    } catch {
      // It is gone already; `ended` tells.
    }
  }

  #tellStarted(): void {
    const { pid } = this.#process
    if (pid === undefined) return
    const facts = { program: basename(this.command), pid }
    this.#diagnose('agent_started', 'an agent was started', facts)
  }

  #tellEnded(end: ChildEnd): void {
    const { code, signal, error } = end
    const { pid } = this.#process
    const byItself = signal === null ? 'exited' : 'killed'
    const reason = error !== null ? 'not_started' : this.#isStopped ? 'stopped' : byItself
    const program = { program: basename(this.command), pid: pid ?? null }
    const how: Facts =
      error === null ? { exitCode: code, signal } : { error: error.code ?? error.message }
    this.#diagnose('agent_ended', 'an agent has ended', { reason, ...program, ...how })
  }

  #keep(text: string): void {
    this.#stderr = (this.#stderr + text).slice(-STDERR_CHARS_MAX)
  }

  #whenEnded(resolve: (end: ChildEnd) => void): void {
    const end = (end: ChildEnd): void => {
      if (this.#end !== null) return
      // What it started and left behind goes with it.
      this.#signal('SIGKILL')
      this.#end = end
      this.#tellEnded(end)
      void this.#clear().finally(() => resolve(end))
    }
    this.#process.on('error', (error) => {
      if (this.#process.pid === undefined) end({ code: null, signal: null, error })
    })
    // Its descendants may hold the pipes open: once it has exited they get no longer than this.
    this.#process.once('exit', () => setTimeout(() => this.kill(), STOP_GRACE_MS).unref())
    this.#process.once('close', (code, signal) => end({ code, signal, error: null }))
  }

  /** What has left the group goes too, and only then is nothing left to guard. */
  async #clear(): Promise<void> {
    if (this.mark !== null) await killFamily(this.mark)
    if (this.#process.pid !== undefined && hasGroups) guard.forget(this.#process.pid)
  }
}

/** What a program needs to find its way about, and nothing that could be a secret. */
const ALLOWED = [
  'PATH',
  'HOME',
  'USER',
  'LOGNAME',
  'SHELL',
  'LANG',
  'LANGUAGE',
  'LC_*',
  'TZ',
  'TMPDIR',
  'TERM',
  'XDG_*',
  'SSL_CERT_FILE',
  'SSL_CERT_DIR',
  'NODE_EXTRA_CA_CERTS',
  // Windows
  'SystemRoot',
  'ComSpec',
  'PATHEXT',
  'USERPROFILE',
  'APPDATA',
  'LOCALAPPDATA',
  'TEMP',
  'TMP',
]

export type EnvironmentOptions = {
  /** Names to pass on from this process; `NAME_*` stands for all that begin so. */
  readonly envAllow?: readonly string[]
  /** Values to set. */
  readonly env?: Readonly<Record<string, string>>
}

/** A child's environment: of this process's only what is allowed, then what is set for it. */
export function childEnvironment(
  { envAllow = [], env = {} }: EnvironmentOptions,
  own: Readonly<Record<string, string | undefined>> = process.env,
): Record<string, string> {
  const allowed = [...ALLOWED, ...envAllow]
  const passed = Object.entries(own).filter(
    (entry): entry is [string, string] =>
      entry[1] !== undefined && allowed.some((name) => matches(name, entry[0])),
  )
  return { ...Object.fromEntries(passed), ...env }
}

function matches(allowed: string, name: string): boolean {
  return allowed.endsWith('*') ? name.startsWith(allowed.slice(0, -1)) : name === allowed
}

/** An end in words: `exited with code 1`, `was killed by SIGKILL`, `could not be started: …`. */
export function describeEnd({ code, signal, error }: ChildEnd): string {
  if (error?.code === 'ENOENT') return 'could not be started: there is no such program or folder'
  if (error?.code === 'EMFILE') return 'could not be started: no file descriptors are left'
  // Its message has the program's path, and clients are told this too.
  if (error !== null) return `could not be started: ${error.code ?? 'it is not known why'}`
  return signal === null ? `exited with code ${code}` : `was killed by ${signal}`
}
