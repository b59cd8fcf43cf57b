/**
 * Checks that a Claude Code transcript is linear. Its lines are chained by `uuid` and `parentUuid`;
 * Claude's context is the chain that leads to the last line. So all prompts and answers must be on
 * that chain: one beside it is a fork, and a second root is a second conversation.
 *
 * Results of parallel tools may be beside the chain, and a sub-agent (`isSidechain`) has a chain of
 * its own. A compaction starts a new chain, but names its predecessor (`logicalParentUuid`).
 */
import type { Findings } from '../core/index.ts'

export type ClaudeLine = {
  readonly uuid: string
  readonly parentUuid?: string | null
  readonly logicalParentUuid?: string | null
  readonly type?: string
  readonly isSidechain?: boolean
  readonly isMeta?: boolean
  readonly message?: { readonly content?: unknown }
}

type ChainEntry = {
  readonly parent: string | null
  readonly line: number
  readonly message: ReturnType<typeof messageKind>
}

export class ClaudeCheck {
  readonly #entries = new Map<string, ChainEntry>()
  readonly #problems: string[] = []
  #lastMessage: string | null = null

  add(entry: ClaudeLine, line: number): void {
    if (entry.isSidechain === true) return
    const { uuid } = entry
    if (this.#entries.has(uuid)) this.#problems.push(`line ${line}: ${uuid} is there twice`)
    const parent = entry.parentUuid ?? entry.logicalParentUuid ?? null
    const message = messageKind(entry)
    this.#entries.set(uuid, { parent, line, message })
    if (message !== null) this.#lastMessage = uuid
  }

  finish(): Findings {
    const entries = [...this.#entries.values()]
    const roots = entries.filter(({ parent }) => parent === null)
    if (roots.length > 1) {
      const lines = roots.map(({ line }) => line).join(', ')
      this.#problems.push(`${roots.length} roots: lines ${lines} each begin a conversation`)
    }
    for (const { parent, line } of entries) {
      if (parent === null || this.#entries.has(parent)) continue
      this.#problems.push(`line ${line} follows ${parent}, which is not there`)
    }
    this.#checkChain()
    const turns = entries.filter(({ message }) => message === 'prompt').length
    return { events: entries.length, turns, problems: this.#problems, pending: [] }
  }

  /** Follows the chain from the last message to the root; it must contain all messages. */
  #checkChain(): void {
    const onChain = new Set<string>()
    for (let at = this.#lastMessage; at !== null && !onChain.has(at);) {
      onChain.add(at)
      at = this.#entries.get(at)?.parent ?? null
    }
    for (const [uuid, { message, line }] of this.#entries) {
      if (message === null || onChain.has(uuid)) continue
      this.#problems.push(`fork: the ${message} in line ${line} is not remembered at the end`)
    }
  }
}

/** Null for calls and results of tools, and for notes of Claude Code itself. */
function messageKind({ type, isMeta, message }: ClaudeLine): 'prompt' | 'answer' | null {
  if (isMeta === true || message === undefined) return null
  const { content } = message
  const parts = Array.isArray(content) ? (content as readonly { readonly type?: string }[]) : []
  const hasText = typeof content === 'string' || parts.some((part) => part.type === 'text')
  if (!hasText) return null
  if (type === 'user') return 'prompt'
  return type === 'assistant' ? 'answer' : null
}
