/**
 * Where in a session's updates a client stands. It is in the `_meta` of every update, opaque to
 * clients, and `session/resume` continues after it: nothing is told twice, and nothing is left out.
 */
import { invalid } from '../../core/index.ts'

export type UpdateCursor = {
  /** From here the log has to be read to know the state of the running turn: a position. */
  readonly from: number
  /** Everything up to this event was told. */
  readonly seq: number
  /** And so many updates of the event after it that has some. */
  readonly updates: number
  /** And so many characters of the message that is being written. */
  readonly chars: number
}

export function updateCursorAt(seq: number, from = seq): UpdateCursor {
  return { from: Math.min(from, seq), seq, updates: 0, chars: 0 }
}

export function cursorText({ from, seq, updates, chars }: UpdateCursor): string {
  return [from, seq, updates, chars].join('.')
}

export function readCursor(text: string): UpdateCursor {
  const [, from, seq, updates, chars] =
    /^(\d{1,15})\.(\d{1,15})\.(\d{1,9})\.(\d{1,9})$/.exec(text) ?? []
  if (chars === undefined || Number(from) > Number(seq)) {
    throw invalid('_meta.holdfast.at', 'must be the position of an update of this session')
  }
  return { from: Number(from), seq: Number(seq), updates: Number(updates), chars: Number(chars) }
}
