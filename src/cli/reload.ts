/**
 * Reads the configuration again while the server runs, when it gets SIGHUP or the file has changed.
 *
 * 1. All of a new configuration is checked before any of it is put in force. One that cannot be
 *    used changes nothing and is reported.
 * 2. It is put in force in one step, in which no request comes in between.
 * 3. Settings that need a restart stay as they are, and the report names them.
 */
import { closeSync, openSync } from 'node:fs'
import { readConfig, RELOADING, type Config } from '../config/index.ts'
import { messageOf, type Diagnose } from '../core/index.ts'
import { changedSettings } from '../server/configuration-record.ts'
import { stampOf } from '../server/tokens.ts'

/** A part of the server that has settings: checks new ones, and throws if it cannot use them. */
export type PrepareSettings = (config: Config) => PreparedSettings | Promise<PreparedSettings>

export type PreparedSettings = {
  /** Puts them in force; it cannot fail. */
  readonly apply?: () => void
  /** What has changed besides the settings themselves: a file that one names. */
  readonly changed?: readonly string[]
}

type ReloaderOptions = {
  /** What is in force. */
  readonly config: Config
  /** Called in this order: what has effects comes last. */
  readonly parts: readonly PrepareSettings[]
  /** Read again too, whatever becomes of the configuration. */
  readonly readTokens: () => Promise<void>
  /** Whether clients need tokens without any issuer of `jwt`. */
  readonly hasTokensFile: boolean
  readonly diagnose: Diagnose
}

/** Between two looks at the file: it is read when it has not changed from one to the next. */
const WATCH_MS = 1_000

export class Reloader {
  readonly #options: ReloaderOptions
  #config: Config
  /** How often it was read again. */
  #count = 0
  #reloading: Promise<void> = Promise.resolve()
  #watch: NodeJS.Timeout | undefined

  constructor(options: ReloaderOptions) {
    this.#options = options
    this.#config = options.config
  }

  /** Never rejects; one at a time. */
  reload(): Promise<void> {
    this.#reloading = this.#reloading
      .then(() => this.#options.readTokens())
      .then(() => this.#reload())
      .catch((error: unknown) => {
        const message = 'the configuration cannot be used, the one before stays'
        const facts = { file: this.#config.file, problem: messageOf(error) }
        this.#options.diagnose('config_unusable', message, facts)
      })
    return this.#reloading
  }

  /** Reads the file again whenever it has changed. Not every file system reports changes. */
  watch(file: string): void {
    let read = stampOf(file)
    let seen = read
    const look = async (): Promise<void> => {
      const stamp = await stampOf(file)
      const [before, last] = [await seen, await read]
      seen = Promise.resolve(stamp)
      if (stamp !== before || stamp === last) return
      read = seen
      await this.reload()
    }
    this.#watch = setInterval(() => void look(), WATCH_MS).unref()
  }

  close(): void {
    clearInterval(this.#watch)
  }

  async #reload(): Promise<void> {
    const { parts, hasTokensFile, diagnose } = this.#options
    const before = this.#config
    const read = await readConfig(process.cwd(), before.file)
    const config = withoutRestart(before, read, hasTokensFile)
    const prepared: PreparedSettings[] = []
    for (const prepare of parts) prepared.push(await prepare(config))
    for (const { apply } of prepared) apply?.()
    this.#config = config
    this.#count += 1
    const restart = changedSettings(settingsOf(config), settingsOf(read))
    const settings = changedSettings(settingsOf(before), settingsOf(config))
    const changed = [...settings, ...prepared.flatMap(({ changed: more = [] }) => more)]
    const isSame = changed.length === 0 && restart.length === 0
    const effect = isSame ? 'nothing in it has changed' : 'the changed settings are in force'
    const outcome = restart.length === 0 ? effect : 'some changed settings need a restart'
    diagnose('config_read', `the configuration was read again: ${outcome}`, {
      file: config.file,
      // So that each is printed, also if nothing has changed.
      count: this.#count,
      changed: changed.join(', '),
      restart: restart.join(', '),
    })
  }
}

/** What of a configuration is compared, and recorded. */
export function settingsOf({ file: _file, base: _base, ...settings }: Config): object {
  return settings
}

/** The new configuration with the settings of the old one that only a restart changes. */
function withoutRestart(before: Config, after: Config, hasTokensFile: boolean): Config {
  const { leaseMs: _leaseMs, ...limits } = after.limits
  const { leaseMs } = before.limits
  const isOpen = ({ jwt }: Config): boolean => jwt.length === 0 && !hasTokensFile
  return {
    ...after,
    ...Object.fromEntries(
      Object.entries(before).filter(([name]) => isRestart(name as keyof typeof RELOADING)),
    ),
    limits: leaseMs === undefined ? limits : { ...limits, leaseMs },
    jwt: isOpen(before) === isOpen(after) ? after.jwt : before.jwt,
  }
}

function isRestart(name: keyof typeof RELOADING): boolean {
  return RELOADING[name] === 'restart'
}

/**
 * Calls `reload` at SIGHUP, from now on. A terminal that is closed sends SIGHUP too: then `closed`
 * is called.
 */
export function onHangup(reload: () => void, closed: () => void): void {
  // Windows sends it when the window is closed, and ends the process soon after.
  if (process.platform === 'win32') return
  const hadTerminal = hasTerminal()
  process.on('SIGHUP', () => {
    if (!hadTerminal || hasTerminal()) return reload()
    // At its end Node resets the terminal, and crashes if that is gone: the signal is quicker.
    process.once('exit', () => {
      process.removeAllListeners('SIGHUP')
      process.kill(process.pid, 'SIGHUP')
    })
    closed()
  })
}

/** Whether this process has a terminal that is open. */
function hasTerminal(): boolean {
  try {
    closeSync(openSync('/dev/tty', 'r'))
    return true
  } catch {
    return false
  }
}
