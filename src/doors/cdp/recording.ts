/**
 * A client's traffic as lines of JSON in a file, redacted: `{n, at, from, message}`. `n` counts
 * from 1 without a gap; what could not be written in time is told by a line of its own.
 */
import { createWriteStream, type WriteStream } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Clock } from '../../core/index.ts'
import type { CdpLimits } from './limits.ts'
import { redacted } from './redaction.ts'

export type RecordingOptions = {
  readonly folder: string
  /** The file's name: made of ids, never of what a client says. */
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

  /** For the owner's eyes only. */
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

  note(from: 'client' | 'browser', message: Buffer): void {
    const { recordUnwrittenBytesMax, recordBytesMax } = this.#limits
    if (this.#file.writableLength > recordUnwrittenBytesMax || this.#bytes > recordBytesMax) {
      this.#dropped += 1
      return
    }
    this.#tellDropped()
    this.#write({ from, message: readable(message) })
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

  close(): void {
    this.#tellDropped()
    this.#file.end()
  }
}

function readable(message: Buffer): unknown {
  try {
    const value: unknown = JSON.parse(message.toString())
    if (typeof value === 'object' && value !== null)
      return redacted(value as Record<string, unknown>)
  } catch {
    // Told by its size alone.
  }
  return `[${message.length} bytes that are no message]`
}
