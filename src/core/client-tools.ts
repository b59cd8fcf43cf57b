/**
 * Tools that clients have registered with a session, while they are attached to it. An agent calls
 * one by an ask of the kind `tool:NAME`, which any client that has it may answer. In memory: a
 * client that comes back registers them again.
 */

export type ClientTool = {
  readonly name: string
  readonly description: string
  /** A JSON Schema of its arguments. */
  readonly parameters: Readonly<Record<string, unknown>>
  /** Its client wants no person to be asked before a call. */
  readonly skipPermission: boolean
}

/** The kind of ask by which an agent calls a tool of its clients. */
const TOOL_KIND = 'tool:'

export function toolKind(name: string): string {
  return TOOL_KIND + name
}

/** The tool that an ask calls; null: it calls none. */
export function calledTool(kind: string): string | null {
  return kind.startsWith(TOOL_KIND) ? kind.slice(TOOL_KIND.length) : null
}

export class ClientTools {
  /** By session, the clients in the order in which they came. */
  readonly #clients = new Map<string, Set<readonly ClientTool[]>>()

  /** A client has these tools from now on, until the result is called. */
  add(session: string, tools: readonly ClientTool[]): () => void {
    if (tools.length === 0) return () => undefined
    const clients = this.#clients.get(session) ?? new Set()
    this.#clients.set(session, clients.add(tools))
    return () => {
      clients.delete(tools)
      if (clients.size === 0 && this.#clients.get(session) === clients) {
        this.#clients.delete(session)
      }
    }
  }

  /** Each name once, as the last client has it. Any of them may be asked. */
  of(session: string): readonly ClientTool[] {
    const byName = new Map<string, ClientTool>()
    for (const tool of [...(this.#clients.get(session) ?? [])].flat()) {
      const { skipPermission = true } = byName.get(tool.name) ?? {}
      byName.set(tool.name, { ...tool, skipPermission: tool.skipPermission && skipPermission })
    }
    return [...byName.values()]
  }
}
