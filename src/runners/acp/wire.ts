/**
 * Observes the messages between this process and the agent in their order. The library delivers a
 * response before or after the updates around it, depending on its promises; but updates before the
 * response to a prompt belong to the turn, and later ones do not.
 */
import type { AnyMessage, Stream } from '@agentclientprotocol/sdk'
import type { AcpUpdate } from './update-converter.ts'

export interface WireListener {
  update(session: string, update: AcpUpdate): void
  /** The response to a prompt has arrived: later updates are not part of it. */
  promptEnded(session: string): void
}

/** The fields of a message that are used. */
type MessageFields = {
  readonly id?: unknown
  readonly method?: unknown
  readonly params?: { readonly sessionId?: unknown; readonly update?: Partial<AcpUpdate> } | null
}

/** The same stream with a listener. Updates end here; other messages go on to the library. */
export function observed({ readable, writable }: Stream, listener: WireListener): Stream {
  /** Our pending requests, with the session of those that are prompts. */
  const requests = new Map<unknown, string | null>()
  const outgoing = new TransformStream<AnyMessage, AnyMessage>({
    transform(message, controller) {
      const { id, method, params } = message as MessageFields
      const session = method === 'session/prompt' ? String(params?.sessionId) : null
      if (id !== undefined && method !== undefined) requests.set(id, session)
      controller.enqueue(message)
    },
  })
  const incoming = new TransformStream<AnyMessage, AnyMessage>({
    transform(message, controller) {
      const { id, method, params } = message as MessageFields
      if (method === 'session/update') return deliver(params, listener)
      if (method === undefined) {
        const session = requests.get(id)
        // A response without a request: the library would print it.
        if (!requests.delete(id)) return
        if (typeof session === 'string') listener.promptEnded(session)
      }
      controller.enqueue(message)
    },
  })
  // The readable side reports the error.
  outgoing.readable.pipeTo(writable).catch(() => undefined)
  return { readable: readable.pipeThrough(incoming), writable: outgoing.writable }
}

/**
 * Agents deviate from the schema, and new kinds of updates appear: only these fields are checked.
 */
function deliver(params: MessageFields['params'], listener: WireListener): void {
  const { sessionId, update } = params ?? {}
  if (typeof sessionId !== 'string' || typeof update?.sessionUpdate !== 'string') return
  listener.update(sessionId, update as AcpUpdate)
}
