/** Starting Chromium: over a pipe, with a profile of its own that goes with it. */
import type { ChildProcess } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { HoldfastError } from '../core/index.ts'
import { startProcess } from '../platform/spawn.ts'
import { groupMemory } from '../platform/processes.ts'
import type { BrowserConnection, ConnectionEvents } from './connection.ts'
import type { BrowserLimits } from './limits.ts'
import { PipeConnection } from './pipe.ts'

const FLAGS = [
  '--headless',
  // Else the middle button pastes what any other client of this browser has selected last.
  '--blink-settings=selectionClipboardBufferAvailable=false',
  '--remote-debugging-pipe',
  '--no-startup-window',
  '--no-first-run',
  '--no-default-browser-check',
  '--disable-background-networking',
  '--disable-background-timer-throttling',
  '--disable-backgrounding-occluded-windows',
  '--disable-renderer-backgrounding',
  '--disable-component-update',
  '--disable-default-apps',
  '--disable-dev-shm-usage',
  '--disable-gpu',
  '--disable-hang-monitor',
  '--disable-popup-blocking',
  '--disable-quic',
  '--disable-sync',
  '--metrics-recording-only',
  '--mute-audio',
  '--password-store=basic',
  '--use-mock-keychain',
]

/** Names that are tried for `chromium`, in this order. */
const PROGRAMS = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable']

export type ChromiumOptions = {
  /** The program, by name or path; `chromium` also finds Chrome. */
  readonly program: string
  readonly args?: readonly string[]
}

/** Resolves when the process runs; that it answers shows later. */
export async function startChromium(
  { program, args = [] }: ChromiumOptions,
  events: ConnectionEvents,
  limits: BrowserLimits,
): Promise<BrowserConnection> {
  const profile = await mkdtemp(join(tmpdir(), 'holdfast-browser-'))
  const flags = [...FLAGS, ...sandboxFlags(), `--user-data-dir=${profile}`, ...args]
  try {
    const child = await spawned(program, flags)
    return new ChromiumProcess({ child, profile }, events, limits)
  } catch (error) {
    // Why it did not start counts, not that its folder stays.
    await rm(profile, { recursive: true, force: true }).catch(() => undefined)
    throw error
  }
}

/** Chromium has no sandbox for root, and then does not start at all. */
function sandboxFlags(): readonly string[] {
  return process.getuid?.() === 0 ? ['--no-sandbox'] : []
}

async function spawned(program: string, flags: readonly string[]): Promise<ChildProcess> {
  const names = program === 'chromium' ? PROGRAMS : [program]
  let problem: NodeJS.ErrnoException | null = null
  for (const name of names) {
    const child = startProcess(name, flags, {
      // A group of its own: the browser's many processes end together.
      detached: process.platform !== 'win32',
      stdio: ['ignore', 'ignore', 'pipe', 'pipe', 'pipe'],
    })
    problem = await new Promise<NodeJS.ErrnoException | null>((resolve) => {
      child.once('spawn', () => resolve(null))
      child.on('error', resolve)
    })
    if (problem === null) return child
  }
  // Clients are told: no path of this machine.
  const why = problem?.code === 'EMFILE' ? 'no file descriptors are left' : problem?.code
  throw new HoldfastError('browser_gone', `${basename(program)} cannot be started: ${why}`)
}

class ChromiumProcess implements BrowserConnection {
  readonly #child: ChildProcess
  readonly #pipe: PipeConnection
  readonly #gone: Promise<void>
  readonly #cleared: Promise<void>
  #lastWords = ''

  constructor(
    { child, profile }: { readonly child: ChildProcess; readonly profile: string },
    events: ConnectionEvents,
    limits: BrowserLimits,
  ) {
    this.#child = child
    const [writable, readable] = child.stdio.slice(3) as [Writable, Readable]
    this.#pipe = new PipeConnection(
      { writable, readable },
      {
        message: events.message,
        tooLarge: events.tooLarge,
        closed: (reason) => {
          this.#kill()
          events.closed(reason)
        },
      },
      limits,
    )
    // That it can no longer be read: the end of the browser is what is told.
    child.stderr?.on('error', () => undefined)
    child.stderr?.on('data', (text: Buffer) => {
      this.#lastWords = (this.#lastWords + text.toString()).slice(-limits.lastWordsChars)
    })
    this.#gone = new Promise((resolve) => {
      child.once('exit', (code, signal) => {
        this.#pipe.fail(`the browser ended (${signal ?? code})${this.#complaint()}`)
        this.#kill()
        resolve()
      })
    })
    this.#cleared = this.#clear(profile)
    this.#watchMemory(limits)
  }

  /** One page can take all that the machine has: then the browser goes, and says why. */
  #watchMemory({ memoryBytesMax, memoryMs }: BrowserLimits): void {
    const timer = setInterval(() => void this.#weigh(memoryBytesMax), memoryMs)
    timer.unref()
    void this.#gone.then(() => clearInterval(timer))
  }

  async #weigh(memoryBytesMax: number): Promise<void> {
    const bytes = await groupMemory(this.#child.pid ?? -1)
    if (bytes === null || bytes <= memoryBytesMax) return
    this.#pipe.fail(`the browser took more than ${Math.round(memoryBytesMax / 1e6)} MB of memory`)
  }

  get pid(): number | undefined {
    return this.#child.pid
  }

  send(...parts: readonly (string | Uint8Array)[]): void {
    this.#pipe.send(...parts)
  }

  close(): Promise<void> {
    this.#pipe.close()
    return this.#cleared
  }

  /** Its many processes may still write there for a moment. */
  async #clear(profile: string): Promise<void> {
    await this.#gone
    const patience = { recursive: true, force: true, maxRetries: 10, retryDelay: 50 }
    await rm(profile, patience).catch(() => undefined)
  }

  /** The last line that says that something went wrong. */
  #complaint(): string {
    const line = this.#lastWords.split('\n').findLast((text) => /FATAL|ERROR/.test(text))
    return line === undefined ? '' : `: ${line.trim().slice(0, 200)}`
  }

  #kill(): void {
    const { pid } = this.#child
    if (pid === undefined) return
    try {
      if (process.platform === 'win32') this.#child.kill('SIGKILL')
      else process.kill(-pid, 'SIGKILL')
    } catch {
      // All of them are gone already.
    }
  }
}
