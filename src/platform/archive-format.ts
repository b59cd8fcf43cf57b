/**
 * The file of an archived session, format 1: JSON lines, perhaps compressed by gzip. The first
 * line has what a store knows of the session (`archive`), then come its events as they were
 * stored, then the bytes of its images and files in base64 (`blob`). The last line (`end`) has the
 * SHA-256 of all bytes before it, so that a file that was cut or changed is noticed. Nothing in it
 * says when it was written: the same session makes the same bytes.
 */
import { createHash } from 'node:crypto'
import {
  blobsNamedBy,
  checkSessionId,
  DEFAULT_PRINCIPAL,
  FoldedLog,
  HoldfastError,
  invalid,
  LogCheck,
  messageOf,
  type CheckedEvent,
  type EventOf,
  type Findings,
  type RestoredSession,
  type SessionRow,
  type Store,
} from '../core/index.ts'

export const ARCHIVE_FORMAT = 1

/** Images and files make the longest lines, and events with long answers. */
export const ARCHIVE_LINE_BYTES_MAX = 64 * 1_048_576
/** Events that are read at once. */
const PAGE = 256

/** The lines of a closed session, the last one too. Throws if the store has not all of it. */
export async function* archiveLines(
  row: SessionRow,
  store: Pick<Store, 'read' | 'readBlob'>,
): AsyncGenerator<string> {
  const hash = createHash('sha256')
  let blobs = 0
  for await (const line of contentLines(row, store)) {
    hash.update(`${line}\n`)
    if (line.startsWith('{"type":"blob",')) blobs += 1
    yield line
  }
  yield JSON.stringify({ type: 'end', events: row.seq, blobs, sha256: hash.digest('hex') })
}

async function* contentLines(
  row: SessionRow,
  store: Pick<Store, 'read' | 'readBlob'>,
): AsyncGenerator<string> {
  yield JSON.stringify(headerOf(row))
  const digests = new Set<string>()
  for (let after = 0; after < row.seq;) {
    const { events } = await store.read(row.id, after, PAGE)
    for (const { seq, body } of events) {
      for (const digest of blobsNamedBy(JSON.parse(body) as object)) digests.add(digest)
      after = seq
      yield body
    }
    if (events.length === 0) throw missing(`the log of session ${row.id} ends at ${after}`)
  }
  for (const digest of digests) {
    const data = await store.readBlob(row.id, digest)
    if (data === null) throw missing(`session ${row.id} has no bytes ${digest}`)
    const base64 = Buffer.from(data).toString('base64')
    yield JSON.stringify({ type: 'blob', digest, bytes: data.length, data: base64 })
  }
}

function missing(message: string): HoldfastError {
  return new HoldfastError('store_corrupt', message)
}

function headerOf(row: SessionRow) {
  const { id, principal, key, agent, internal, labels, shares, createdAt, seq } = row
  const named = { principal, key, agent, internal, labels, shares, createdAt }
  return { type: 'archive', format: ARCHIVE_FORMAT, session: id, ...named, events: seq } as const
}

type Header = ReturnType<typeof headerOf>
type BlobLine = { readonly digest: string; readonly bytes: number; readonly data: string }
type EndLine = { readonly events: number; readonly blobs: number; readonly sha256: string }

/**
 * Checks an archive line by line: that it is whole and unchanged, that its log is linear and can be
 * folded, and that the bytes are there that it names. With `isKept` it keeps what it reads.
 */
export class ArchiveCheck {
  readonly #isKept: boolean
  readonly #hash = createHash('sha256')
  readonly #log = new LogCheck()
  readonly #named = new Set<string>()
  readonly #found = new Set<string>()
  readonly #events: string[] = []
  readonly #blobs: { readonly digest: string; readonly data: Uint8Array }[] = []
  #header: Header | null = null
  /** The log alone, as `holdfast export` writes it. */
  #isPlain = false
  /** Null after an event that could not be folded. */
  #folded: FoldedLog | null = null
  #count = 0
  #end: EndLine | null = null

  constructor({ isKept = false }: { readonly isKept?: boolean } = {}) {
    this.#isKept = isKept
  }

  /** A line, as an object and as its text. */
  add(line: object, _number: number, text: string): void {
    if (this.#end !== null) return this.#bad('something follows the end of the archive')
    const { type } = line as { readonly type?: unknown }
    if (type === 'end') return this.#addEnd(line as EndLine)
    this.#hash.update(`${text}\n`)
    if (this.#header === null) {
      this.#addHeader(headerFrom(line))
      if (isArchiveHeader(line)) return
      this.#isPlain = true
    }
    if (type === 'blob') this.#addBlob(line as BlobLine)
    else this.#addEvent(line as CheckedEvent, text)
  }

  #bad(problem: string): void {
    this.#log.problem(problem)
  }

  #addHeader(header: Header): void {
    checkHeader(header)
    this.#header = header
    this.#folded = new FoldedLog(header.session)
  }

  #addEvent(event: CheckedEvent, text: string): void {
    this.#count += 1
    this.#log.add(event)
    if (event.type === 'session.created') this.#checkNames(event as EventOf<'session.created'>)
    if (this.#found.size > 0) this.#bad(`event ${event.seq} comes after images and files`)
    for (const digest of blobsNamedBy(event)) this.#named.add(digest)
    if (this.#isKept) this.#events.push(text)
    try {
      this.#folded?.add({ seq: this.#count, body: text })
    } catch (error) {
      this.#folded = null
      this.#bad(messageOf(error))
    }
  }

  /** Who may see it must be the same before and after. */
  #checkNames({ id, principal = DEFAULT_PRINCIPAL, internal }: EventOf<'session.created'>): void {
    const { session, ...header } = this.#header!
    if (id === session && principal === header.principal && internal === header.internal) return
    this.#bad('its first line is about another session than its log')
  }

  #addBlob({ digest, bytes, data }: BlobLine): void {
    const content = Buffer.from(typeof data === 'string' ? data : '', 'base64')
    const actual = `sha256:${createHash('sha256').update(content).digest('hex')}`
    if (actual !== digest || content.length !== bytes) this.#bad(`the bytes ${digest} were changed`)
    if (!this.#named.has(digest)) this.#bad(`no event names the bytes ${digest}`)
    if (this.#found.has(digest)) this.#bad(`the bytes ${digest} are there twice`)
    this.#found.add(digest)
    if (this.#isKept) this.#blobs.push({ digest, data: content })
  }

  #addEnd(end: EndLine): void {
    this.#end = end
    const { events, blobs, sha256 } = end
    if (events !== this.#count || blobs !== this.#found.size) {
      const found = `${this.#count} events and ${this.#found.size} images and files`
      this.#bad(`its end says ${events} events and ${blobs} images and files, there are ${found}`)
    }
    if (this.#hash.digest('hex') !== sha256) this.#bad('it was changed: its checksum is wrong')
  }

  finish(): Findings {
    if (this.#header === null) this.#bad('it is empty')
    else if (this.#end === null && !this.#isPlain) this.#bad('it has no end: it was cut')
    for (const digest of this.#named) {
      if (!this.#found.has(digest)) this.#bad(`the bytes ${digest} are missing`)
    }
    if (this.#folded?.session?.closed === null) {
      this.#bad('its session is open at its end: it was exported before that was closed, or cut')
      return this.#log.finish()
    }
    try {
      this.#folded?.finish({ seq: this.#count, state: 'closed' })
    } catch (error) {
      this.#bad(messageOf(error))
    }
    return this.#log.finish()
  }

  /** What it has kept, after it was finished without a problem. */
  session(at: number): RestoredSession {
    if (this.#header === null) throw invalid('archive', 'has no beginning')
    const { session: id, ...header } = this.#header
    const { principal, key, agent, internal, labels, shares, createdAt } = header
    const named = { id, principal, key, agent, internal, labels, shares, createdAt }
    return { ...named, events: this.#events, blobs: this.#blobs, at }
  }
}

/** The first line, or what the first event says in its place. */
function headerFrom(line: object): Header {
  if (isArchiveHeader(line)) return line as Header
  const created = line as EventOf<'session.created'>
  if (created.type !== 'session.created') throw invalid('archive', 'is none, and no exported log')
  const { id, principal = DEFAULT_PRINCIPAL, key, agent, internal, labels, at: createdAt } = created
  const named = { principal, key, agent, internal, labels, shares: [], createdAt }
  return { type: 'archive', format: ARCHIVE_FORMAT, session: id, ...named, events: 0 }
}

/** Whether this is the first line of an archive, of any format. */
export function isArchiveHeader(line: object): boolean {
  return (line as { readonly type?: unknown }).type === 'archive'
}

function checkHeader(header: Header): void {
  const { format, session, principal, key, agent, internal, labels, shares, createdAt } = header
  if (format !== ARCHIVE_FORMAT) {
    const found = JSON.stringify(format)
    throw invalid('archive', `has format ${found}: this Holdfast knows format 1`)
  }
  const isNamed = [session, principal, agent].every((name) => typeof name === 'string')
  const isOwned = (key === null || typeof key === 'string') && typeof internal === 'boolean'
  const values = Object.values(labels ?? { none: null })
  const isLabelled = !Array.isArray(labels) && values.every((value) => typeof value === 'string')
  const isShared = Array.isArray(shares) && shares.every(isShare) && areDifferent(shares)
  if (!isNamed || !isOwned || !isLabelled || !isShared || !Number.isSafeInteger(createdAt)) {
    throw invalid('archive', 'has a first line that says too little, or something else')
  }
  checkSessionId(session)
}

function isShare(share: unknown): boolean {
  const { with: holder, scopes } = Object(share) as { readonly with?: unknown; scopes?: unknown }
  const isList = Array.isArray(scopes) && scopes.every((scope) => typeof scope === 'string')
  return typeof holder === 'string' && isList
}

function areDifferent(shares: Header['shares']): boolean {
  return new Set(shares.map((share) => share.with)).size === shares.length
}
