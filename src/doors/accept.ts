/** Which of the formats that an address has the caller wants. */
import { HoldfastError } from '../core/index.ts'

type MediaRange = { readonly range: string; readonly weight: number }

/** The most wanted of `types`; the first of them for who does not care. */
export function negotiate<Type extends string>(
  accept: string | undefined,
  types: readonly [Type, ...Type[]],
): Type {
  if (accept === undefined || accept === '*/*') return types[0]
  for (const { range } of mediaRanges(accept)) {
    const type = types.find((candidate) => matches(range, candidate))
    if (type !== undefined) return type
  }
  throw new HoldfastError('not_acceptable', `there is: ${types.join(', ')}`)
}

/** The most wanted first; among equals the one named first. */
function mediaRanges(accept: string): readonly MediaRange[] {
  return accept
    .split(',')
    .map(mediaRangeOf)
    .filter(({ weight }) => weight > 0)
    .toSorted((one, other) => other.weight - one.weight)
}

function mediaRangeOf(text: string): MediaRange {
  const [range = '', ...parameters] = text.split(';').map((part) => part.trim().toLowerCase())
  const weight = parameters.find((parameter) => parameter.startsWith('q='))
  return { range, weight: weight === undefined ? 1 : Number(weight.slice(2)) }
}

function matches(range: string, type: string): boolean {
  return range === type || range === '*/*' || range === `${type.split('/')[0]}/*`
}
