/**
 * MCP servers that a client names when it opens a session. They are commands to run here, or
 * addresses that the agent would connect to from here: only the operator names these. The client is
 * told so, in the response for programs and as a message for people.
 */
import { isRecord } from '../../schema/contract.ts'
import type { OpeningParams } from './schemas.ts'

/** How many are named to people, and how long a name may be. */
const NAMES_MAX = 10
const NAME_CHARS_MAX = 64

export function clientServers({ mcpServers = [] }: OpeningParams): readonly string[] {
  return mcpServers.map((server) => {
    const name = isRecord(server) ? server['name'] : undefined
    return typeof name === 'string' ? name.slice(0, NAME_CHARS_MAX).toWellFormed() : '?'
  })
}

export function serversNotice(names: readonly string[]): string {
  const shown = names.slice(0, NAMES_MAX).join(', ')
  const more = names.length > NAMES_MAX ? ` and ${names.length - NAMES_MAX} more` : ''
  return (
    `The MCP servers of this client are not used here: ${shown}${more}. ` +
    'The agent has those that the operator of the server has configured.\n\n'
  )
}
