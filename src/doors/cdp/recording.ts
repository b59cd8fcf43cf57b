/**
 * Records a client's traffic, redacted, as lines of JSON: `{n, at, from, message}`. `n` counts from
 * 1 without a gap; a line `{n, at, dropped}` stands for messages that were not written in time.
 */
import { createWriteStream, type WriteStream } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Clock } from '../../core/index.ts'
import type { CdpLimits } from './limits.ts'
import { eventMethod, sessionOf } from './message.ts'
import type { Params } from './protocol.ts'
import { redacted } from './redaction.ts'
import { scan } from './scan.ts'

/** Long enough for the beginning of a reply: `{"id":`, a number, a comma. */
const ID_BYTES = 20

type Side = 'client' | 'browser'

export type RecordingOptions = {
  readonly folder: string
  /** The file's name, of ids only: nothing that a client has sent is in it. */
  readonly name: string
  readonly clock: Clock
  readonly limits: CdpLimits
}

export class Recording {
  readonly #file: WriteStream
  readonly #clock: Clock
  readonly #limits: CdpLimits
  #lines = 0
  #bytes = 0
  #dropped = 0

  /** Readable only for the owner of the process. */
  static async open({ folder, name, clock, limits }: RecordingOptions): Promise<Recording> {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    const file = createWriteStream(join(folder, `${name}.jsonl`), { flags: 'wx', mode: 0o600 })
    await new Promise<void>((resolve, reject) => {
      file.once('open', () => resolve())
      file.once('error', reject)
    })
    // A full disk ends the recording, not the client.
    file.on('error', () => file.destroy())
    return new Recording(file, clock, limits)
  }

  constructor(file: WriteStream, clock: Clock, limits: CdpLimits) {
    this.#file = file
    this.#clock = clock
    this.#limits = limits
  }

  note(from: Side, message: Buffer): void {
    const { recordUnwrittenBytesMax, recordBytesMax } = this.#limits
    if (this.#file.writableLength > recordUnwrittenBytesMax || this.#bytes > recordBytesMax) {
      this.#dropped += 1
      return
    }
    this.#tellDropped()
    this.#write({ from, message: this.#readable(from, message) })
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
    const text = `${JSON.stringify({ n: this.#lines, at: this.#clock.now(), ...line })}\n`
    this.#bytes += text.length
    this.#file.write(text)
  }

  #readable(from: Side, message: Buffer): unknown {
    if (message.length <= this.#limits.recordMessageBytesMax) return readable(message)
    return (
      (from === 'client' ? commandOutline(message) : browserOutline(message)) ?? unreadable(message)
    )
  }

  close(): void {
    this.#tellDropped()
    this.#file.end()
  }
}

function readable(message: Buffer): unknown {
  try {
    const value: unknown = JSON.parse(message.toString())
    if (typeof value === 'object' && value !== null) return redacted(value as Params)
  } catch {
    // It is recorded by its size alone.
  }
  return unreadable(message)
}

function unreadable({ length }: Buffer): string {
  return `[${length} bytes that are no message]`
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
  const session = sessionOf(message)
  const sessionId = session === null ? {} : { sessionId: session }
  const method = eventMethod(message)
  if (method !== null) return { method, params: rest, ...sessionId }
  const id = /^\{"id":(-?\d+),/.exec(message.toString('latin1', 0, ID_BYTES))?.[1]
  return { ...(id === undefined ? {} : { id: Number(id) }), result: rest, ...sessionId }
}
