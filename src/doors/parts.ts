/** Images and files as JSON has them: bytes as base64. */
import { invalid, type GivenInput, type Input } from '../core/index.ts'
import { isRecord } from '../schema/contract.ts'

/** The input with bytes in place of base64. What else may be wrong with a part, the core says. */
export function decodeInput(input: Input): GivenInput {
  if (typeof input === 'string' || !Array.isArray(input.parts)) return input
  const parts = input.parts.map((part: unknown, index) => {
    if (!isRecord(part) || part['data'] === undefined) return part
    return { ...part, data: decodeBase64(part['data'], `input.parts.${index}.data`) }
  })
  return { ...input, parts } as GivenInput
}

/** Strict: Node would skip what is no base64, and so change the bytes. */
export function decodeBase64(text: unknown, field: string): Uint8Array {
  const isBase64 =
    typeof text === 'string' &&
    text.length % 4 === 0 &&
    !/[^A-Za-z0-9+/]/.test(text.slice(0, -2)) &&
    /^([A-Za-z0-9+/]{0,2}|[A-Za-z0-9+/]=|==)$/.test(text.slice(-2))
  if (!isBase64) throw invalid(field, 'must be base64')
  return Buffer.from(text, 'base64')
}
