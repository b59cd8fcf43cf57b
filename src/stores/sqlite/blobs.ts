/**
 * The bytes of images and files, once per session by their digest. Those are loose that no event
 * names yet.
 */
import type { CopiedBlobs, GivenBlob, PutBlobs, RestoredSession } from '../../core/store.ts'
import { storedName } from '../names.ts'
import { prepareAll, type Prepared, type SqliteDatabase } from './driver.ts'

const SQL = {
  open: `SELECT number FROM sessions WHERE id = ? AND state = 'open'`,
  size: 'SELECT bytes FROM blobs WHERE session = ? AND digest = ?',
  total: 'SELECT coalesce(sum(bytes), 0) AS bytes FROM blobs WHERE session = ?',
  insert: 'INSERT INTO blobs (session, digest, bytes, data) VALUES (?, ?, ?, ?)',
  count: 'UPDATE sessions SET bytes = bytes + ? WHERE number = ?',
  read: `SELECT data FROM blobs
    WHERE session = (SELECT number FROM sessions WHERE id = ?) AND digest = ?`,
  drop: 'DELETE FROM blobs WHERE session = ?',
  owned: 'SELECT number FROM sessions WHERE id = ? AND epoch = ?',
  copy: `INSERT INTO blobs (session, digest, bytes, data)
    SELECT ?, digest, bytes, data FROM blobs WHERE session = ? AND digest = ?`,
  loosen: 'INSERT INTO loose_blobs (session, digest) VALUES (?, ?)',
  keep: 'DELETE FROM loose_blobs WHERE session = ? AND digest = ?',
  loose: 'SELECT digest FROM loose_blobs WHERE session = ?',
  keepAll: 'DELETE FROM loose_blobs WHERE session = ?',
  remove: 'DELETE FROM blobs WHERE session = ? AND digest = ?',
  number: 'SELECT number FROM sessions WHERE id = ?',
} as const

export class BlobTable {
  readonly #sql: Prepared<keyof typeof SQL>

  constructor(database: SqliteDatabase) {
    this.#sql = prepareAll(database, SQL)
  }

  put(session: string, blobs: readonly GivenBlob[], bytesMax: number, isLoose = false): PutBlobs {
    const { open, size, total, insert, count } = this.#sql
    const number: number | undefined = open.get(storedName(session))?.number
    if (number === undefined) return { type: 'closed' }
    const found = blobs.map(({ digest }): number | null => size.get(number, digest)?.bytes ?? null)
    const fresh = blobs.filter((_, index) => found[index] === null)
    const missing = fresh.find(({ data }) => data === null)
    if (missing !== undefined) return { type: 'missing', digest: missing.digest }
    const added = fresh.reduce((sum, { data }) => sum + (data?.length ?? 0), 0)
    if (added > 0 && total.get(number).bytes + added > bytesMax) return { type: 'full' }
    for (const { digest, data } of fresh) insert.run(number, digest, data?.length ?? 0, data)
    if (added > 0) count.run(added, number)
    if (isLoose) for (const { digest } of fresh) this.#sql.loosen.run(number, digest)
    else for (const { digest } of blobs) this.#sql.keep.run(number, digest)
    const bytes = blobs.map(({ data }, index) => found[index] ?? data?.length ?? 0)
    return { type: 'stored', bytes, added }
  }

  read(session: string, digest: string): Uint8Array | null {
    return this.#sql.read.get(storedName(session), digest)?.data ?? null
  }

  /** To a session that is restored. */
  add(number: number, blobs: RestoredSession['blobs']): void {
    for (const { digest, data } of blobs) this.#sql.insert.run(number, digest, data.length, data)
  }

  /** An event names them. */
  keep(number: number, digests: readonly string[]): void {
    for (const digest of digests) this.#sql.keep.run(number, digest)
  }

  /** Those that are loose, if this epoch owns the session; returns their bytes. */
  dropLoose(session: string, epoch: number, digests: readonly string[]): number {
    const number: number | undefined = this.#sql.owned.get(storedName(session), epoch)?.number
    return number === undefined ? 0 : this.#remove(number, digests)
  }

  /** Of a session that is claimed: mostly there are none. */
  dropAllLoose(number: number): void {
    const loose: readonly { readonly digest: string }[] = this.#sql.loose.all(number)
    this.#remove(
      number,
      loose.map(({ digest }) => digest),
    )
  }

  #remove(number: number, digests: readonly string[]): number {
    const { keep, size, remove, count } = this.#sql
    let bytes = 0
    for (const digest of digests) {
      if (keep.run(number, digest).changes === 0) continue
      bytes += size.get(number, digest)?.bytes ?? 0
      remove.run(number, digest)
    }
    if (bytes > 0) count.run(-bytes, number)
    return bytes
  }

  hasAll({ from, digests }: CopiedBlobs): boolean {
    const source: number | undefined = this.#sql.number.get(storedName(from))?.number
    return digests.every((digest) => this.#sql.size.get(source ?? 0, digest) !== undefined)
  }

  /** To a session that was just created. */
  copy({ from, digests }: CopiedBlobs, number: number): void {
    const { copy, size, count } = this.#sql
    const source = this.#sql.number.get(storedName(from)).number
    let bytes = 0
    for (const digest of digests) {
      copy.run(number, source, digest)
      bytes += size.get(number, digest).bytes
    }
    count.run(bytes, number)
  }

  /** All of a session. */
  drop(number: number): void {
    this.#sql.drop.run(number)
    this.#sql.keepAll.run(number)
  }
}
