/** The conversation, as the log tells it. */
import type { SessionEvent } from '../wire/frames.ts'

export type ClientMessage = {
  readonly seq: number
  readonly turn: string
  readonly role: 'user' | 'assistant'
  readonly text: string
  readonly at: number
  readonly data?: unknown
  /** The turn ended before the message was complete. */
  readonly partial?: true
}

export function clientMessageOf(event: SessionEvent): ClientMessage | null {
  const { seq, at } = event
  if (event.type === 'turn.started') {
    const { turn, input } = event
    return { seq, turn, role: 'user', text: typeof input === 'string' ? input : input.text, at }
  }
  if (event.type !== 'message.added') return null
  const { turn, role, text, data, partial } = event
  const extra = { ...(data === undefined ? {} : { data }), ...(partial ? { partial } : {}) }
  return { seq, turn, role, text, at, ...extra }
}
