/**
 * What tests leave behind: sockets, servers, timers and children of this process, any process that
 * descends from it, and files in its folder for temporary ones.
 */
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { isAlive } from './processes.ts'

/** As Node names them, if they would keep this process alive. */
const RESOURCES = ['PipeWrap', 'ProcessWrap', 'TCPServerWrap', 'TCPSocketWrap', 'Timeout'] as const

/** What Playwright and its browsers leave behind if they are killed. */
const OF_PLAYWRIGHT = /^(playwright[-_]|\.org\.chromium\.)/

type Counts = Readonly<Record<string, number>>

export class LeakCheck {
  readonly #folder: string
  readonly #usualFolder = process.env['TMPDIR']
  readonly #before: Counts

  /** From now on temporary files go to a folder of their own, also those of child processes. */
  constructor() {
    this.#folder = mkdtempSync(join(tmpdir(), 'holdfast-test-'))
    // As open as the usual one: PostgreSQL does not run as root.
    chmodSync(this.#folder, 0o1777)
    process.env['TMPDIR'] = this.#folder
    this.#before = resources()
  }

  /** What is left, after at most `patienceMs` in which it may go away by itself. */
  async end(patienceMs: number): Promise<string[]> {
    const until = performance.now() + patienceMs
    let found = this.#leaks()
    while (found.length > 0 && performance.now() < until) {
      await setTimeout(20, undefined, { ref: false })
      found = this.#leaks()
    }
    if (this.#usualFolder === undefined) delete process.env['TMPDIR']
    else process.env['TMPDIR'] = this.#usualFolder
    rmSync(this.#folder, { recursive: true, force: true })
    return found
  }

  #leaks(): string[] {
    const now = resources()
    const more = RESOURCES.map((name) => [name, now[name]! - this.#before[name]!] as const)
    return [
      ...more.filter(([, count]) => count > 0).map(([name, count]) => `${count} × ${name}`),
      ...processesWith(`TMPDIR=${this.#folder}`).map((command) => `process: ${command}`),
      ...readdirSync(this.#folder)
        .filter((name) => !OF_PLAYWRIGHT.test(name))
        .map((name) => `temporary file: ${name}`),
    ]
  }
}

function resources(): Counts {
  const active = process.getActiveResourcesInfo()
  const count = (name: string): number => active.filter((one) => one === name).length
  return Object.fromEntries(RESOURCES.map((name) => [name, count(name)]))
}

/** The command lines of other processes that have a variable which begins so. */
function processesWith(start: string): string[] {
  if (process.platform !== 'linux') return []
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && pid !== process.pid)
    .filter((pid) => partsOf(pid, 'environ').some((one) => one.startsWith(start)) && isAlive(pid))
    .map((pid) => partsOf(pid, 'cmdline').join(' ').trim())
}

function partsOf(pid: number, file: 'environ' | 'cmdline'): readonly string[] {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8').split('\0')
  } catch {
    // It has ended meanwhile, or is not ours to look at.
    return []
  }
}
