/** The protocol's library, and the messages between this process and an agent in their order. */
import type * as sdk from '@agentclientprotocol/sdk'
import type { AcpUpdate } from './updates.ts'

export type Sdk = typeof sdk

/** Loads the library when the first agent starts: it is an optional dependency. */
export async function loadSdk(
  load: () => Promise<Sdk> = () => import('@agentclientprotocol/sdk'),
): Promise<Sdk> {
  try {
    return await load()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error
    throw new Error(
      'agents that speak ACP need a package that is not installed; install it with: ' +
        'npm install @agentclientprotocol/sdk zod',
    )
  }
}

/** The fields of a message that are used. */
type MessageFields = {
  readonly id?: unknown
  readonly method?: unknown
  readonly params?: { readonly sessionId?: unknown; readonly update?: Partial<AcpUpdate> } | null
}

/**
 * The same stream with listeners for updates, and for the response to a prompt. Updates end here;
 * other messages go on to the library, which delivers a response before or after the updates around
 * it, depending on its promises. But updates before the response to a prompt belong to the turn,
 * and later ones do not.
 */
export function observed(
  { readable, writable }: sdk.Stream,
  onUpdate: (session: string, update: AcpUpdate) => void,
  onPromptEnd: (session: string) => void,
): sdk.Stream {
  /** Our pending requests, with the session of those that are prompts. */
  const requests = new Map<unknown, string | null>()
  const outgoing = new TransformStream<sdk.AnyMessage, sdk.AnyMessage>({
    transform(message, controller) {
      const { id, method, params } = message as MessageFields
      const session = method === 'session/prompt' ? String(params?.sessionId) : null
      if (id !== undefined && method !== undefined) requests.set(id, session)
      controller.enqueue(message)
    },
  })
  const incoming = new TransformStream<sdk.AnyMessage, sdk.AnyMessage>({
    transform(message, controller) {
      const { id, method, params } = message as MessageFields
      if (method === 'session/update') {
        const { sessionId, update } = params ?? {}
        // Agents deviate from the schema, and new kinds of updates appear: only these are checked.
        if (typeof sessionId === 'string' && typeof update?.sessionUpdate === 'string')
          onUpdate(sessionId, update as AcpUpdate)
        return
      }
      if (method === undefined) {
        const session = requests.get(id)
        // A response without a request: the library would print it.
        if (!requests.delete(id)) return
        if (typeof session === 'string') onPromptEnd(session)
      }
      controller.enqueue(message)
    },
  })
  // The readable side reports the error.
  outgoing.readable.pipeTo(writable).catch(() => undefined)
  return { readable: readable.pipeThrough(incoming), writable: outgoing.writable }
}
