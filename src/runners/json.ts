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

/** A line of a program's output or file as an object; empty if it is none. */
export function parsedLine(line: string): JsonObject {
  try {
    return line.startsWith('{') ? (JSON.parse(line) as JsonObject) : {}
  } catch {
    // The program ended in the middle of the line, or has not written all of it yet.
    return {}
  }
}
