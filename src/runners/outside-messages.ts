/**
 * What was written to the conversations of sessions without Holdfast. The agent's own program takes
 * no lock, so a person may continue a session there meanwhile. At the end of each turn the size of
 * the file that has the conversation is kept; what is behind that before the next turn, and is none
 * of ours, was written elsewhere.
 */
import type { FileHandle } from 'node:fs/promises'
import {
  newest,
  type EarlierMessage,
  type LastPosition,
  type RunnerContext,
  type RunnerOutput,
} from '../core/index.ts'
import type { Workplace } from '../platform/child.ts'
import { findLog, linesOf, openLog, type ConversationFiles } from './conversation-files.ts'
import { asList, asObject } from './json.ts'
import type { LoggedMessage } from './logged-message.ts'
import { activity } from './outbox.ts'

type Conversation = { readonly id: string; readonly backend: string | null }

type Known = {
  /** Null while a turn runs, and after one that has not ended here. */
  last: LastPosition | null
  /** The size of the file at the end of the last turn; null: not known. */
  readonly bytes: number | null
  readonly log: string | null
  /** The inputs of the last moments, by the agent's ids: they may not be in the file yet. */
  readonly sent: readonly { readonly id: string; readonly at: number }[]
}

/** How many sessions are remembered; of others the log is read. */
const KNOWN_MAX = 10_000
/** How much of what was written elsewhere is recorded, in characters. */
const RECORDED_CHARS_MAX = 32_768
/** How much of what was written elsewhere is read: its end. */
const READ_BYTES_MAX = 67_108_864
/** Agents write their files a moment after they have answered. */
const UNWRITTEN_MS = 5_000
/** More inputs than an agent takes until it writes them. */
const OWN_MAX = 64

export class OutsideMessages {
  readonly #workplace: Workplace
  readonly #files: ConversationFiles | null
  readonly #known = new Map<string, Known>()

  /** Without `files` it is not known where the agent keeps its conversations. */
  constructor(workplace: Workplace, files: ConversationFiles | null) {
    this.#workplace = workplace
    this.#files = workplace.hasOwnHome ? null : files
  }

  /** Before a turn: what to record of what was written since the one before it. */
  async report({ session, lastPosition }: RunnerContext): Promise<RunnerOutput | null> {
    if (this.#files === null || session.backend === null) return null
    const known = this.#known.get(session.id)
    const last = known?.last ?? (await lastPosition())
    const { log = null, sent = [] } = known ?? {}
    this.#remember(session.id, { last: null, bytes: bytesOf(last), log, sent })
    const written = await this.since(session, last)
    if (written === null || written.length === 0) return null
    const message = 'the conversation of a session was continued outside Holdfast'
    const facts = { session: session.id, messages: written.length }
    this.#workplace.diagnose('conversation_changed', message, facts)
    const messages = newest(written, RECORDED_CHARS_MAX)
    const omitted = written.length - messages.length
    return activity('conversation_changed', { messages, omitted })
  }

  /** After a turn with the agent's id `input`: what is kept about its end, besides the `facts`. */
  async after({ session }: RunnerContext, input: string | null, facts: object): Promise<object> {
    if (this.#files === null || session.backend === null) return facts
    const now = performance.now()
    // A file that is not there yet has nothing of others, but a fork begins with its source.
    const before = session.origin === null ? 0 : null
    const known = this.#known.get(session.id) ?? { log: null, bytes: before, sent: [] }
    const log = await this.#logOf(session)
    const size = log === null ? null : await this.#sizeOf(session.id, log)
    const bytes = size ?? (input === null ? null : known.bytes)
    const sent = known.sent.filter(({ at }) => now - at < UNWRITTEN_MS)
    if (input !== null) sent.push({ id: input, at: now })
    const own = sent.length === 0 ? {} : { own: sent.slice(-OWN_MAX).map(({ id }) => id) }
    const position = bytes === null ? facts : { ...facts, ...own, bytes }
    this.#remember(session.id, { last: { position, inputs: [] }, bytes, log, sent })
    return position
  }

  /** What was written since a position; null: not known. */
  async since(
    session: Conversation,
    last: LastPosition,
  ): Promise<readonly EarlierMessage[] | null> {
    const bytes = bytesOf(last)
    const log = bytes === null ? null : await this.#logOf(session)
    // A file that is not there yet has nothing of others.
    if (bytes === 0 && log === null) return []
    const file = log === null ? null : await this.#open(session.id, log)
    if (bytes === null || file === null) return null
    try {
      const { size } = await file.stat()
      if (size <= bytes) return []
      const range = { start: Math.max(bytes, size - READ_BYTES_MAX), end: size - 1 }
      return await this.#readOthers(file, range, ownIn(last))
    } finally {
      await file.close()
    }
  }

  /** The session has another owner, or is closed; null: all sessions. */
  forget(session: string | null): void {
    if (session === null) this.#known.clear()
    else this.#known.delete(session)
  }

  /** The inputs of others, with the answers to them. */
  async #readOthers(
    file: FileHandle,
    range: { readonly start: number; readonly end: number },
    isOurs: (input: LoggedMessage) => boolean,
  ): Promise<readonly EarlierMessage[]> {
    const others: EarlierMessage[] = []
    let isOther = false
    for await (const line of linesOf(file, range)) {
      for (const message of this.#files?.messagesIn(line) ?? []) {
        if (message.role === 'user') isOther = !isOurs(message)
        const { role, text, at } = message
        if (isOther) others.push({ role, text, at })
      }
    }
    return others
  }

  #remember(session: string, known: Known): void {
    this.#known.delete(session)
    this.#known.set(session, known)
    const [oldest] = this.#known.keys()
    if (this.#known.size > KNOWN_MAX && oldest !== undefined) this.#known.delete(oldest)
  }

  async #logOf({ id, backend }: Conversation): Promise<string | null> {
    if (this.#files === null || backend === null) return null
    const known = this.#known.get(id)?.log ?? null
    if (known !== null) return known
    // If it cannot be read, nothing is known about it; the agent says what is wrong.
    return findLog(this.#files, this.#workplace.environmentOf(id), backend).catch(() => null)
  }

  /** Null: it is not there, or cannot be read. */
  async #open(session: string, log: string): Promise<FileHandle | null> {
    if (this.#files === null) return null
    return openLog(this.#files, this.#workplace.environmentOf(session), log).catch(() => null)
  }

  async #sizeOf(session: string, log: string): Promise<number | null> {
    const file = await this.#open(session, log)
    if (file === null) return null
    try {
      return (await file.stat()).size
    } finally {
      await file.close()
    }
  }
}

function bytesOf({ position }: LastPosition): number | null {
  const { bytes } = asObject(position)
  return typeof bytes === 'number' ? bytes : null
}

/** Tells which inputs are ours; each that is known by its text only counts once. */
function ownIn(last: LastPosition): (input: LoggedMessage) => boolean {
  const own = asList(asObject(last.position)['own'])
  // A turn that has no end in our log, as after a crash, is known by what was said.
  const inputs = [...last.inputs]
  return ({ id, text }) => {
    if (own.includes(id)) return true
    const index = inputs.indexOf(text)
    if (index >= 0) inputs.splice(index, 1)
    return index >= 0
  }
}
