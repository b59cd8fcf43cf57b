/**
 * The prompts of a client in one session that have no answer yet. Each is recorded as a turn when
 * it is accepted, and answered when the client has been told all of that turn.
 */
import {
  asHoldfastError,
  type GivenInput,
  type SessionEvent,
  type SessionHandle,
  type TurnClient,
  type TurnOptions,
} from '../../core/index.ts'
import { turnSeq } from '../../core/turns.ts'
import type { ClientEnd } from './client-end.ts'
import { promptInput } from './content.ts'
import { promptAnswer, TurnEndings, type TurnEnding } from './endings.ts'
import type { RpcId } from '../json-rpc.ts'
import type { ParamsOf } from './schemas.ts'

type OpenPrompt = {
  readonly id: RpcId
  /** Null until it is accepted. */
  turn: string | null
  isCancelled: boolean
  readonly settle: (ending: TurnEnding) => void
  readonly fail: (error: unknown) => void
}

type PromptsOptions = {
  readonly client: Pick<ClientEnd, 'clientId' | 'newName' | 'report' | 'turnClients'>
  readonly session: SessionHandle
  /** What the client answers of the requests of the agent, while its own turn runs. */
  readonly requests: TurnClient
  /** Of this client's prompts. */
  readonly ownTurns: Set<string>
  /** Up to which event the client has been told. */
  readonly told: () => number
}

/** Events that are read from the log at once. */
export const PAGE_EVENTS = 256

/** How the keys of a client's prompts begin: it knows its own by that when it comes back. */
export function promptKeys({ clientId }: Pick<ClientEnd, 'clientId'>): string {
  return `acp/${clientId}/`
}

export class OpenPrompts {
  readonly #options: PromptsOptions
  readonly #open = new Set<OpenPrompt>()
  readonly #endings = new TurnEndings()

  constructor(options: PromptsOptions) {
    this.#options = options
  }

  get size(): number {
    return this.#open.size
  }

  /** Accepts a prompt, and answers it when its turn is over and all of it was told. */
  async take(id: RpcId, { prompt, _meta }: ParamsOf<'session/prompt'>): Promise<object> {
    const { client, session, requests } = this.#options
    const { prompt: name = client.newName(), ...options } = _meta?.holdfast ?? {}
    const input = promptInput(prompt)
    const { promise, resolve: settle, reject: fail } = deferred<TurnEnding>()
    const open: OpenPrompt = { id, turn: null, isCancelled: false, settle, fail }
    this.#open.add(open)
    // It may fail before anything waits for it.
    promise.catch(() => undefined)
    const idempotencyKey = promptKeys(client) + name
    const { id: at, by } = session
    const leave = client.turnClients.add({ session: at, key: idempotencyKey, by }, requests)
    try {
      const known = await this.#submit(open, input, { ...options, idempotencyKey })
      return promptAnswer(known ?? (await promise))
    } finally {
      leave()
      this.#open.delete(open)
    }
  }

  /** The end of its turn, if the client has been told of it before. */
  async #submit(
    open: OpenPrompt,
    input: GivenInput,
    options: TurnOptions,
  ): Promise<TurnEnding | null> {
    const { session, ownTurns, told } = this.#options
    const { id: turn, endedAt } = await session.submit(input, options)
    ownTurns.add(turn)
    open.turn = turn
    if (open.isCancelled) this.#cancelTurn(turn)
    const known = this.#endings.of(turn)
    if (known !== null || endedAt === null) return known
    const ending = await this.#find(turn)
    return ending !== null && ending.event.seq <= told() ? ending : null
  }

  /** The end of a turn that was over when its prompt came again. */
  async #find(turn: string): Promise<TurnEnding | null> {
    const endings = new TurnEndings()
    for (let after = (turnSeq(turn) ?? 1) - 1; ;) {
      const { events, position } = await this.#options.session.read(after, PAGE_EVENTS)
      for (const { body } of events) endings.take(JSON.parse(body) as SessionEvent)
      const ending = endings.of(turn)
      if (ending !== null || position === after) return ending
      after = position
    }
  }

  /** The client was told of an event. True if it is the end of a turn. */
  told(event: SessionEvent): boolean {
    const ending = this.#endings.take(event)
    if (ending === null) return false
    for (const prompt of this.#open) {
      if (prompt.turn === ending.event.turn) prompt.settle(ending)
    }
    return true
  }

  cancelAll(): void {
    for (const prompt of this.#open) this.#cancel(prompt)
  }

  /** True if this request is one of them. */
  cancelRequest(id: RpcId): boolean {
    const prompt = [...this.#open].find((open) => open.id === id)
    if (prompt !== undefined) this.#cancel(prompt)
    return prompt !== undefined
  }

  #cancel(prompt: OpenPrompt): void {
    prompt.isCancelled = true
    if (prompt.turn !== null) this.#cancelTurn(prompt.turn)
  }

  #cancelTurn(turn: string): void {
    const { session, client } = this.#options
    const cancelled = session.cancelTurn(turn)
    cancelled.catch((thrown: unknown) => client.report(asHoldfastError(thrown)))
  }

  fail(error: unknown): void {
    for (const prompt of this.#open) prompt.fail(error)
  }
}

function deferred<Value>() {
  let resolve: (value: Value) => void = () => undefined
  let reject: (error: unknown) => void = () => undefined
  const promise = new Promise<Value>((onResolve, onReject) => {
    resolve = onResolve
    reject = onReject
  })
  return { promise, resolve, reject }
}
