/** A tool call of an agent on one line, for a terminal. */
import type { ToolCall } from '../core/index.ts'
import { toolTitle } from '../wire/tool-title.ts'
import { printable } from './output.ts'

/** Its kind, what it is about, and how far it is: `· execute  npm test  (running)`. */
export function toolLine(call: ToolCall): string {
  const { kind = 'other', status = 'pending' } = call
  return printable(`· ${kind}  ${toolTitle(call)}  (${status})`)
}
