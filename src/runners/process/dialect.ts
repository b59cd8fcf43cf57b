/** How a program speaks: its output as what a runner yields, and its refusals as what they mean. */
import type { RunnerOutput } from '../../core/index.ts'

/** What a program says, as it is told on. */
export type Said =
  | RunnerOutput
  /** The backend's own session id. */
  | { readonly type: 'session'; readonly id: string }
  /** The whole answer, when the program ends with one. */
  | { readonly type: 'result'; readonly text: string }
  | { readonly type: 'failure'; readonly message: string }

/**
 * Why a program would not begin: its session id is in use although it was to be a new one, or
 * unknown although it was to be an old one. Nothing has happened then.
 */
export type Refusal = 'in_use' | 'unknown'

export interface Dialect {
  /** Whether it tells its session id by itself. */
  readonly tellsSession: boolean
  read(output: AsyncIterable<string>): AsyncGenerator<Said>
  /** What the program's last words mean for the session of this id. */
  refusal(words: string, backend: string): Refusal | null
}

/** One line of JSON may be so long, in characters: a picture that a tool has read, for example. */
export const LINE_CHARS_MAX = 16_777_216

/** Every line that is a JSON object; whatever else a program prints in between is none of ours. */
export async function* jsonLines(
  output: AsyncIterable<string>,
): AsyncGenerator<Readonly<Record<string, unknown>>> {
  let rest = ''
  for await (const chunk of output) {
    const lines = (rest + chunk).split('\n')
    rest = lines.pop() ?? ''
    if (rest.length > LINE_CHARS_MAX) {
      throw new Error(`a line of output is over ${LINE_CHARS_MAX} characters`)
    }
    for (const line of lines) yield* jsonObject(line)
  }
  yield* jsonObject(rest)
}

function* jsonObject(line: string): Generator<Readonly<Record<string, unknown>>> {
  if (!line.startsWith('{')) return
  try {
    yield JSON.parse(line) as Readonly<Record<string, unknown>>
  } catch {
    // Cut off by the program's own end.
  }
}

/** A field of what could be anything, as an object. */
export function object(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null
    ? (value as Readonly<Record<string, unknown>>)
    : {}
}

export function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? (value as readonly unknown[]) : []
}

export function text(value: unknown): string {
  return typeof value === 'string' ? value : ''
}
