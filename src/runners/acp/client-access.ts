/**
 * Files and terminals of the client whose prompt runs. An agent is told once, when its process
 * starts, what its client can do; clients of later turns may offer something else.
 */
import { asHoldfastError, type RunnerContext } from '../../core/index.ts'
import type { JsonObject } from '../json.ts'
import type { Sdk } from './connection.ts'
import type { AcpSettings } from './options.ts'

/** What an agent may ask of its client, besides permissions and questions. */
export const CLIENT_METHODS = [
  ...['fs/read_text_file', 'fs/write_text_file'],
  ...['terminal/create', 'terminal/output', 'terminal/kill'],
  ...['terminal/release', 'terminal/wait_for_exit'],
] as const

export type ClientOffers = ReadonlySet<string>

export const NO_OFFERS: ClientOffers = new Set()

/**
 * What the agent of this turn is to be told. A process that serves several sessions has no client
 * of its own, and one that cannot be replaced soon would keep what its first client offered.
 */
export function offersFor(
  { clientOffers }: Pick<RunnerContext, 'clientOffers'>,
  { perSession, clientAccess, reopenMs = 0 }: AcpSettings,
): ClientOffers {
  return perSession && clientAccess && reopenMs === 0 ? clientOffers() : NO_OFFERS
}

export function sameOffers(one: ClientOffers, other: ClientOffers): boolean {
  return one.size === other.size && [...one].every((method) => other.has(method))
}

/** As `initialize` tells it to the agent. */
export function offeredCapabilities(offers: ClientOffers): object {
  return {
    fs: {
      readTextFile: offers.has('fs/read_text_file'),
      writeTextFile: offers.has('fs/write_text_file'),
    },
    terminal: offers.has('terminal/create'),
  }
}

/** Asks the client for the agent, whose own id of the session means nothing to it. */
export async function askClient(
  sdk: Sdk,
  ask: RunnerContext['askClient'] | undefined,
  { method, params }: { readonly method: string; readonly params: JsonObject },
): Promise<object> {
  const { sessionId: _, ...own } = params
  const answer = await (ask?.(method, own) ?? Promise.reject(new Error('no prompt runs'))).catch(
    (thrown: unknown) => {
      const { code, message } = asHoldfastError(thrown)
      const number = code === 'capability_missing' ? METHOD_UNKNOWN : REFUSED
      throw new sdk.RequestError(number, message, { code })
    },
  )
  if ('result' in answer) return answer.result ?? {}
  const { code, message, data } = answer.error
  throw new sdk.RequestError(code, message, data)
}

/** As an agent would be answered by a client that has never heard of it. */
const METHOD_UNKNOWN = -32_601
const REFUSED = -32_010
