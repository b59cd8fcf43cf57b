/**
 * Proves a Claude Code transcript linear. Its lines are chained by `uuid` and `parentUuid`, and
 * what Claude remembers is the chain that leads to the last line. So whatever was said must lie on
 * that one chain: a prompt or an answer beside it is a fork, a second beginning a second
 * conversation.
 *
 * Not everything beside the chain was said: tools that ran at once leave their results there, and a
 * sub-agent (`isSidechain`) has a chain of its own. A compaction begins anew, but names what it
 * follows.
 */
import type { Findings } from './log-check.ts'

export type ClaudeLine = {
  readonly uuid: string
  readonly parentUuid?: string | null
  readonly logicalParentUuid?: string | null
  readonly type?: string
  readonly isSidechain?: boolean
  readonly isMeta?: boolean
  readonly message?: { readonly content?: unknown }
}

type Link = { readonly parent: string | null; readonly line: number; readonly said: Said | null }
type Said = 'prompt' | 'answer'

export class ClaudeCheck {
  readonly #links = new Map<string, Link>()
  readonly #problems: string[] = []
  #lastSaid: string | null = null

  add(entry: ClaudeLine, line: number): void {
    if (entry.isSidechain === true) return
    const { uuid } = entry
    if (this.#links.has(uuid)) this.#problems.push(`line ${line}: ${uuid} is there twice`)
    const parent = entry.parentUuid ?? entry.logicalParentUuid ?? null
    const said = whatIsSaid(entry)
    this.#links.set(uuid, { parent, line, said })
    if (said !== null) this.#lastSaid = uuid
  }

  finish(): Findings {
    const links = [...this.#links.values()]
    this.#checkRoots(links)
    this.#checkParents(links)
    this.#checkChain()
    const turns = links.filter(({ said }) => said === 'prompt').length
    return { events: links.length, turns, problems: this.#problems, pending: [] }
  }

  #checkRoots(links: readonly Link[]): void {
    const roots = links.filter(({ parent }) => parent === null)
    if (roots.length <= 1) return
    const lines = roots.map(({ line }) => line).join(', ')
    this.#problems.push(`${roots.length} roots: lines ${lines} each begin a conversation`)
  }

  #checkParents(links: readonly Link[]): void {
    for (const { parent, line } of links) {
      if (parent === null || this.#links.has(parent)) continue
      this.#problems.push(`line ${line} follows ${parent}, which is not there`)
    }
  }

  /** From the last word back to the first: whatever was said must be met on the way. */
  #checkChain(): void {
    const onChain = new Set<string>()
    for (let at = this.#lastSaid; at !== null && !onChain.has(at);) {
      onChain.add(at)
      at = this.#links.get(at)?.parent ?? null
    }
    for (const [uuid, { said, line }] of this.#links) {
      if (said === null || onChain.has(uuid)) continue
      this.#problems.push(`fork: the ${said} in line ${line} is not remembered at the end`)
    }
  }
}

/** Prompts and answers; not what tools were asked or said, nor what Claude Code noted itself. */
function whatIsSaid({ type, isMeta, message }: ClaudeLine): Said | null {
  if (isMeta === true || message === undefined) return null
  const { content } = message
  const parts = Array.isArray(content) ? (content as readonly { readonly type?: string }[]) : []
  const hasText = typeof content === 'string' || parts.some((part) => part.type === 'text')
  if (!hasText) return null
  if (type === 'user') return 'prompt'
  return type === 'assistant' ? 'answer' : null
}
