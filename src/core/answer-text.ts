/**
 * The text of a turn's answer as it comes. A message contains the deltas before it, so a reader
 * that has missed some of them gets the rest with the message.
 */
export class AnswerText {
  /** What the deltas since the last message have said. */
  #said = ''

  /** Returns what is new to the reader. */
  delta(text: string): string {
    this.#said += text
    return text
  }

  /** Returns what is new to the reader: empty if the deltas have said it all. */
  message(text: string): string {
    const rest = text.startsWith(this.#said) ? text.slice(this.#said.length) : ''
    this.#said = ''
    return rest
  }
}
