/** A process of its own for one part of a measurement, and how to talk to it. */
import { fork, type ChildProcess, type StdioOptions } from 'node:child_process'
import { once } from 'node:events'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Usage } from './measure.ts'

const HERE = fileURLToPath(new URL('.', import.meta.url))

export type ChildOptions = {
  /** Node's own. */
  readonly flags?: readonly string[]
  /** Another Node. */
  readonly execPath?: string
  /** Another checkout, with its build. */
  readonly root?: string
}

export class Child {
  readonly #process: ChildProcess

  constructor(script: string, args: readonly string[], options: ChildOptions = {}) {
    const folder = options.root === undefined ? HERE : join(options.root, '.build', 'bench')
    const stdio: StdioOptions = ['ignore', 'inherit', 'inherit', 'ipc']
    const { flags = [], execPath = process.execPath } = options
    this.#process = fork(join(folder, `${script}.js`), args, {
      stdio,
      execPath,
      execArgv: [...flags],
    })
    // Every question waits for the end of the process too.
    this.#process.setMaxListeners(0)
  }

  get pid(): number {
    return this.#process.pid ?? 0
  }

  async next<Message>(): Promise<Message> {
    const gone = once(this.#process, 'exit').then(([code]) => {
      throw new Error(`a bench process ended with ${String(code)}`)
    })
    const [message] = await Promise.race([once(this.#process, 'message'), gone])
    return message as Message
  }

  async ask<Message>(question: string | number | object): Promise<Message> {
    const answer = this.next<Message>()
    this.#process.send(question)
    return answer
  }

  send(message: string): void {
    this.#process.send(message)
  }

  async stop(): Promise<void> {
    // It may have ended by itself: a load has nothing more to do.
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return
    const gone = once(this.#process, 'exit')
    this.#process.kill('SIGKILL')
    await gone
  }

  /** Lets it end by itself, so that Node writes what it was asked to. */
  async end(): Promise<void> {
    const gone = once(this.#process, 'exit')
    this.#process.disconnect()
    await gone
  }
}

/** In the child: ends when the parent lets it end, or has ended itself. */
export function endWithParent(): void {
  process.once('disconnect', () => process.exit())
}

/** In the child: ends with its parent, and answers every message with what it used since the last one. */
export function reportUsage(): void {
  const lag = monitorEventLoopDelay({ resolution: 1 })
  lag.enable()
  endWithParent()
  let cpu = process.cpuUsage()
  process.on('message', () => {
    const { user, system } = process.cpuUsage(cpu)
    const usage: Usage = {
      cpuMicros: user + system,
      lagP99: lag.percentile(99) / 1e6,
      rss: process.memoryUsage().rss,
    }
    cpu = process.cpuUsage()
    lag.reset()
    process.send?.(usage)
  })
}
