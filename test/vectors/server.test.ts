/**
 * The same conversations with the real server at the other end; README.md says what is compared. What
 * the network, a restart or an earlier visitor has to do in one of them is arranged here.
 */
import { readFileSync, readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import type { Holdfast } from 'holdfast'
import { until } from '../support/gate.ts'
import { serve, type TestServer } from '../support/server.ts'

type Frame = Record<string, any>
type Step = Readonly<Record<string, any>>
type Vector = { readonly title: string; readonly session: Frame; readonly steps: readonly Step[] }

const LEFT_OUT: Readonly<Record<string, string>> = {
  'batch.json': 'what comes together is up to the server',
  'draining.json': 'needs a server that comes back',
  'missed-parts.json': 'needs a client that stays away for as long as the turn runs',
  'ping-pong.json': 'needs a server that falls silent',
}
const FOLDER = fileURLToPath(new URL('./', import.meta.url))
const NAMES = readdirSync(FOLDER).filter((name) => name.endsWith('.json'))

describe('the server', () => {
  let server: TestServer

  beforeEach(async () => {
    server = await serve()
  })
  afterEach(() => server.close())

  it.each(NAMES.filter((name) => LEFT_OUT[name] === undefined))(
    'says what %s says',
    async (name) => {
      await new Run(read(name), server.holdfast, server.url).run(name)
    },
  )

  it('is caught if it says something else', async () => {
    const vector = read('fresh-attach-and-turn.json')
    const steps = JSON.parse(JSON.stringify(vector.steps).replace('"two "', '"2 "')) as Step[]
    await expect(
      new Run({ ...vector, steps }, server.holdfast, server.url).run(''),
    ).rejects.toThrow()
  })
})

function read(name: string): Vector {
  return JSON.parse(readFileSync(FOLDER + name, 'utf8')) as Vector
}

/** One socket, and what came on it: events and deltas in their order, the rest by itself. */
class Line {
  readonly socket: WebSocket
  readonly told: Frame[] = []
  readonly rest: Frame[] = []
  closed: number | null = null

  constructor(url: string) {
    this.socket = new WebSocket(`${url.replace('http', 'ws')}/v1/connect`)
    this.socket.on('message', (data) => {
      for (const frame of [JSON.parse((data as Buffer).toString())].flat() as Frame[])
        this.#receive(frame)
    })
    this.socket.on('close', (code) => {
      this.closed = code
    })
    this.socket.on('error', () => undefined)
  }

  #receive(frame: Frame): void {
    const isTold = 'seq' in frame || frame['type'] === 'delta'
    if (frame['type'] === 'ping') this.socket.send('{"type":"pong"}')
    else (isTold ? this.told : this.rest).push(frame)
  }

  async send(frame: Frame): Promise<void> {
    await until(() => this.socket.readyState !== WebSocket.CONNECTING)
    this.socket.send(JSON.stringify(frame))
  }

  /** The next event or delta, or the next of another type (a reply by its id). */
  async next({ type, id, ...expected }: Frame): Promise<Frame | undefined> {
    const queue = 'seq' in expected || type === 'delta' ? this.told : this.rest
    const fits = (frame: Frame): boolean =>
      queue === this.told || (frame['type'] === type && frame['id'] === id)
    await until(() => queue.some(fits) || this.closed !== null)
    return queue.splice(queue.findIndex(fits), 1)[0]
  }
}

class Run {
  readonly #vector: Vector
  readonly #holdfast: Holdfast
  readonly #url: string
  readonly #values = new Map<string, string>()
  /** From the numbers of the file to those of this run. */
  readonly #seqs = new Map<number, number>([[0, 0]])
  #client: Line | null = null
  #other: Line | null = null

  constructor(vector: Vector, holdfast: Holdfast, url: string) {
    this.#vector = vector
    this.#holdfast = holdfast
    this.#url = url
  }

  async run(name: string): Promise<void> {
    if (this.#vector.session['id'] === '$session') {
      this.#values.set('$session', (await this.#holdfast.resolve({ key: 'earlier' })).id)
    }
    try {
      for (const step of this.#vector.steps) await this.#step(step, name)
    } finally {
      this.#client?.socket.terminate()
      this.#other?.socket.terminate()
    }
  }

  async #step(step: Step, name: string): Promise<void> {
    if (step['see'] !== undefined || step['do'] !== undefined || step['wait'] !== undefined) return
    if (step['open'] === true) return void (this.#client = new Line(this.#url))
    if (step['lost'] === true) return this.#lose(name)
    if (step['from'] === 'other') return this.#send(this.#theOther(), step['frame'])
    const line = step['to'] === 'other' ? this.#theOther() : (this.#client as Line)
    if (step['from'] === 'client') {
      if (step['close'] !== undefined) return line.socket.close(step['close'])
      return this.#send(line, step['frame'])
    }
    if (step['close'] !== undefined) {
      await until(() => line.closed !== null)
      return expect(line.closed).toBe(step['close'])
    }
    for (const frame of step['frames'] ?? [step['frame']]) await this.#expect(line, frame)
  }

  #theOther(): Line {
    this.#other ??= new Line(this.#url)
    return this.#other
  }

  async #send(line: Line, frame: Frame): Promise<void> {
    const { after } = frame
    const position = after && { ...after, seq: this.#seqs.get(after.seq) ?? after.seq }
    await line.send(this.#fill({ ...frame, ...(position && { after: position }) }))
    // What is said on another socket must not overtake it.
    if (frame['type'] === 'ready') await until(async () => (await this.#tokens()) <= 1)
  }

  /** The connection breaks, and the server has noticed. */
  async #lose(name: string): Promise<void> {
    const asked = (await this.#state()).asks[0]?.id
    if (name === 'answer-reply-lost.json') {
      await until(async () => (await this.#state()).asks[0]?.id !== asked)
    }
    this.#client?.socket.terminate()
    const own = this.#values.get('$attachment')
    await until(async () => {
      return !(await this.#attachments()).some(({ id, state }) => id === own && state === 'live')
    })
    if (name === 'session-closed.json') await this.#session().close()
  }

  #session() {
    return this.#holdfast.session(this.#values.get('$session') ?? '')
  }

  #state() {
    return this.#session().state()
  }

  async #attachments() {
    return (await this.#state()).attachments
  }

  async #tokens(): Promise<number> {
    return Math.max(0, ...(await this.#attachments()).map(({ tokens }) => tokens.length))
  }

  async #expect(line: Line, expected: Frame): Promise<void> {
    const frame = await line.next(this.#fill(expected))
    const { seq } = expected
    if (seq !== undefined) {
      expect(frame?.['seq']).toBeGreaterThan(Math.max(...this.#seqs.values()))
      this.#seqs.set(seq, frame?.['seq'])
    }
    this.#learn(expected, frame)
    expect(frame).toMatchObject(this.#comparable(this.#fill(expected)))
  }

  /** Numbers of events, and sentences for people, are not the protocol. */
  #comparable(frame: Frame): Frame {
    const { seq: _seq, reason, error, session, after, ...rest } = frame
    const position = after && { ...after, seq: this.#seqs.get(after.seq) }
    const { seq: _own, ...view } = session ?? {}
    const isRefusal = frame['type'] === 'refuse' || frame['type'] === 'ending'
    return {
      ...rest,
      ...(reason === undefined || isRefusal ? {} : { reason }),
      ...(error === undefined ? {} : { error: { code: error.code, retry: error.retry } }),
      ...(session === undefined ? {} : { session: view }),
      ...(position === undefined ? {} : { after: position }),
    }
  }

  /** The server decides what its own `$` names are. */
  #learn(expected: unknown, actual: unknown): void {
    if (typeof expected === 'string' && /^\$\w+$/.test(expected) && typeof actual === 'string') {
      if (!this.#values.has(expected)) this.#values.set(expected, actual)
    } else if (typeof expected === 'object' && expected !== null) {
      for (const [name, value] of Object.entries(expected)) {
        this.#learn(value, (actual as Frame | undefined)?.[name])
      }
    }
  }

  #fill<Value>(value: Value): Value {
    const text = JSON.stringify(value).replaceAll(/\$\w+/g, (name) => {
      return this.#values.get(name) ?? name.slice(1)
    })
    return JSON.parse(text) as Value
  }
}
