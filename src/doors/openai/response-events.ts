/** A response as it comes: OpenAI's typed events, numbered, from `created` to its end. */
import type { TurnAnswer, AnswerPart, AnswerMessage } from './answer.ts'
import { turnFailure } from './errors.ts'
import { messageId, messageItem, responseObject, textPart, type ResponseFacts } from './response.ts'

export async function* responseEvents(
  facts: ResponseFacts,
  answer: AsyncIterable<readonly AnswerPart[]>,
): AsyncGenerator<string> {
  const writer = new ResponseEventWriter(facts)
  yield writer.begin()
  for await (const parts of answer) yield parts.map((part) => writer.write(part)).join('')
}

class ResponseEventWriter {
  readonly #facts: ResponseFacts
  readonly #messages: AnswerMessage[] = []
  /** The message that is being written. */
  #open = -1
  #number = 0

  constructor(facts: ResponseFacts) {
    this.#facts = facts
  }

  begin(): string {
    const response = responseObject(this.#facts, 'running', null)
    return this.#event('response.created', { response }) + this.#event(IN_PROGRESS, { response })
  }

  write(part: AnswerPart): string {
    switch (part.type) {
      case 'text':
        return this.#openMessage(part.message) + this.#delta(part.message, part.text)
      case 'message':
        return this.#openMessage(part.message) + this.#closeMessage(part.message, part)
      case 'end':
        return this.#end({ ...part, messages: this.#messages })
    }
  }

  #openMessage(index: number): string {
    if (this.#open === index) return ''
    this.#open = index
    const empty = messageItem(this.#facts.id, index, { text: '', isPartial: true })
    const item = { ...empty, status: 'in_progress', content: [] }
    const added = this.#event('response.output_item.added', { output_index: index, item })
    const part = { ...this.#place(index), part: textPart('') }
    return added + this.#event('response.content_part.added', part)
  }

  #delta(index: number, delta: string): string {
    const facts = { ...this.#place(index), delta, logprobs: [] }
    return this.#event('response.output_text.delta', facts)
  }

  #closeMessage(index: number, said: AnswerMessage): string {
    const { text } = said
    this.#messages.push(said)
    const place = this.#place(index)
    const item = messageItem(this.#facts.id, index, said)
    return [
      this.#event('response.output_text.done', { ...place, text, logprobs: [] }),
      this.#event('response.content_part.done', { ...place, part: textPart(text) }),
      this.#event('response.output_item.done', { output_index: index, item }),
    ].join('')
  }

  #end(answer: TurnAnswer): string {
    const { state } = answer.outcome
    const response = responseObject(this.#facts, state, answer)
    const type = turnFailure(answer.outcome) === null ? 'response.completed' : 'response.failed'
    return this.#event(type, { response })
  }

  #place(index: number) {
    return { item_id: messageId(this.#facts.id, index), output_index: index, content_index: 0 }
  }

  #event(type: string, facts: object): string {
    const data = { type, sequence_number: this.#number, ...facts }
    this.#number += 1
    return `event: ${type}\ndata: ${JSON.stringify(data)}\n\n`
  }
}

const IN_PROGRESS = 'response.in_progress'
