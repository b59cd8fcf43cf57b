/** What the operator lets the settings of sessions choose from, for agents that outlive a turn. */
import { Type, type Static } from '../schema/typebox.ts'
import { EXACT, list, optional, UNKNOWN_NAME } from '../schema/contract.ts'

const McpServer = Type.Object(
  optional({
    command: Type.String({ minLength: 1 }),
    args: list(),
    env: Type.Record(Type.String(), Type.String()),
    url: Type.String({ pattern: '^https?://' }),
    headers: Type.Record(Type.String(), Type.String()),
  }),
  EXACT,
)

export type McpServerOptions = Readonly<Static<typeof McpServer>>

export const CHOICES = {
  modes: list({
    description:
      'the modes that the settings of a session may name; by default all of the agent but those ' +
      'in which it asks for nothing',
  }),
  folders: list({
    description:
      'folders that the settings of a session may name, and those in them, as working folder and ' +
      'further folders, and that people may always allow; not with `isolation` or `wrap`',
  }),
  mcpServers: Type.Record(Type.String({ pattern: '^(?!__proto__$)[\\w-]{1,64}$' }), McpServer, {
    additionalProperties: false,
    [UNKNOWN_NAME]: 'must be named with 1 to 64 letters, digits and _ -',
    description:
      'MCP servers by name: `{"command": …, "args": […], "env": {…}}` or `{"url": …, "headers": ' +
      '{…}}`; a session has those that its settings name, by default all',
  }),
}

/** The options that have no default: those of `CHOICES`, and of asks. */
export type Unstated = keyof typeof CHOICES | 'askMs' | 'onNobody'

export type Choices = {
  readonly modes?: readonly string[]
  readonly folders?: readonly string[]
  readonly mcpServers?: Readonly<Record<string, McpServerOptions>>
}
