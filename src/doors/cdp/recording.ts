/**
 * Records a client's traffic, redacted, as lines of JSON: `{n, at, from, message}`. `n` counts from
 * 1 without a gap; a line `{n, at, dropped}` stands for messages that were not written in time.
 */
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createWriteStream, type WriteStream } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Clock } from '../../core/index.ts'
import type { CdpLimits } from './limits.ts'
import { eventMethod, sessionOf, type Params } from './protocol.ts'
import { scan } from './command.ts'

/** Long enough for the beginning of a reply: `{"id":`, a number, a comma. */
const ID_BYTES = 20

type RecordingOptions = {
  readonly folder: string
  readonly session: string
  readonly clock: Clock
  readonly limits: CdpLimits
}

export class Recording {
  readonly #file: WriteStream
  readonly #options: RecordingOptions
  #lines = 0
  #bytes = 0
  #dropped = 0

  /** Readable only for the owner of the process. */
  static async open(options: RecordingOptions): Promise<Recording> {
    const { folder, session } = options
    await mkdir(folder, { recursive: true, mode: 0o700 })
    // Of ids only: nothing that a client has sent is in the file's name.
    const name = `${session.replaceAll(/[^\w-]/g, '_')}-${randomUUID()}.jsonl`
    const file = createWriteStream(join(folder, name), { flags: 'wx', mode: 0o600 })
    await once(file, 'open')
    // A full disk ends the recording, not the client.
    file.on('error', () => file.destroy())
    return new Recording(file, options)
  }

  constructor(file: WriteStream, options: RecordingOptions) {
    this.#file = file
    this.#options = options
  }

  note(from: 'client' | 'browser', message: Buffer): void {
    const { recordUnwrittenBytesMax, recordBytesMax } = this.#options.limits
    if (this.#file.writableLength > recordUnwrittenBytesMax || this.#bytes > recordBytesMax) {
      this.#dropped += 1
      return
    }
    this.#tellDropped()
    const isLarge = message.length > this.#options.limits.recordMessageBytesMax
    const outline = from === 'client' ? commandOutline : browserOutline
    const shown = isLarge ? outline(message) : readable(message)
    this.#write({ from, message: shown ?? `[${message.length} bytes that are no message]` })
  }

  #tellDropped(): void {
    if (this.#dropped === 0) return
    const dropped = this.#dropped
    this.#dropped = 0
    this.#write({ dropped })
  }

  #write(line: object): void {
    if (this.#file.destroyed) return
    this.#lines += 1
    const text = `${JSON.stringify({ n: this.#lines, at: this.#options.clock.now(), ...line })}\n`
    this.#bytes += text.length
    this.#file.write(text)
  }

  close(): void {
    this.#tellDropped()
    this.#file.end()
  }
}

/** Null: it is no message, and recorded by its size alone. */
function readable(message: Buffer): object | null {
  try {
    const value: unknown = JSON.parse(message.toString())
    return typeof value === 'object' && value !== null ? redacted(value as Params) : null
  } catch {
    return null
  }
}

/** Describes a large message without parsing it, which could take fifty times its size. */
function commandOutline(message: Buffer): object | null {
  const command = scan(message)
  if (command === null) return null
  const { id, method, sessionId } = command
  return { id, method, params: `[${message.length} bytes]`, sessionId }
}

function browserOutline(message: Buffer): object {
  const rest = `[${message.length} bytes]`
  const sessionId = sessionOf(message) ?? undefined
  const method = eventMethod(message)
  if (method !== null) return { method, params: rest, sessionId }
  const id = /^\{"id":(-?\d+),/.exec(message.toString('latin1', 0, ID_BYTES))?.[1]
  return { id: id === undefined ? id : Number(id), result: rest, sessionId }
}

const REDACTED = '[redacted]'
const LONG_CHARS = 1_000
const SHOWN_CHARS = 200

/** Names of headers and fields whose value is a secret. */
const SECRET_NAME = /^(proxy-)?authorization$|cookie|token|secret|passw|api[-_]?key|^username$/i

/** Fields with input that was posted or passed to a page. */
const SECRET_FIELDS: ReadonlySet<string> = new Set(['postData', 'postDataEntries', 'arguments'])

/** Commands whose params are typed input. */
const TYPED = /^Input\.(insertText|dispatchKeyEvent|imeSetComposition)$/

const URL_SECRET = /([?&#][^=&#\s"]*(?:token|secret|passw|key|auth|sig|code)[^=&#\s"]*=)[^&#\s"]+/gi
const URL_USER = /\/\/[^/?#\s"@]+@/g

/**
 * A message without cookies, credentials, and what was typed or posted; long texts are cut. The
 * content of pages is kept.
 */
export function redacted(message: Params): Params {
  const { method, params } = message
  const typed = typeof method === 'string' && TYPED.test(method) && params !== undefined
  return fieldsOf(typed ? { ...message, params: REDACTED } : message)
}

function fieldsOf(fields: Params): Params {
  const { name, value } = fields
  // A cookie, or a header in a list, has its name in a field.
  const isSecret = typeof name === 'string' && typeof value === 'string'
  const isCookie = isSecret && ('domain' in fields || 'url' in fields || 'httpOnly' in fields)
  return Object.fromEntries(
    Object.entries(fields).map(([key, item]) => {
      const hides = key === 'value' && isSecret && (isCookie || SECRET_NAME.test(name))
      return [key, hides ? REDACTED : valueOf(key, item)]
    }),
  )
}

function valueOf(key: string, item: unknown): unknown {
  if (SECRET_FIELDS.has(key) && item !== undefined) return REDACTED
  if (typeof item === 'string') return SECRET_NAME.test(key) ? REDACTED : textOf(item)
  if (Array.isArray(item)) return item.map((each: unknown) => valueOf('', each))
  return typeof item === 'object' && item !== null ? fieldsOf(item as Params) : item
}

function textOf(text: string): string {
  const { length } = text
  const shown = length > LONG_CHARS ? `${text.slice(0, SHOWN_CHARS)}… [${length} characters]` : text
  return shown.replaceAll(URL_SECRET, `$1${REDACTED}`).replaceAll(URL_USER, `//${REDACTED}@`)
}
