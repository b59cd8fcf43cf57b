/** A server of some build, in a process of its own, that tells which of its files were used. */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { realpathSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { GUARDED, guarded } from '../support/guarded.ts'
import { listeningUrl } from '../support/listening.ts'

/** How long what an operation leaves behind may take: a reply is sent before its end is noted. */
const SETTLE_MS = 150

export class MeasuredServer {
  readonly url: string
  readonly #dist: string
  readonly #process: ChildProcess
  readonly #exited: Promise<unknown>

  private constructor(url: string, dist: string, process: ChildProcess) {
    this.url = url
    this.#dist = dist
    this.#process = process
    this.#exited = once(process, 'exit')
  }

  /** `root` has the build in `dist`. */
  static async start(root: string, flags: readonly string[]): Promise<MeasuredServer> {
    const dist = realpathSync(join(root, 'dist'))
    const coverage = new URL('coverage.js', import.meta.url).href
    const program = ['--import', coverage, join(dist, 'cli/main.js'), 'serve']
    const child = guarded(
      spawn(process.execPath, [...program, '--drain-ms', '0', ...flags], {
        cwd: root,
        stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
        ...GUARDED,
      }),
    )
    return new MeasuredServer(await listeningUrl(child as never, []), dist, child)
  }

  /** The files of `dist` of which a function was called since the last time. */
  async taken(): Promise<string[]> {
    await setTimeout(SETTLE_MS)
    const answer = once(this.#process, 'message')
    const ended = this.#exited.then(() => Promise.reject(new Error('the server has ended')))
    this.#process.send('take')
    const [urls] = (await Promise.race([answer, ended])) as [readonly string[]]
    const own = pathToFileURL(join(this.#dist, '/')).href
    return urls.filter((url) => url.startsWith(own)).map((url) => url.slice(own.length))
  }

  async post(path: string, body: unknown, headers: Record<string, string> = {}): Promise<string> {
    const response = await fetch(`${this.url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    })
    const text = await response.text()
    if (!response.ok) throw new Error(`POST ${path}: ${response.status} ${text}`)
    return text
  }

  async stop(): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return
    this.#process.kill('SIGTERM')
    await this.#exited
  }
}
