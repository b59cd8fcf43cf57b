/**
 * The files that `verify` can check: archives, exported logs and transcripts, transcripts of Claude
 * Code, and recordings of browser clients.
 */
import { LogCheck, type CheckedEvent, type Findings } from '../core/index.ts'
import { linesOfFile } from '../platform/archive-file.ts'
import { ArchiveCheck, isArchiveHeader } from '../platform/archive-format.ts'

/** A line of a file of any kind that can be checked. */
type CheckedLine = Partial<
  ClaudeLine & CheckedEvent & CheckedMessage & Pick<RecordingLine, 'n' | 'from'>
>
type LineCheck = { add(line: never, number: number, text: string): void; finish(): Findings }

/** The first line of a known kind decides which kind of file it is. */
export async function verifyFile(file: string): Promise<Findings> {
  const torn: string[] = []
  let number = 0
  let check: LineCheck | null = null
  for await (const text of linesOfFile(file)) {
    number += 1
    if (text?.trim() === '') continue
    const line: CheckedLine | null = text === null ? null : parseObject(text)
    if (text === null || line === null) torn.push(`line ${number} is no JSON object`)
    else (check ??= checkFor(line))?.add(line as never, number, text)
  }
  if (check === null) {
    throw new Error('this is not a log, transcript, Claude Code transcript or recording')
  }
  const findings = check.finish()
  return { ...findings, problems: [...torn, ...findings.problems] }
}

/** Null if it is no JSON object; the caller reports it. */
export function parseObject(text: string): object | null {
  try {
    const value = JSON.parse(text) as unknown
    return typeof value === 'object' ? value : null
  } catch {
    return null
  }
}

function checkFor(line: CheckedLine): LineCheck | null {
  if (typeof line.uuid === 'string' && 'parentUuid' in line) return new ClaudeCheck()
  const isRecording = typeof line.n === 'number' && ('from' in line || 'dropped' in line)
  if (isRecording) return new RecordingCheck()
  if (isArchiveHeader(line)) return new ArchiveCheck()
  if (typeof line.seq !== 'number') return null
  if (typeof line.role === 'string' && line.type === undefined) return new TranscriptCheck()
  return typeof line.type === 'string' ? new LogCheck() : null
}

type CheckedMessage = { readonly seq: number; readonly turn: string; readonly role: string }

/**
 * A transcript of `holdfast export --transcript`: its numbers grow, every turn begins with a
 * message of the user, and no turn continues after another has begun.
 */
export class TranscriptCheck {
  readonly #problems: string[] = []
  /** All turns, and whether they have an answer. */
  readonly #turns = new Map<string, boolean>()
  #current: string | null = null
  #seq = 0
  #messages = 0

  add({ seq, turn, role }: CheckedMessage): void {
    const bad = (problem: string) => this.#problems.push(`message ${seq} ${problem}`)
    this.#messages += 1
    if (seq <= this.#seq) bad(`follows message ${this.#seq}`)
    this.#seq = seq
    if (role === 'user') {
      if (this.#turns.has(turn)) bad(`begins turn ${turn} again`)
      this.#turns.set(turn, false)
      this.#current = turn
    } else if (turn === this.#current) this.#turns.set(turn, true)
    else bad(`is of turn ${turn}, within turn ${this.#current}`)
  }

  /** Turns without an answer have failed, were cancelled or still run: only the log shows which. */
  finish(): Findings {
    const pending = [...this.#turns.keys()].filter((turn) => this.#turns.get(turn) === false)
    const [events, turns] = [this.#messages, this.#turns.size]
    return { events, turns, problems: this.#problems, pending }
  }
}

export type ClaudeLine = {
  /** Claude Code also writes lines that are not part of the conversation: they have none. */
  readonly uuid?: string
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

/**
 * A Claude Code transcript must be linear. Its lines are chained by `uuid` and `parentUuid`;
 * Claude's context is the chain that leads to the last line. So all prompts and answers must be on
 * that chain: one beside it is a fork, and a second root is a second conversation.
 *
 * Results of parallel tools may be beside the chain, and a sub-agent (`isSidechain`) has a chain of
 * its own. A compaction starts a new chain, but names its predecessor (`logicalParentUuid`).
 */
export class ClaudeCheck {
  readonly #entries = new Map<string, ChainEntry>()
  readonly #problems: string[] = []
  #lastMessage: string | null = null

  add(entry: ClaudeLine, line: number): void {
    const { uuid, isSidechain } = entry
    if (isSidechain === true || typeof uuid !== 'string') return
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

type RecordingLine = {
  readonly n: number
  readonly from?: 'client' | 'browser'
  readonly message?: RecordedMessage | string
  /** How many messages the server could not write in time. */
  readonly dropped?: number
}

export type RecordedMessage = {
  readonly id?: number
  readonly method?: string
  readonly sessionId?: string
  readonly params?: Readonly<Record<string, unknown>>
  readonly result?: Readonly<Record<string, unknown>>
}

/**
 * A recording of a browser client's traffic (`serve --record`): no line is missing, every reply
 * belongs to a pending command of the same session, and no session sends anything before it is
 * announced or after it is detached.
 */
export class RecordingCheck {
  readonly #problems: string[] = []
  /** Pending commands: how many of one session and id. */
  readonly #waiting = new Map<string, number>()
  readonly #sessions = new Map<string, 'announced' | 'gone'>()
  #n = 0
  #commands = 0
  /** Messages were dropped: what is missing cannot be checked any more. */
  #isTorn = false

  add({ n, dropped, message, from }: RecordingLine): void {
    if (n !== this.#n + 1) this.#bad(`line ${n} follows line ${this.#n}`)
    this.#n = n
    if (dropped !== undefined) this.#isTorn = true
    if (typeof message !== 'object' || message === null) return
    if (from !== 'client') return this.#fromBrowser(message)
    this.#commands += 1
    this.#count(`${message.sessionId ?? ''}/${message.id}`, 1)
  }

  #fromBrowser({ id, sessionId = '', method, params, result }: RecordedMessage): void {
    if (id !== undefined) this.#reply(id, sessionId)
    else this.#event(sessionId)
    if (method === 'Target.attachedToTarget') this.#mark(params?.['sessionId'], 'announced')
    if (method === 'Target.detachedFromTarget') this.#mark(params?.['sessionId'], 'gone')
    if (id !== undefined) this.#mark(result?.['sessionId'], 'announced')
  }

  #reply(id: number, sessionId: string): void {
    const own = `${sessionId}/${id}`
    // The reply to a command for an unknown session has no session.
    const name = this.#waiting.has(own) ? own : this.#stray(id, sessionId)
    if (name !== undefined) this.#count(name, -1)
    else if (!this.#isTorn) this.#bad(`line ${this.#n} replies to ${own}, which has no command`)
  }

  #count(name: string, change: 1 | -1): void {
    const waiting = (this.#waiting.get(name) ?? 0) + change
    if (waiting === 0) this.#waiting.delete(name)
    else this.#waiting.set(name, waiting)
  }

  #stray(id: number, sessionId: string): string | undefined {
    if (sessionId !== '') return undefined
    return [...this.#waiting.keys()].find((name) => {
      const [session = '', asked] = name.split('/')
      return asked === String(id) && this.#sessions.get(session) !== 'announced'
    })
  }

  #event(sessionId: string): void {
    const state = this.#sessions.get(sessionId)
    if (sessionId === '' || this.#isTorn || state === 'announced') return
    const problem = state === 'gone' ? 'is gone' : 'was not announced'
    this.#bad(`line ${this.#n} is of a session that ${problem}`)
  }

  #mark(sessionId: unknown, state: 'announced' | 'gone'): void {
    if (typeof sessionId === 'string') this.#sessions.set(sessionId, state)
  }

  #bad(problem: string): void {
    if (this.#problems.length < 20) this.#problems.push(problem)
  }

  /** Pending: commands without a reply, as of a session that was detached meanwhile. */
  finish(): Findings {
    const pending = [...this.#waiting.keys()].map((name) => name.replace(/^\//, ''))
    return { events: this.#n, turns: this.#commands, problems: this.#problems, pending }
  }
}
