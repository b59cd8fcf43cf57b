/**
 * A warm turn of Claude Code through Holdfast, over HTTP, against the same program driven directly
 * over its control protocol: the time to the first word, and to the end. Turns of both alternate;
 * the model is a stub on loopback.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { offline, programOf } from '../test/support/real-agents.ts'
import { StubModel } from '../test/support/stub-model.ts'
import { Child } from './child.ts'
import { median } from './measure.ts'
import type { Results } from './results.ts'

/** When a turn said its first word, and when it was over, in milliseconds after its start. */
type Times = { readonly first: number; readonly end: number }

type Options = {
  readonly folder: string
  readonly rounds: number
  readonly results: Results
}

const TURNS_PER_ROUND = 30
const WARM_UP = 5
/**
 * How long the model takes to its first word: nothing, which shows what Holdfast adds, and as long
 * as a fast real one, which shows what a user notices.
 */
const THINK_MS = [0, 200]

export async function benchClaude({ folder, rounds, results }: Options): Promise<void> {
  const model = await StubModel.start()
  model.answer = () => 'one two three four five'
  const bare = await BareClaude.start(join(folder, 'bare'), model.url)
  const held = await HeldClaude.start(join(folder, 'held'), model.url)
  try {
    for (const thinkMs of THINK_MS) {
      model.thinkMs = thinkMs
      console.log(`\nA warm turn of Claude Code whose model takes ${thinkMs} ms, against it alone:`)
      const times = await alternate(bare, held, rounds * TURNS_PER_ROUND)
      for (const moment of ['first', 'end'] as const) {
        const [alone, ours] = times.map((all) => median(all.map((one) => one[moment])))
        const ratio = (ours ?? 0) / (alone ?? 1)
        const figures = `alone ${alone?.toFixed(1)} ms, holdfast ${ours?.toFixed(1)} ms`
        console.log(`  ${moment.padEnd(5)}  ${figures}      ratio ${ratio.toFixed(2)}`)
        if (thinkMs === 0) continue
        results.judge(`warm turn of Claude Code, ${moment}, of it alone`, ratio, { most: 1.15 })
      }
    }
  } finally {
    await Promise.all([bare.stop(), held.stop()])
    await model.close()
  }
}

async function alternate(bare: BareClaude, held: HeldClaude, turns: number): Promise<Times[][]> {
  const [alone, ours]: [Times[], Times[]] = [[], []]
  for (let turn = -WARM_UP; turn < turns; turn += 1) {
    const times = [await bare.turn(`turn ${turn}`), await held.turn(`turn ${turn}`)] as const
    if (turn < 0) continue
    alone.push(times[0])
    ours.push(times[1])
  }
  return [alone, ours]
}

/** Claude Code, driven directly. */
class BareClaude {
  readonly #process: ReturnType<typeof spawn>
  #line: (line: string) => void = () => undefined

  private constructor(child: ReturnType<typeof spawn>) {
    this.#process = child
    if (child.stdout !== null) {
      createInterface({ input: child.stdout }).on('line', (line) => this.#line(line))
    }
  }

  static async start(folder: string, model: string): Promise<BareClaude> {
    await mkdir(folder, { recursive: true })
    const env = { PATH: process.env['PATH'], ...(await offline('claude', `${folder}/home`, model)) }
    const args = [
      ...['-p', '--verbose', '--include-partial-messages', '--permission-prompt-tool', 'stdio'],
      ...['--input-format', 'stream-json', '--output-format', 'stream-json'],
    ]
    const stdio = ['pipe', 'pipe', 'inherit'] as const
    return new BareClaude(spawn(programOf('claude'), args, { cwd: folder, env, stdio: [...stdio] }))
  }

  turn(content: string): Promise<Times> {
    const begin = performance.now()
    let first = 0
    return new Promise((resolve) => {
      this.#line = (line) => {
        if (first === 0 && line.includes('"text_delta"')) first = performance.now() - begin
        if (line.startsWith('{"type":"result"')) {
          resolve({ first, end: performance.now() - begin })
        }
      }
      const message = { type: 'user', message: { role: 'user', content } }
      this.#process.stdin?.write(`${JSON.stringify(message)}\n`)
    })
  }

  async stop(): Promise<void> {
    this.#process.stdin?.end()
    await once(this.#process, 'exit')
  }
}

/** Claude Code behind Holdfast. */
class HeldClaude {
  readonly #server: Child
  readonly #url: string

  private constructor(server: Child, url: string) {
    this.#server = server
    this.#url = url
  }

  static async start(folder: string, model: string): Promise<HeldClaude> {
    await mkdir(folder, { recursive: true })
    const env = await offline('claude', `${folder}/home`, model)
    const server = new Child('holdfast-claude', [folder, programOf('claude'), JSON.stringify(env)])
    return new HeldClaude(server, `http://127.0.0.1:${await server.next<number>()}`)
  }

  async turn(input: string): Promise<Times> {
    const begin = performance.now()
    let first = 0
    const response = await fetch(`${this.#url}/v1/keys/bench/turns`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
      body: JSON.stringify({ input, agent: 'claude' }),
    })
    let text = ''
    for await (const chunk of response.body ?? []) {
      text += Buffer.from(chunk as Uint8Array).toString()
      if (first === 0 && /"type":"delta"|event: delta/.test(text)) first = performance.now() - begin
      if (text.includes('"type":"turn.done"')) return { first, end: performance.now() - begin }
    }
    throw new Error(`the turn did not end: ${text.slice(-500)}`)
  }

  async stop(): Promise<void> {
    const stopped = this.#server.next().catch(() => undefined)
    this.#server.send('stop')
    await stopped
  }
}
