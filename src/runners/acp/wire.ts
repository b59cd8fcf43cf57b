/**
 * What passes between us and the agent, seen in the order in which it passes. The library hands a
 * response over before or after the updates around it, as its promises happen to settle; but what
 * the agent said before a prompt's end belongs to the turn, and what it said after it does not.
 */
import type { AnyMessage, Stream } from '@agentclientprotocol/sdk'
import type { Update } from './narration.ts'

export interface WireListener {
  update(session: string, update: Update): void
  /** The response to a prompt has come: whatever follows is no part of it. */
  promptEnded(session: string): void
}

/** What is read of any message, whatever it turns out to be. */
type Loose = {
  readonly id?: unknown
  readonly method?: unknown
  readonly params?: { readonly sessionId?: unknown; readonly update?: Partial<Update> } | null
}

/** The same stream, listened to. Updates end here; all else goes on to the library. */
export function tapped({ readable, writable }: Stream, listener: WireListener): Stream {
  /** Our requests that wait for a response, and the session of those that are prompts. */
  const requests = new Map<unknown, string | null>()
  const outgoing = new TransformStream<AnyMessage, AnyMessage>({
    transform(message, controller) {
      const { id, method, params } = message as Loose
      const session = method === 'session/prompt' ? String(params?.sessionId) : null
      if (id !== undefined && method !== undefined) requests.set(id, session)
      controller.enqueue(message)
    },
  })
  const incoming = new TransformStream<AnyMessage, AnyMessage>({
    transform(message, controller) {
      const { id, method, params } = message as Loose
      if (method === 'session/update') return deliver(params, listener)
      if (method === undefined) {
        const session = requests.get(id)
        // Nobody asked: the library would print it.
        if (!requests.delete(id)) return
        if (typeof session === 'string') listener.promptEnded(session)
      }
      controller.enqueue(message)
    },
  })
  // How it ends is told by the readable end; this end fails with it.
  outgoing.readable.pipeTo(writable).catch(() => undefined)
  return { readable: readable.pipeThrough(incoming), writable: outgoing.writable }
}

/** Agents stray from the schema here, and new kinds of updates come up: only the frame counts. */
function deliver(params: Loose['params'], listener: WireListener): void {
  const { sessionId, update } = params ?? {}
  if (typeof sessionId !== 'string' || typeof update?.sessionUpdate !== 'string') return
  listener.update(sessionId, update as Update)
}
