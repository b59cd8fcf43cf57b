/**
 * What is written to a session: the text in the box, and messages on their way. All of it is kept
 * over a reload. A message that was on its way then, and is not in the log, is back in the box.
 */
import { signal, type Signal } from '@preact/signals'
import type { SessionEvent } from '../../client/index.ts'
import { draft, recall, remember } from '../shared/memory.ts'

export type OutgoingMessage = { readonly id: number; readonly text: string; readonly at: number }

export class Outbox {
  readonly text: Signal<string>
  readonly sending = signal<readonly OutgoingMessage[]>([])
  readonly #name: string
  #ids = 0
  /** Of the page before a reload. */
  #unknown: readonly OutgoingMessage[]

  constructor(session: string) {
    this.text = draft(`session:${session}`)
    this.#name = `sending:${session}`
    this.#unknown = JSON.parse(recall(this.#name) ?? '[]') as readonly OutgoingMessage[]
  }

  add(text: string): OutgoingMessage {
    this.#ids += 1
    const message = { id: this.#ids, text, at: Date.now() }
    this.#keep([...this.sending.peek(), message])
    return message
  }

  /** The server has it. */
  sent(message: OutgoingMessage): void {
    this.#keep(this.sending.peek().filter(({ id }) => id !== message.id))
  }

  refused(message: OutgoingMessage): void {
    this.sent(message)
    this.#return([message])
  }

  /** Compares what was on its way before a reload with the log as it is now. */
  found(events: readonly SessionEvent[]): void {
    if (this.#unknown.length === 0) return
    const said = events.flatMap((event) => ('input' in event ? [event] : []))
    const isSaid = ({ text, at }: OutgoingMessage): boolean =>
      said.some((event) => {
        const { input } = event
        // The clocks of the page and the server may differ.
        return (typeof input === 'string' ? input : input.text) === text && event.at > at - 60_000
      })
    const lost = this.#unknown.filter((message) => !isSaid(message))
    this.#unknown = []
    this.#return(lost)
    this.#keep(this.sending.peek())
  }

  #return(messages: readonly OutgoingMessage[]): void {
    const texts = [...messages.map(({ text }) => text), this.text.peek()]
    this.text.value = texts.filter((text) => text !== '').join('\n\n')
  }

  #keep(messages: readonly OutgoingMessage[]): void {
    this.sending.value = messages
    remember(this.#name, messages.length === 0 ? '' : JSON.stringify(messages))
  }
}
