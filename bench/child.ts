/** A process of its own for one part of a measurement, and how to talk to it. */
import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { fileURLToPath } from 'node:url'
import type { Usage } from './measure.ts'

export class Child {
  readonly #process: ChildProcess

  constructor(script: string, args: readonly string[]) {
    const file = fileURLToPath(new URL(`./${script}.js`, import.meta.url))
    this.#process = fork(file, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
    // Every question waits for the end of the process too.
    this.#process.setMaxListeners(0)
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
}

/** In the child: answers every message with what it used since the last one. */
export function reportUsage(): void {
  const lag = monitorEventLoopDelay({ resolution: 1 })
  lag.enable()
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
