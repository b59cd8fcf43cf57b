/** Values of JSON that a program or server sent: nothing is assumed about their types. */

export type JsonObject = Readonly<Record<string, unknown>>

/** The value as an object, or an empty one. */
export function asObject(value: unknown): JsonObject {
  return typeof value === 'object' && value !== null ? (value as JsonObject) : {}
}

export function asList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? (value as readonly unknown[]) : []
}

export function asText(value: unknown): string {
  return typeof value === 'string' ? value : ''
}
