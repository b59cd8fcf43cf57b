/** The real server as a process that can be killed, and the folder that outlives it. */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { GUARDED, guarded } from '../support/guarded.ts'
import { listeningUrl } from '../support/listening.ts'

/** The repository's root, from `test/crash` as well as from `.build/test/crash`. */
function root(): string {
  const { pathname } = new URL(import.meta.url)
  return fileURLToPath(
    new URL(pathname.includes('/.build/') ? '../../../' : '../../', import.meta.url),
  )
}

export class ServerProcess {
  readonly url: string
  readonly exited: Promise<number | null>
  readonly output: string[]
  readonly #process: ChildProcess

  private constructor(url: string, process: ChildProcess, output: string[]) {
    this.url = url
    this.output = output
    this.#process = process
    this.exited = once(process, 'exit').then(([code]) => code as number | null)
  }

  /** Starts it on a folder or a PostgreSQL, under another program (`strace …`) if asked to. */
  static async start(
    data: string,
    under: readonly string[] = [],
    { flags = [], env = process.env }: { flags?: readonly string[]; env?: NodeJS.ProcessEnv } = {},
  ): Promise<ServerProcess> {
    const place = [data.startsWith('postgres:') ? '--store' : '--data', data]
    const serve = [`${root()}dist/cli/main.js`, 'serve', '--port', '0', ...place]
    const command = [...under, process.execPath, ...serve, ...flags]
    const [program = '', ...args] = command
    const child = guarded(
      spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], env, ...GUARDED }),
    )
    const output: string[] = []
    return new ServerProcess(await listeningUrl(child, output), child, output)
  }

  get pid(): number | undefined {
    return this.#process.pid
  }

  async kill(): Promise<void> {
    this.#process.kill('SIGKILL')
    await this.exited
  }

  async stop(): Promise<number | null> {
    this.#process.kill('SIGTERM')
    return this.exited
  }
}
