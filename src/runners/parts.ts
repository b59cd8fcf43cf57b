/** The parts of a turn's input: texts, images and files. */
import { HoldfastError, type RunnerPart, type RunnerTurn } from '../core/index.ts'

/** A turn without parts has its text. */
export function partsOf(turn: RunnerTurn): readonly RunnerPart[] {
  return turn.parts ?? [{ type: 'text', text: turn.text }]
}

/** What an agent did not say that it takes is refused, never left out. */
export function refusePart(type: RunnerPart['type']): HoldfastError {
  const message = `the agent takes no ${type}s in its input`
  return new HoldfastError('input_unsupported', message, { part: type })
}

export function base64(data: Uint8Array): string {
  return Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('base64')
}
