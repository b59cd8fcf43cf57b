/** Starts Chromium over a pipe, with a profile of its own that is removed when it ends. */
import type { ChildProcess } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { HoldfastError } from '../core/index.ts'
import { groupMemory, startProcess } from '../platform/processes.ts'
import type { BrowserConnection, ConnectionEvents, MessageParts } from './connection.ts'
import { folderBytes } from './disk.ts'
import type { EgressOption } from '../platform/egress.ts'
import { EgressProxy, type EgressOptions } from './egress-proxy.ts'
import type { BrowserLimits } from './limits.ts'

const FLAGS = [
  '--headless',
  // Otherwise the middle mouse button pastes what another client of the browser has selected.
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
  /**
   * What its pages may reach besides public addresses, or `any`. Without it: public addresses only
   * if the server has several principals, otherwise `any`.
   */
  readonly egress?: EgressOption
}

/** The name of the egress proxy, which the browser knows and no name server does. */
const PROXY_NAME = 'egress.invalid'

const DISABLE = '--disable-features='

/** Flags by which nothing leaves the browser except through the proxy. */
function egressFlags({ port }: EgressProxy, args: readonly string[]): readonly string[] {
  // Of several such flags Chromium takes the last.
  const given = args
    .filter((arg) => arg.startsWith(DISABLE))
    .map((arg) => arg.slice(DISABLE.length))
  return [
    // It would look for devices in the local network.
    `${DISABLE}${[...given, 'MediaRouter', 'DialMediaRouteProvider'].join(',')}`,
    `--proxy-server=socks5://${PROXY_NAME}:${port}`,
    // Chromium would connect to loopback without the proxy.
    '--proxy-bypass-list=<-loopback>',
    // A connection without the proxy finds no address: not even one that is written as a number.
    `--host-resolver-rules=MAP ${PROXY_NAME} 127.0.0.1, MAP * ~NOTFOUND`,
    '--force-webrtc-ip-handling-policy=disable_non_proxied_udp',
    '--webrtc-ip-handling-policy=disable_non_proxied_udp',
  ]
}

/** Resolves when the process runs; whether it answers is known later. */
export async function startChromium(
  { program, args = [] }: ChromiumOptions,
  events: ConnectionEvents,
  limits: BrowserLimits,
  egress: EgressOptions | null = null,
): Promise<BrowserConnection> {
  const profile = await mkdtemp(join(tmpdir(), 'holdfast-browser-'))
  let proxy: EgressProxy | null = null
  // Chromium has no sandbox for root, and does not start with one.
  const sandbox = process.getuid?.() === 0 ? ['--no-sandbox'] : []
  try {
    proxy = egress === null ? null : await EgressProxy.open(egress, limits)
    const guards = proxy === null ? [] : egressFlags(proxy, args)
    const flags = [...FLAGS, ...sandbox, `--user-data-dir=${profile}`, ...args, ...guards]
    const child = await spawned(program, flags, profile)
    return connectionTo(child, { profile, proxy }, events, limits)
  } catch (error) {
    await proxy?.close()
    // The reason matters more than a folder that stays.
    await rm(profile, { recursive: true, force: true }).catch(() => undefined)
    throw error
  }
}

async function spawned(
  program: string,
  flags: readonly string[],
  profile: string,
): Promise<ChildProcess> {
  const names = program === 'chromium' ? PROGRAMS : [program]
  let problem: NodeJS.ErrnoException | null = null
  for (const name of names) {
    const child = startProcess(name, flags, {
      // A process group of its own: the browser's processes end together.
      detached: process.platform !== 'win32',
      // It is killed, so it does not remove its temporary files: they go with the profile.
      env: { ...process.env, TMPDIR: profile },
      stdio: ['ignore', 'ignore', 'pipe', 'pipe', 'pipe'],
    })
    problem = await new Promise<NodeJS.ErrnoException | null>((resolve) => {
      child.once('spawn', () => resolve(null))
      child.on('error', resolve)
    })
    if (problem === null) return child
  }
  // Clients see this message: it names no path of this machine.
  const why = problem?.code === 'EMFILE' ? 'no file descriptors are left' : problem?.code
  throw new HoldfastError('browser_gone', `${basename(program)} cannot be started: ${why}`)
}

type ChromiumParts = { readonly profile: string; readonly proxy: EgressProxy | null }

function connectionTo(
  child: ChildProcess,
  { profile, proxy }: ChromiumParts,
  events: ConnectionEvents,
  limits: BrowserLimits,
): BrowserConnection {
  const { pid = -1 } = child
  const { lastWordsChars, messageBytesMax } = limits
  const closed = (reason: string): void => {
    killGroup(child)
    events.closed(reason)
  }
  const pipe = new BrowserPipe(child, { ...events, closed }, messageBytesMax)
  let lastWords = ''
  child.stderr?.on('data', (text: Buffer) => {
    lastWords = (lastWords + text.toString()).slice(-lastWordsChars)
  })
  // A broken stderr says nothing that the end of the process does not.
  child.stderr?.on('error', () => undefined)
  const unwatch = watchUse({ pid, profile }, limits, (reason) => pipe.close(reason))
  const removed = new Promise<void>((resolve) => {
    child.once('exit', (code, signal) => {
      unwatch()
      pipe.close(`the browser ended (${signal ?? code})${complaintIn(lastWords)}`)
      killGroup(child)
      // Its processes may still write there for a moment.
      const patience = { recursive: true, force: true, maxRetries: 10, retryDelay: 50 }
      // What is left of the profile does no harm.
      void rm(profile, patience)
        .catch(() => undefined)
        .then(() => proxy?.close())
        .then(resolve)
    })
  })
  return {
    pid,
    downloads: proxy === null ? undefined : join(profile, 'downloads'),
    send: (...parts) => pipe.send(...parts),
    close: () => {
      pipe.close('closed')
      return removed
    },
  }
}

/** Calls `exceeded` when it takes more memory or disk than it may. Returns what ends the watch. */
function watchUse(
  { pid, profile }: { readonly pid: number; readonly profile: string },
  { memoryBytesMax, memoryMs, diskBytesMax, diskMs }: BrowserLimits,
  exceeded: (reason: string) => void,
): () => void {
  const check = (bytes: number | null, most: number, what: string): void => {
    if (bytes === null || bytes <= most) return
    exceeded(`the browser took more than ${Math.round(most / 1e6)} MB of ${what}`)
  }
  const watches = [
    setInterval(
      () => void groupMemory(pid).then((bytes) => check(bytes, memoryBytesMax, 'memory')),
      memoryMs,
    ),
    setInterval(
      () => void folderBytes(profile).then((bytes) => check(bytes, diskBytesMax, 'disk')),
      diskMs,
    ),
  ]
  for (const watch of watches) watch.unref()
  return () => {
    for (const watch of watches) clearInterval(watch)
  }
}

/** The last line of standard error that reports a problem. */
function complaintIn(text: string): string {
  const line = text.split('\n').findLast((each) => /FATAL|ERROR/.test(each))
  return line === undefined ? '' : `: ${line.trim().slice(0, 200)}`
}

function killGroup(child: ChildProcess): void {
  const { pid } = child
  if (pid === undefined) return
  try {
    if (process.platform === 'win32') child.kill('SIGKILL')
    else process.kill(-pid, 'SIGKILL')
  } catch {
    // All processes have ended already.
  }
}

const END = Buffer.from([0])

/** What is kept of the beginning and the end of a message that is too large. */
const KEPT_BYTES = 1_024

/**
 * The two pipes of `--remote-debugging-pipe`: messages with a zero byte after each. Faster than a
 * socket, and there is no port by which clients could bypass us.
 */
class BrowserPipe {
  readonly #writable: Writable
  readonly #events: ConnectionEvents
  readonly #messageBytesMax: number
  /** The beginning of a message whose end has not been read. */
  #parts: Buffer[] = []
  #partBytes = 0
  /** The beginning of a message that is too large; `#parts` has only its last bytes then. */
  #head: Buffer | null = null
  #isClosed = false

  constructor({ stdio }: ChildProcess, events: ConnectionEvents, messageBytesMax: number) {
    const [writable, readable] = stdio.slice(3) as [Writable, Readable]
    this.#writable = writable
    this.#events = events
    this.#messageBytesMax = messageBytesMax
    readable.on('data', (chunk: Buffer) => this.#read(chunk))
    readable.on('close', () => this.close('the browser has closed its pipe'))
    // An error of a pipe closes it, which is handled.
    for (const stream of [readable, writable]) stream.on('error', () => undefined)
  }

  send(...parts: MessageParts): void {
    if (this.#isClosed) return
    if (parts.every((part) => typeof part === 'string')) {
      return void this.#writable.write(`${parts.join('')}\0`)
    }
    this.#writable.cork()
    for (const part of parts) this.#writable.write(part)
    this.#writable.write(END)
    this.#writable.uncork()
  }

  close(reason: string): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#writable.destroy()
    this.#events.closed(reason)
  }

  #read(chunk: Buffer): void {
    let start = 0
    for (let end = chunk.indexOf(0); end !== -1; end = chunk.indexOf(0, start)) {
      if (this.#isClosed) return
      this.#finish(chunk.subarray(start, end))
      start = end + 1
    }
    if (start < chunk.length) this.#keep(start === 0 ? chunk : chunk.subarray(start))
  }

  #keep(part: Buffer): void {
    this.#parts.push(part)
    this.#partBytes += part.length
    if (this.#head === null && this.#partBytes <= this.#messageBytesMax) return
    this.#head ??= firstOf(this.#parts)
    this.#parts = [lastOf(this.#parts)]
  }

  #finish(last: Buffer): void {
    const [parts, bytes, head] = [this.#parts, this.#partBytes, this.#head]
    if (parts.length === 0) return this.#events.message(last)
    this.#parts = []
    this.#partBytes = 0
    this.#head = null
    if (head !== null) return this.#events.tooLarge(head, lastOf([...parts, last]))
    // Chromium writes the zero byte by itself: often only that was missing.
    const [only] = parts
    const isWhole = last.length === 0 && parts.length === 1 && only !== undefined
    this.#events.message(isWhole ? only : Buffer.concat([...parts, last], bytes + last.length))
  }
}

function firstOf(parts: readonly Buffer[]): Buffer {
  const enough = parts.slice(0, KEPT_BYTES)
  return Buffer.concat(enough.map((part) => part.subarray(0, KEPT_BYTES))).subarray(0, KEPT_BYTES)
}

/** Copied, since a part of a chunk keeps all of the chunk in memory. */
function lastOf(parts: readonly Buffer[]): Buffer {
  const enough = parts.slice(-KEPT_BYTES).map((part) => part.subarray(-KEPT_BYTES))
  return Buffer.from(Buffer.concat(enough).subarray(-KEPT_BYTES))
}
