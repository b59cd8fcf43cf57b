/**
 * Requests of the agent that an ACP client answers itself: its files and its terminals. They go to
 * the connection whose prompt runs; when that is lost, or the turn is over, they fail.
 */
import { HoldfastError, type ClientAnswer, type TurnClient } from '../../core/index.ts'
import { isRecord } from '../../schema/contract.ts'
import { INTERNAL, notificationText, requestText, type RpcResponse } from '../json-rpc.ts'
import { CLIENT_REQUESTS } from './methods.ts'

type Waiting = {
  readonly answer: (answer: ClientAnswer) => void
  readonly fail: (error: HoldfastError) => void
}

type ClientRequestsOptions = {
  readonly session: string
  readonly offers: ReadonlySet<string>
  /** No other request has it, on any connection: a client may remember what it answered. */
  readonly newName: () => string
  readonly send: (text: string) => void
}

export class ClientRequests implements TurnClient {
  readonly offers: ReadonlySet<string>
  readonly #options: ClientRequestsOptions
  /** By the second part of their ids. */
  readonly #waiting = new Map<string, Waiting>()

  constructor(options: ClientRequestsOptions) {
    this.offers = options.offers
    this.#options = options
  }

  request(method: string, params: object, signal: AbortSignal): Promise<ClientAnswer> {
    const { session: sessionId, newName, send } = this.#options
    const name = newName()
    const id = `${sessionId}/${name}`
    return new Promise((resolve, reject) => {
      const settle = (): void => {
        this.#waiting.delete(name)
        signal.removeEventListener('abort', cancel)
      }
      const fail = (error: HoldfastError): void => {
        settle()
        reject(error)
      }
      const cancel = (): void => {
        send(notificationText('$/cancel_request', { requestId: id }))
        fail(new HoldfastError('cancelled', 'the turn is over'))
      }
      const answer = (answered: ClientAnswer): void => {
        settle()
        resolve(answered)
      }
      this.#waiting.set(name, { answer, fail })
      signal.addEventListener('abort', cancel)
      send(requestText(id, method, { ...params, sessionId }))
    })
  }

  /** False if it is the answer to something else. */
  answered(name: string, { result, error }: RpcResponse): boolean {
    const waiting = this.#waiting.get(name)
    if (waiting === undefined) return false
    waiting.answer(error === undefined ? { result } : { error: errorIn(error) })
    return true
  }

  /** The client is not there any more. */
  fail(): void {
    const error = new HoldfastError('cancelled', 'the client of this turn has left')
    for (const { fail } of this.#waiting.values()) fail(error)
  }
}

function errorIn(error: unknown): Extract<ClientAnswer, { error: object }>['error'] {
  const { code, message, data } = isRecord(error) ? error : {}
  return {
    code: Number.isSafeInteger(code) ? Number(code) : INTERNAL,
    message: typeof message === 'string' ? message : 'the client has refused',
    ...(data === undefined ? {} : { data }),
  }
}

/** The methods that a client answers, by the capabilities that it has shown. */
export function offersIn(capabilities: Readonly<Record<string, unknown>>): ReadonlySet<string> {
  const { fs, terminal } = capabilities
  const has = { ...(isRecord(fs) ? fs : {}), terminal }
  const offered = Object.entries(CLIENT_REQUESTS).filter(
    ([, capability]) => has[capability as keyof typeof has] === true,
  )
  return new Set(offered.map(([method]) => method))
}
