/** The parts of a turn's input: texts, images and files. */
import { HoldfastError, type RunnerTurn } from '../core/index.ts'

export type InputPart =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'image'; readonly mediaType: string; readonly data: Uint8Array }
  | {
      readonly type: 'file'
      readonly name: string
      readonly mediaType: string
      readonly data: Uint8Array
    }

/** A turn without parts has its text. */
export function partsOf(turn: RunnerTurn): readonly InputPart[] {
  const { parts } = turn as RunnerTurn & { readonly parts?: readonly InputPart[] }
  return parts ?? [{ type: 'text', text: turn.text }]
}

/** What an agent did not say that it takes is refused, never left out. */
export function refusePart(type: InputPart['type']): HoldfastError {
  return new HoldfastError(
    'invalid_field',
    `input.parts has a part that the agent does not take: ${type}`,
    {
      field: 'input.parts',
    },
  )
}

export function base64(data: Uint8Array): string {
  return Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('base64')
}
