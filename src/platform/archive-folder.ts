/**
 * The archive: a folder of the operator's, with a folder for each day on which sessions were closed
 * (UTC), and in it a file for each session. Its name is the session's id and the beginning of its
 * content's digest, so that the same session always makes the same file.
 *
 * A file is written under another name, synced, and then renamed: one that has its name is whole.
 */
import { createHash, randomUUID, type Hash } from 'node:crypto'
import { constants } from 'node:fs'
import { access, mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createGzip } from 'node:zlib'
import type { SessionArchive, SessionRow, Store } from '../core/index.ts'
import { linesOfFile } from './archive-file.ts'
import { archiveLines } from './archive-format.ts'
import { systemClock } from './clock.ts'

export type ArchiveOptions = {
  readonly folder: string
  /** By gzip. */
  readonly compress?: boolean
}

/** Files that were not finished are removed after so long: no node can still be writing them. */
const STALE_PART_MS = 3_600_000
const PART = '.part'
const ENDINGS = ['.jsonl', '.jsonl.gz'] as const

export class ArchiveFolder implements SessionArchive {
  readonly folder: string
  readonly #compress: boolean

  constructor({ folder, compress = false }: ArchiveOptions) {
    this.folder = resolve(folder)
    this.#compress = compress
  }

  /** Throws if nothing can be written there. Removes what a crash has left. */
  async open(): Promise<void> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 })
    await access(this.folder, constants.R_OK | constants.W_OK | constants.X_OK)
    const now = systemClock.now()
    for await (const file of this.#files()) {
      if (!file.endsWith(PART)) continue
      const { mtimeMs } = await stat(file)
      if (now - mtimeMs > STALE_PART_MS) await rm(file, { force: true })
    }
  }

  async keep(row: SessionRow, store: Pick<Store, 'read' | 'readBlob'>): Promise<void> {
    const last = (await store.read(row.id, row.seq - 1, 1)).events[0]
    const { at = row.updatedAt } = JSON.parse(last?.body ?? '{}') as { readonly at?: number }
    const folder = join(this.folder, new Date(at).toISOString().slice(0, 10))
    await mkdir(folder, { recursive: true, mode: 0o700 })
    const part = join(folder, `${randomUUID()}${PART}`)
    try {
      const digest = await this.#write(part, archiveLines(row, store))
      const name = `${nameOf(row.id)}-${digest.slice(0, 16)}`
      const [ending, other] = this.#compress ? ENDINGS.toReversed() : ENDINGS
      // It was archived before the setting was changed.
      if (await isThere(join(folder, `${name}${other}`))) return
      await rename(part, join(folder, `${name}${ending}`))
      await syncFolder(folder)
      await syncFolder(this.folder)
    } finally {
      await rm(part, { force: true })
    }
  }

  /** Returns the digest of what was written, before it was compressed. */
  async #write(part: string, lines: AsyncIterable<string>): Promise<string> {
    const hash = createHash('sha256')
    const text = Readable.from(hashed(lines, hash), { objectMode: false })
    const file = await open(part, 'wx', 0o600)
    const write = async (chunks: AsyncIterable<Buffer>): Promise<void> => {
      for await (const chunk of chunks) await file.writeFile(chunk)
    }
    try {
      await (this.#compress ? pipeline(text, createGzip(), write) : pipeline(text, write))
      await file.sync()
    } finally {
      await file.close()
    }
    return hash.digest('hex')
  }

  async remove(sessions: readonly string[]): Promise<number> {
    const names = new Set(sessions.map(nameOf))
    let removed = 0
    for await (const file of this.#files()) {
      const name = /([^/\\]+)-[0-9a-f]{16}\.jsonl(\.gz)?$/.exec(file)?.[1]
      if (name === undefined || !names.has(name)) continue
      await rm(file, { force: true })
      removed += 1
    }
    return removed
  }

  /** As the first line of each file says. */
  async removeOf(principal: string): Promise<number> {
    let removed = 0
    for await (const file of this.#files()) {
      if (!/\.jsonl(\.gz)?$/.test(file) || (await principalOf(file)) !== principal) continue
      await rm(file, { force: true })
      removed += 1
    }
    return removed
  }

  async *#files(): AsyncGenerator<string> {
    for (const day of await readdir(this.folder, { withFileTypes: true })) {
      if (!day.isDirectory() || !/^\d{4}-\d\d-\d\d$/.test(day.name)) continue
      const folder = join(this.folder, day.name)
      for (const file of await readdir(folder)) yield join(folder, file)
    }
  }
}

const NAME_CHARS_MAX = 200

/** A name for the files of a session; ids of any length and with any of their characters fit. */
function nameOf(id: string): string {
  const name = encodeURIComponent(id)
  if (name.length <= NAME_CHARS_MAX) return name
  const digest = createHash('sha256').update(id).digest('hex')
  return `${name.slice(0, NAME_CHARS_MAX - 20)}~${digest.slice(0, 16)}`
}

/** Null: it cannot be read. */
async function principalOf(file: string): Promise<unknown> {
  try {
    for await (const line of linesOfFile(file)) {
      return (JSON.parse(line ?? '{}') as { readonly principal?: unknown }).principal
    }
  } catch {
    // It is damaged, or was removed meanwhile.
  }
  return null
}

async function* hashed(lines: AsyncIterable<string>, hash: Hash): AsyncGenerator<Buffer> {
  for await (const line of lines) {
    const bytes = Buffer.from(`${line}\n`)
    hash.update(bytes)
    yield bytes
  }
}

/** Throws if that cannot be known: what is not known to be archived is not erased. */
async function isThere(file: string): Promise<boolean> {
  try {
    await stat(file)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false
    throw error
  }
}

/** So that a name too outlasts the machine. Windows opens no folder. */
async function syncFolder(folder: string): Promise<void> {
  if (process.platform === 'win32') return
  const handle = await open(folder, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}
