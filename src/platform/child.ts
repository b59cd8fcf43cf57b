/**
 * A child process of a runner. It gets an allow-listed environment and a process group of its own.
 * The end of its stderr is kept. It is stopped with SIGTERM, then with SIGKILL, and a guard process
 * (`processes.ts`) kills it if this process ends first. A workplace starts the children of a
 * runner, each in the folder of its session.
 */
import type { ChildProcess } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { access, chmod, constants, lchown, mkdir, writeFile } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { PassThrough, type Readable, type Writable } from 'node:stream'
import type { Diagnose, Facts, LeftFiles } from '../core/index.ts'
import {
  environmentAt,
  expandWrapper,
  findUser,
  firstProcessIn,
  hasOwnHome,
  INFO_DESCRIPTOR,
  wrapperOf,
  type ChildFolders,
  type IsolationOptions,
  type User,
} from './isolation.ts'
import {
  folderName,
  groupMemory,
  guard,
  killMarked,
  killOrphans,
  killOwn,
  KnownProcess,
  MARK,
  markOf,
  startProcess,
} from './processes.ts'
import { isThere, remove } from './removal.ts'
import { redact } from './text.ts'

type ChildOptions = {
  readonly command: string
  readonly args?: readonly string[]
  /** A program and its arguments, which start the command. */
  readonly wrapper?: readonly string[]
  /** Whether the wrapper is bubblewrap, which names the first process of the sandbox. */
  readonly isSandboxed?: boolean
  /** Without it, the user of this process. */
  readonly user?: User | null
  readonly cwd?: string | undefined
  /** The whole environment of the child but its mark; see `childEnvironment`. */
  readonly env: Readonly<Record<string, string>>
  /** By which the child and its descendants are found; see `markOf`. */
  readonly mark?: string | undefined
  /** The time between SIGTERM and SIGKILL. */
  readonly killGraceMs?: number | undefined
  /** Reports its start and its end, without its arguments and output. */
  readonly diagnose?: Diagnose
}

/** How a child ended; `error` if it could not even be started. */
type ChildEnd = {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly error: NodeJS.ErrnoException | null
}

/** How much of a child's stderr is kept: its last characters. */
export const STDERR_CHARS_MAX = 8_192
/** The time between SIGTERM and SIGKILL, unless the caller gives another. */
const KILL_GRACE_MS = 2_000
/** The time between the end of a child's stdin, after which it should exit, and SIGTERM. */
const EXIT_MS = 500
const MEMORY_SAMPLE_MS = 1_000

const hasGroups = process.platform !== 'win32'

export class Child {
  /** The program's name, without its path. */
  readonly program: string
  readonly stdin: Writable
  readonly stdout: Readable
  /** Resolves when the process has ended and its output is read; never rejects. */
  readonly ended: Promise<ChildEnd>
  /** How it ended; null while it runs. */
  end: ChildEnd | null = null
  /** Why this process stops it, if it exceeded a limit. */
  problem: string | null = null
  readonly #options: ChildOptions
  readonly #process: ChildProcess
  #stderr = ''
  /** Whether this process stopped it while it ran. */
  #isStopped = false
  /** The first process of its sandbox: all others of it end with that one. */
  #first: KnownProcess | null = null
  #isKilled = false

  constructor(options: ChildOptions) {
    const { command, args = [], wrapper = [], isSandboxed = false, user, cwd, env, mark } = options
    this.#options = options
    this.program = basename(command)
    const [program = command, ...rest] = [...wrapper, command, ...args]
    this.#process = startProcess(program, rest, {
      ...user,
      cwd,
      env: mark === undefined ? env : { ...env, [MARK]: mark },
      stdio: ['pipe', 'pipe', 'pipe', ...(isSandboxed ? (['pipe'] as const) : [])],
      // With its own process group, its descendants can be killed with it.
      detached: hasGroups,
      windowsHide: true,
    })
    // Before anything else: a failed start is an event too.
    this.ended = new Promise((resolve) => this.#whenEnded(resolve))
    const { stdin, stdout, stderr, pid } = this.#process
    // Without file descriptors it has no pipes.
    this.stdin = stdin ?? new PassThrough()
    this.stdout = stdout ?? new PassThrough().end()
    for (const stream of [this.stdin, this.stdout, stderr]) {
      // A broken pipe: `ended` reports the end of the child.
      stream?.on('error', () => undefined)
    }
    stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-STDERR_CHARS_MAX)
    })
    if (pid === undefined) return
    if (hasGroups) guard.watch(-pid)
    if (isSandboxed) this.#learnFirst(this.#process.stdio[INFO_DESCRIPTOR] as Readable)
    options.diagnose?.('agent_started', 'an agent was started', { program: this.program, pid })
  }

  get pid(): number | undefined {
    return this.#process.pid
  }

  /** Whether the process exists; its last output may arrive later. */
  get isRunning(): boolean {
    const { pid, exitCode, signalCode } = this.#process
    return pid !== undefined && exitCode === null && signalCode === null
  }

  /** The last characters of its stderr, without secrets. */
  get stderr(): string {
    return this.redact(this.#stderr).trim()
  }

  /** The text without the secrets of its environment. */
  redact(text: string): string {
    return redact(text, this.#options.env)
  }

  /** Its stdout; that of a killed child just ends. */
  async *output(): AsyncGenerator<Buffer> {
    try {
      yield* this.stdout as AsyncIterable<Buffer>
    } catch (error) {
      if (!this.stdout.destroyed) throw error
    }
  }

  /** Stops it and its process group; resolves when it has ended. */
  async stop(graceMs = this.#options.killGraceMs ?? KILL_GRACE_MS): Promise<void> {
    if (this.end !== null) return
    this.#signal('SIGTERM')
    const timer = setTimeout(() => this.kill(), graceMs)
    await this.ended
    clearTimeout(timer)
  }

  /** Ends its stdin, and stops it if it does not exit by itself; resolves when it has ended. */
  async dismiss(): Promise<void> {
    this.stdin.end()
    const timer = setTimeout(() => void this.stop(), EXIT_MS)
    await this.ended
    clearTimeout(timer)
  }

  /** Kills it and its process group at once. */
  kill(): void {
    this.#signal('SIGKILL')
    // A descendant outside the group may keep the pipes open; do not wait for it.
    this.stdout.destroy()
    this.#process.stderr?.destroy()
  }

  /**
   * Calls `exceeded` when the process, its group and its descendants use more memory (Linux only).
   * Returns a function that ends the sampling.
   */
  limitMemory(bytesMax: number, exceeded: (problem: string) => void): () => void {
    if (!Number.isFinite(bytesMax) || process.platform !== 'linux') return () => undefined
    const sample = async (): Promise<void> => {
      const bytes = await groupMemory(this.pid ?? -1, this.#options.mark)
      if (bytes !== null && bytes > bytesMax) exceeded(`used more than ${bytesMax} bytes of memory`)
    }
    const timer = setInterval(() => void sample(), MEMORY_SAMPLE_MS)
    return () => clearInterval(timer)
  }

  /** Why it ended: `exited with code 1`, `was killed by SIGKILL`, `could not be started: …`. */
  describeEnd(): string {
    const { code = null, signal = null, error = null } = this.end ?? {}
    if (this.problem !== null) return this.problem
    if (error?.code === 'ENOENT') return 'could not be started: there is no such program or folder'
    if (error?.code === 'EMFILE') return 'could not be started: no file descriptors are left'
    // Clients see this text; the error's message would show them the program's path.
    if (error !== null) return `could not be started: ${error.code ?? 'unknown error'}`
    return signal === null ? `exited with code ${code}` : `was killed by ${signal}`
  }

  /** The activity that records the end of a child which failed its turn. */
  diagnosis(failure: string) {
    const { code = null, signal = null } = this.end ?? {}
    const data = { code, signal, failure, stderr: this.stderr }
    return { type: 'activity', kind: 'diagnosis', data } as const
  }

  /** `ended` waits for the end of this stream, so the process is known by then. */
  #learnFirst(info: Readable): void {
    let text = ''
    // Its end is the end of the sandbox or of its start.
    info.on('error', () => undefined)
    info.setEncoding('latin1').on('data', (part: string) => {
      text += part
      const pid = this.#first === null ? firstProcessIn(text) : null
      if (pid === null) return
      this.#first = new KnownProcess(pid)
      if (this.#isKilled) this.#first.kill()
      else guard.watch(pid)
    })
  }

  #signal(signal: NodeJS.Signals): void {
    const { pid } = this.#process
    if (signal === 'SIGKILL') {
      this.#isKilled = true
      this.#first?.kill()
    }
    if (pid === undefined || this.end !== null) return
    if (this.isRunning) this.#isStopped = true
    try {
      if (hasGroups) process.kill(-pid, signal)
      else this.#process.kill(signal)
    } catch {
      // It has ended; `ended` reports it.
    }
  }

  #whenEnded(resolve: (end: ChildEnd) => void): void {
    const end = (end: ChildEnd): void => {
      if (this.end !== null) return
      // Kill the rest of its process group.
      this.#signal('SIGKILL')
      this.end = end
      this.#reportEnd(end)
      void this.#clear().finally(() => resolve(end))
    }
    this.#process.on('error', (error) => {
      if (this.#process.pid === undefined) end({ code: null, signal: null, error })
    })
    // Descendants may keep the pipes open after its exit, but only this long.
    this.#process.once('exit', () => setTimeout(() => this.kill(), KILL_GRACE_MS).unref())
    this.#process.once('close', (code, signal) => end({ code, signal, error: null }))
  }

  #reportEnd({ code, signal, error }: ChildEnd): void {
    const byItself = signal === null ? 'exited' : 'killed'
    const reason = error !== null ? 'not_started' : this.#isStopped ? 'stopped' : byItself
    const how: Facts =
      error === null ? { exitCode: code, signal } : { error: error.code ?? error.message }
    const facts = { reason, program: this.program, pid: this.pid ?? null, ...how }
    this.#options.diagnose?.('agent_ended', 'an agent has ended', facts)
  }

  /** Kills descendants outside the group; only then does the guard forget the child. */
  async #clear(): Promise<void> {
    const { mark } = this.#options
    if (mark !== undefined) await killMarked((inherited) => inherited === mark)
    if (this.#first !== null) guard.forget(this.#first.pid)
    if (this.pid !== undefined && hasGroups) guard.forget(-this.pid)
  }
}

/** The variables that every child gets: what programs need to run, and no secrets. */
const ALLOWED = [
  ...['PATH', 'HOME', 'USER', 'LOGNAME', 'SHELL', 'LANG', 'LANGUAGE', 'LC_*', 'TZ', 'TMPDIR'],
  ...['TERM', 'XDG_*', 'SSL_CERT_FILE', 'SSL_CERT_DIR', 'NODE_EXTRA_CA_CERTS'],
  // Windows
  ...['SystemRoot', 'ComSpec', 'PATHEXT', 'USERPROFILE', 'APPDATA', 'LOCALAPPDATA', 'TEMP', 'TMP'],
]

/** A child's environment: the allowed variables of this process, then those set for it. */
export function childEnvironment(
  { envAllow = [], env = {} }: Pick<WorkplaceOptions, 'env' | 'envAllow'>,
  own: Readonly<Record<string, string | undefined>> = process.env,
): Record<string, string> {
  const allowed = [...ALLOWED, ...envAllow]
  const isAllowed = (name: string): boolean =>
    allowed.some((one) => (one.endsWith('*') ? name.startsWith(one.slice(0, -1)) : name === one))
  const passed = Object.entries(own).filter(
    ([name, value]) => isAllowed(name) && value !== undefined,
  )
  return { ...(Object.fromEntries(passed) as Record<string, string>), ...env }
}

type WorkplaceOptions = IsolationOptions &
  Pick<ChildOptions, 'command' | 'killGraceMs'> & {
    /** Names of variables to pass on from this process; `NAME_*` is a prefix. */
    readonly envAllow?: readonly string[]
    /** Variables to set. */
    readonly env?: Readonly<Record<string, string>>
    /** Where all children work; without it each session has a folder of its own in `folder`. */
    readonly cwd?: string
    /** The parent of the sessions' folders. Without both, children work where this process does. */
    readonly folder?: string
  }

/** How many sessions are remembered as erased; their turns end long before they are forgotten. */
const ERASED_MAX = 1_000

/** Only its owner reads it; others may pass through to a folder of their own in it. */
const PASSABLE = 0o711

/** A file beside the folder of a session that says that forks use it. */
function forkedMark(folder: string): string {
  return `${folder}.forked`
}

/**
 * Where the children of a runner work. Processes that an earlier server left in its folder are
 * killed before the first child starts (I2).
 */
export class Workplace {
  readonly #options: WorkplaceOptions
  /** Others may work in the same folder. */
  readonly #id = randomUUID()
  readonly #wrapper: readonly string[]
  readonly #user: User | null
  readonly #cleared: Promise<unknown>
  /** Sessions whose folders are being made, or were removed and must not be made again. */
  readonly #making = new Map<string, Promise<ChildFolders>>()
  readonly #erased = new Set<string>()
  diagnose: Diagnose = () => undefined

  constructor(options: WorkplaceOptions) {
    const { folder, runAs } = options
    this.#options = options
    this.#wrapper = wrapperOf(options)
    this.#user = runAs === undefined ? null : findUser(runAs)
    if (folder === undefined && hasOwnHome(options)) {
      throw new Error('an isolated agent needs "folder", in which its homes are')
    }
    this.#cleared = folder === undefined ? Promise.resolve() : killOrphans(folder)
  }

  /** Starts a child, in `startIn` if that is given. The folders are those of `foldersOf`. */
  start(args: readonly string[], folders: ChildFolders, startIn = folders.cwd): Child {
    const { command, folder, killGraceMs } = this.#options
    const env = this.environment(folders)
    const mark = folder === undefined ? undefined : markOf(folder, this.#id)
    const wrapper = expandWrapper(this.#wrapper, folders)
    const isSandboxed = this.#options.isolation !== undefined
    const child = { command, args, wrapper, isSandboxed, user: this.#user, cwd: startIn, env, mark }
    return new Child({ ...child, killGraceMs, diagnose: this.diagnose })
  }

  /** The variables of a child in these folders. */
  environment({ home }: ChildFolders): Readonly<Record<string, string>> {
    const own = childEnvironment(this.#options)
    return hasOwnHome(this.#options) ? environmentAt(home, own, this.#options) : own
  }

  /** A session's folders, created if missing. They have the agent's work until it is erased. */
  async foldersOf(session: string): Promise<ChildFolders> {
    if (this.#erased.has(session)) throw new Error('the session is erased')
    const making = this.#makeFolders(session)
    this.#making.set(session, making)
    try {
      return await making
    } finally {
      if (this.#making.get(session) === making) this.#making.delete(session)
    }
  }

  /**
   * Removes the folders that were made for a session. Those that the operator or the session's
   * settings name are not touched. Returns what could not be removed.
   */
  async erase(session: string): Promise<readonly LeftFiles[]> {
    this.#erased.add(session)
    const [oldest] = this.#erased
    if (this.#erased.size > ERASED_MAX && oldest !== undefined) this.#erased.delete(oldest)
    // The turn that wanted the folders has failed with the reason.
    await this.#making.get(session)?.catch(() => undefined)
    if (this.#options.folder === undefined) return []
    const { folder, home } = this.#ownFolders(session)
    const left: LeftFiles[] = []
    if (await isThere(forkedMark(folder))) {
      left.push({ what: 'its working folder, in which forks of it work', path: folder })
    } else if (!(await this.remove(folder))) left.push({ what: 'its working folder', path: folder })
    if (!(await this.remove(home))) left.push({ what: "its agent's home", path: home })
    return left
  }

  /** A fork will work in this folder: if it is a session's own, it is not removed with that. */
  async keep(path: string): Promise<void> {
    const { folder } = this.#options
    if (folder === undefined || dirname(resolve(path)) !== resolve(folder)) return
    await writeFile(forkedMark(path), '')
  }

  /** Runs the program to its end, in a session's folder, with the output ignored. */
  async runOnce(session: string, args: readonly string[], ms: number): Promise<void> {
    const child = this.start(args, await this.foldersOf(session))
    child.stdin.end()
    child.stdout.resume()
    const timer = setTimeout(() => child.kill(), ms)
    await child.ended
    clearTimeout(timer)
  }

  /** Whether every session has a home of its own. */
  get hasOwnHome(): boolean {
    return hasOwnHome(this.#options)
  }

  get command(): string {
    return this.#options.command
  }

  /** Where the children of a session start, unless they are told otherwise. */
  folderOf(session: string): string {
    const { cwd, folder } = this.#options
    return resolve(cwd ?? (folder === undefined ? '.' : this.#ownFolders(session).folder))
  }

  /** The variables of a child of this session. */
  environmentOf(session: string): Readonly<Record<string, string>> {
    const { folder, home } = this.#ownFolders(session)
    return this.environment({ cwd: folder, home })
  }

  /** Removes something that a child has written; returns whether it is gone. */
  remove(path: string): Promise<boolean> {
    return remove(path, this.#user)
  }

  /** Their names follow from the session's id: they are of no other session. */
  #ownFolders(session: string) {
    const folder = join(this.#options.folder ?? '', folderName(session))
    return { folder, home: `${folder}.home` }
  }

  async #makeFolders(session: string): Promise<ChildFolders> {
    const { cwd, folder: root } = this.#options
    await this.#cleared
    const { folder, home } = this.#ownFolders(session)
    if (hasOwnHome(this.#options)) await this.#make(home)
    if (cwd !== undefined || root === undefined) {
      await access(cwd ?? '.', constants.X_OK)
      return { cwd: resolve(cwd ?? '.'), home }
    }
    await this.#make(folder)
    return { cwd: folder, home }
  }

  /** Kills what the children have left running. */
  async close(): Promise<void> {
    if (this.#options.folder !== undefined) await killOwn(this.#options.folder, this.#id)
  }

  /** The folder belongs to the user that the children run as. */
  async #make(folder: string): Promise<void> {
    const user = this.#user
    try {
      await mkdir(folder, { recursive: true, mode: 0o700 })
      if (user === null) return
      await chmod(this.#options.folder ?? folder, PASSABLE)
      await lchown(folder, user.uid, user.gid)
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      // The turn fails with this message, which clients see: it must not contain the path.
      throw new Error(`the agent's working folder cannot be created: ${code}`)
    }
  }
}
