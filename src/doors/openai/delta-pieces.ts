/**
 * The pieces in which the text of a message is streamed. They follow from the text alone, however
 * it came: so each has the same number in every stream of a response, and the log does not have to
 * keep where the agent's own pieces ended.
 *
 * A piece ends behind each character that is no part of a word, and behind eight that are. A word
 * at the end is kept back until it is known where it ends. What counts as a part of a word must
 * never change, so it is not asked of Unicode's tables, which grow: letters and digits of ASCII,
 * and all from U+00AA to U+1FFF, where the scripts are whose words have letters.
 */
const PIECE = /[A-Za-z0-9\u00AA-\u1FFF]{0,7}[^A-Za-z0-9\u00AA-\u1FFF]|[A-Za-z0-9\u00AA-\u1FFF]{8}/gu

export class DeltaPieces {
  /** What is not known to be a whole piece. */
  #rest = ''

  /** The pieces that are complete with this text. */
  add(text: string): readonly string[] {
    const all = this.#rest + text
    // The other half of a character may follow.
    const known = /[\uD800-\uDBFF]$/.test(all) ? all.slice(0, -1) : all
    const pieces: readonly string[] = known.match(PIECE) ?? []
    this.#rest = all.slice(pieces.reduce((sum, { length }) => sum + length, 0))
    return pieces
  }

  /** What is left when the text is over, as its last piece. */
  end(): readonly string[] {
    const rest = this.#rest
    this.#rest = ''
    return rest === '' ? [] : [rest]
  }
}
