/** What a tool call is about, on one line. */
import type { ToolCall } from '../core/index.ts'

const TITLE_CHARS = 100

/** Fields of the arguments that tell most about a call. */
const TELLING = ['command', 'file_path', 'path', 'url', 'pattern', 'query'] as const

export function toolTitle({ title, name, input, id }: ToolCall): string {
  const words = (title ?? `${name ?? id} ${telling(input)}`).trim()
  const [line = ''] = words.split('\n')
  const characters = Array.from(line)
  const isWhole = characters.length <= TITLE_CHARS && line === words
  return isWhole ? line : `${characters.slice(0, TITLE_CHARS).join('')}…`
}

function telling(input: unknown): string {
  if (typeof input !== 'object' || input === null) return ''
  const fields = input as Readonly<Record<string, unknown>>
  const found = TELLING.map((name) => fields[name]).find((value) => typeof value === 'string')
  return found ?? ''
}
