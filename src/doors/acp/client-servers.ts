/**
 * MCP servers that a client names when it opens a session. They are commands to run here, or
 * addresses that the agent would connect to from here: only the operator configures these. One that
 * the operator has configured by the same name is the operator's, whatever the client says of it;
 * of the others the client is told that they are not used, in the response for programs and as a
 * message for people.
 */
import type { Capabilities, Settings } from '../../core/index.ts'
import { isRecord } from '../../schema/contract.ts'
import type { OpeningParams } from './schemas.ts'

/** How many are named to people, and how long a name may be. */
const NAMES_MAX = 10
const NAME_CHARS_MAX = 64

/** The names of those that are not used. */
export function unusedServers(
  { mcpServers = [] }: OpeningParams,
  { mcpServers: configured }: Pick<Capabilities, 'mcpServers'>,
  { mcpServers: chosen = configured }: Settings,
): readonly string[] {
  return mcpServers.map(nameOf).filter((name) => {
    return !configured.includes(name) || !chosen.includes(name)
  })
}

function nameOf(server: unknown): string {
  const name = isRecord(server) ? server['name'] : undefined
  return typeof name === 'string' ? name.slice(0, NAME_CHARS_MAX).toWellFormed() : '?'
}

export function serversNotice(names: readonly string[]): string {
  const shown = names.slice(0, NAMES_MAX).join(', ')
  const more = names.length > NAMES_MAX ? ` and ${names.length - NAMES_MAX} more` : ''
  return (
    `The MCP servers of this client are not used here: ${shown}${more}. ` +
    'The agent has those that the operator of the server has configured.\n\n'
  )
}
