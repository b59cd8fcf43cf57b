/** The formats in which programs print their output. */
import type { RunnerOutput } from '../../core/index.ts'
import { readLines } from '../../platform/lines.ts'

/** A part of a program's output. */
export type ProgramOutput =
  | RunnerOutput
  /** The backend's own session id. */
  | { readonly type: 'session'; readonly id: string }
  /** The whole answer, if the program ends with one. */
  | { readonly type: 'result'; readonly text: string }
  | { readonly type: 'failure'; readonly message: string }

/**
 * Why a program did not start to work: the id for a new session is in use, or the id of an existing
 * session is unknown.
 */
export type BackendRefusal = 'in_use' | 'unknown'

export interface OutputFormat {
  /** Whether the output contains the session id. */
  readonly hasSession: boolean
  read(output: AsyncIterable<string>): AsyncGenerator<ProgramOutput>
  /** The meaning of the program's error message for the session of this id. */
  refusal(message: string, backend: string): BackendRefusal | null
}

/** The longest line: it may contain a picture that a tool has read. */
export const LINE_CHARS_MAX = 16_777_216

export type JsonObject = Readonly<Record<string, unknown>>

/** Every line that is a JSON object; other lines are ignored. */
export async function* jsonLines(output: AsyncIterable<string>): AsyncGenerator<JsonObject> {
  for await (const line of readLines(output, LINE_CHARS_MAX)) {
    if (!line.startsWith('{')) continue
    try {
      yield JSON.parse(line) as JsonObject
    } catch {
      // The program ended in the middle of the line.
    }
  }
}

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
