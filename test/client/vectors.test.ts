/**
 * Every conversation of test/vectors with the client at one end and a fake server at the other. The
 * format is told in test/vectors/README.md.
 */
import { readFileSync, readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import type { ClientSession, ClientTurn } from '../../src/client/index.ts'
import { Bench, outcome, settled, type FakeSocket, type Frame } from './fakes.ts'

type Step = Readonly<Record<string, any>>
type Vector = { readonly title: string; readonly session: any; readonly steps: readonly Step[] }

const FOLDER = fileURLToPath(new URL('../vectors/', import.meta.url))
const NAMES = readdirSync(FOLDER).filter((name) => name.endsWith('.json'))

describe('the conversations', () => {
  it('are there', () => {
    expect(NAMES.length).toBeGreaterThan(15)
  })

  it.each(NAMES)('%s', async (name) => {
    await new Run(read(name)).run()
  })

  it.each([
    ['a frame that the client does not send', { from: 'client', frame: { type: 'pong' } }],
    ['a state that it is not in', { see: { state: 'connecting' } }],
    ['a socket that it does not open', { from: 'client', open: true }],
  ])('are failed by %s', async (_what, step) => {
    const vector = read('bye.json')
    const broken = { ...vector, steps: [...vector.steps.slice(0, 4), step] }
    await expect(new Run(broken).run()).rejects.toThrow()
  })

  it('are failed by a frame that the client sends and should not', async () => {
    const vector = read('bye.json')
    const steps = vector.steps.filter(({ frame }) => frame?.type !== 'ready')
    await expect(new Run({ ...vector, steps }).run()).rejects.toThrow()
  })
})

function read(name: string): Vector {
  return JSON.parse(readFileSync(FOLDER + name, 'utf8')) as Vector
}

class Run {
  readonly #vector: Vector
  readonly #bench = new Bench()
  /** Values of the `$` names. */
  readonly #values = new Map<string, string>()
  readonly #calls = new Map<string, unknown>()
  #session: ClientSession | null = null
  #socket: FakeSocket | null = null
  /** How many of the socket's frames were compared. */
  #compared = 0

  constructor(vector: Vector) {
    this.#vector = vector
  }

  async run(): Promise<void> {
    this.#bench.random = 0.5
    for (const step of this.#vector.steps) {
      await this.#step(step)
      await settled()
    }
    expect(this.#socket?.sent.slice(this.#compared)).toEqual([])
    this.#session?.dispose()
    expect(this.#bench.clock.due).toEqual([])
  }

  async #step(step: Step): Promise<void> {
    if (step['from'] === 'other' || step['to'] === 'other' || step['undelivered'] === true) return
    if (step['open'] === true) return this.#open()
    if (step['lost'] === true) return this.#socket?.drop(1006)
    if (step['wait'] !== undefined) return this.#bench.clock.advance(step['wait'])
    if (step['do'] !== undefined) return this.#call(step)
    if (step['see'] !== undefined) return this.#see(this.#fill(step['see']))
    if (step['from'] === 'server') return this.#play(step)
    if (step['close'] !== undefined) return expect(this.#socket?.closedBy).toBe(step['close'])
    this.#compare(step['frame'])
  }

  #open(): void {
    expect(this.#socket?.sent.slice(this.#compared) ?? []).toEqual([])
    const { client, sockets } = this.#bench
    const opened = sockets.indexOf(this.#socket as FakeSocket) + 1
    if (this.#session === null) this.#session = client.session(this.#fill(this.#vector.session))
    else if (sockets.length === opened) this.#bench.next()
    expect(sockets).toHaveLength(opened + 1)
    this.#socket = this.#bench.socket
    this.#compared = 0
    this.#socket.open()
  }

  #play(step: Step): void {
    if (step['close'] !== undefined) return this.#socket?.drop(step['close'])
    const frames = (step['frames'] ?? [step['frame']]) as Frame[]
    this.#socket?.say(...frames.map((frame) => this.#fill(frame)))
  }

  #compare(expected: Frame): void {
    const sent = this.#socket?.sent[this.#compared]
    this.#compared += 1
    this.#learn(expected, sent)
    expect(sent).toEqual(this.#fill(expected))
  }

  #call({ do: name, args, as }: Step): void {
    const session = this.#session as any
    const result = session[name](...this.#fill(args)) as unknown
    if (as === undefined) return
    this.#calls.set(as, result)
    // What fails is compared later.
    void outcome(result as PromiseLike<unknown>)
  }

  async #see({ state, code, hint, asks, seen, turn, call }: Step): Promise<void> {
    const session = this.#session as ClientSession
    const ended = session.state.name === 'ended' ? session.state : null
    if (state !== undefined) expect(session.state.name).toBe(state)
    if (code !== undefined) expect(ended?.code).toBe(code)
    if (hint !== undefined) expect(ended?.hint).toBe(hint)
    if (asks !== undefined) expect(session.asks.map(({ id }) => id)).toEqual(asks)
    if (seen !== undefined) expect(session.seen).toEqual(seen)
    if (turn !== undefined) await this.#seeTurn(turn)
    if (call === undefined) return
    const result = await outcome(this.#calls.get(call.of) as PromiseLike<unknown>)
    expect(result.error?.code).toBe(call.code)
  }

  async #seeTurn({ of, code, state, reply, reason, parts }: Step): Promise<void> {
    const turn = this.#calls.get(of) as ClientTurn
    const { value, error } = await outcome(turn)
    expect(error?.code).toBe(code)
    if (state !== undefined) expect(value.state).toBe(state)
    if (reply !== undefined) expect(value.reply.text).toBe(reply)
    if (reason !== undefined) expect(value.reason).toBe(reason)
    if (parts === undefined) return
    const heard: string[] = []
    for await (const part of turn) heard.push(part)
    expect(heard).toEqual(parts)
  }

  /** The client decides what its own `$` names are. */
  #learn(expected: unknown, sent: unknown): void {
    if (typeof expected === 'string' && /^\$\w+$/.test(expected) && typeof sent === 'string') {
      if (!this.#values.has(expected)) this.#values.set(expected, sent)
    } else if (typeof expected === 'object' && expected !== null) {
      for (const [name, value] of Object.entries(expected)) {
        this.#learn(value, (sent as Record<string, unknown> | undefined)?.[name])
      }
    }
  }

  #fill(value: any): any {
    const text = JSON.stringify(value).replaceAll(/\$\w+/g, (name) => {
      return this.#values.get(name) ?? `the-${name.slice(1)}`
    })
    return JSON.parse(text)
  }
}
