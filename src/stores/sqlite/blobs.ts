/** The bytes of images and files, once per session by their digest. */
import type { GivenBlob, PutBlobs } from '../../core/store.ts'
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
} as const

export class BlobTable {
  readonly #sql: Prepared<keyof typeof SQL>

  constructor(database: SqliteDatabase) {
    this.#sql = prepareAll(database, SQL)
  }

  put(session: string, blobs: readonly GivenBlob[], bytesMax: number): PutBlobs {
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
    const bytes = blobs.map(({ data }, index) => found[index] ?? data?.length ?? 0)
    return { type: 'stored', bytes, added }
  }

  read(session: string, digest: string): Uint8Array | null {
    return this.#sql.read.get(storedName(session), digest)?.data ?? null
  }

  /** All of a session. */
  drop(number: number): void {
    this.#sql.drop.run(number)
  }
}
