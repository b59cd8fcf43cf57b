/** A server of some build, in a process of its own, that tells which of its files were used. */
import { once } from 'node:events'
import { realpathSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { ServerProcess } from '../support/server-process.ts'

/** How long what an operation leaves behind may take: a reply is sent before its end is noted. */
const SETTLE_MS = 150

export class MeasuredServer {
  readonly #dist: string
  readonly #process: ServerProcess

  private constructor(dist: string, process: ServerProcess) {
    this.#dist = dist
    this.#process = process
  }

  /** `root` has the build in `dist`. */
  static async start(root: string, flags: readonly string[]): Promise<MeasuredServer> {
    const dist = realpathSync(join(root, 'dist'))
    const coverage = new URL('coverage.js', import.meta.url).href
    const server = await ServerProcess.start({
      nodeFlags: ['--import', coverage],
      program: join(dist, 'cli/main.js'),
      flags: ['serve', '--drain-ms', '0', ...flags],
      cwd: root,
      hasChannel: true,
    })
    return new MeasuredServer(dist, server)
  }

  get url(): string {
    return this.#process.url
  }

  /** The files of `dist` of which a function was called since the last time. */
  async taken(): Promise<string[]> {
    await setTimeout(SETTLE_MS)
    const { child, exited } = this.#process
    const answer = once(child, 'message')
    const ended = exited.then(() => Promise.reject(new Error('the server has ended')))
    child.send('take')
    const [urls] = (await Promise.race([answer, ended])) as [readonly string[]]
    const own = pathToFileURL(join(this.#dist, '/')).href
    return urls.filter((url) => url.startsWith(own)).map((url) => url.slice(own.length))
  }

  async post(path: string, body: unknown, headers: Record<string, string> = {}): Promise<string> {
    const { status, text } = await this.#process.post(path, body, headers)
    if (status >= 300) throw new Error(`POST ${path}: ${status} ${text}`)
    return text
  }

  async stop(): Promise<void> {
    if (this.#process.isRunning) await this.#process.stop()
  }
}
