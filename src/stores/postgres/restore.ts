/** Makes a closed session of what an archive has, in one transaction. */
import { crc32 } from 'node:zlib'
import type { RestoredSession } from '../../core/store.ts'
import { foldedKey, storedName } from '../names.ts'
import { RESTORED, restoredBytes } from '../rows.ts'
import type { Database, Queryable } from './database.ts'
import { STEP } from './schema.ts'

/** Events that one statement writes. */
const EVENTS_MAX = 500

/** False: there is one of this id. */
export async function restoreSession(
  database: Database,
  session: RestoredSession,
): Promise<boolean> {
  const connection = await database.connect()
  try {
    await connection.query('BEGIN')
    const isRestored = await restore(connection, session)
    await connection.query('COMMIT')
    return isRestored
  } finally {
    connection.release()
  }
}

async function restore(connection: Queryable, session: RestoredSession): Promise<boolean> {
  const { schema } = connection
  // One that was erased keeps its number, and with it its place in lists. The feed has it as
  // changed, without new events.
  const [row] = await connection.query<{ number: number }>(
    `INSERT INTO ${schema}.sessions AS held (id, key, agent, internal, labels, state, owner_epoch,
        seq, created_at, updated_at, closed_at, pending, flagged, changed, fed_seq, status,
        principal, shares, bytes, active_at, folded)
      VALUES ($1, $2, $3, $4, $5, 'closed', 1, $6, $7, $8, $8, false, false, true, $6,
        '${RESTORED}', $9, $10, $11, $8, $12)
      ON CONFLICT (id) DO UPDATE SET key = excluded.key, agent = excluded.agent,
        internal = excluded.internal, labels = excluded.labels, state = excluded.state,
        owner_epoch = held.owner_epoch + 1, seq = excluded.seq, fed_seq = excluded.fed_seq,
        created_at = excluded.created_at, updated_at = excluded.updated_at,
        closed_at = excluded.closed_at, status = excluded.status, changed = true,
        active_at = excluded.active_at, folded = excluded.folded,
        principal = excluded.principal, shares = excluded.shares, bytes = excluded.bytes
        WHERE held.state = 'erased'
      RETURNING number`,
    valuesOf(session),
  )
  // After the lock: no migration can come between this and the change.
  await connection.query(`SELECT ${schema}.check_step(${STEP})`)
  if (row === undefined) return false
  await addEvents(connection, row.number, session.events)
  const names = Object.keys(session.labels)
  await connection.query(
    `INSERT INTO ${schema}.labels (name, value, session)
      SELECT given.name, given.value, $1
        FROM unnest($2::text[], $3::text[]) AS given (name, value)`,
    [row.number, names.map(storedName), Object.values(session.labels).map(storedName)],
  )
  await connection.query(
    `INSERT INTO ${schema}.shares (principal, session) SELECT unnest($2::text[]), $1`,
    [row.number, session.shares.map((share) => storedName(share.with))],
  )
  for (const { digest, data } of session.blobs) {
    await connection.query(
      `INSERT INTO ${schema}.blobs (session, digest, bytes, data) VALUES ($1, $2, $3, $4)`,
      [row.number, digest, data.length, Buffer.from(data)],
    )
  }
  return true
}

async function addEvents(
  connection: Queryable,
  number: number,
  events: readonly string[],
): Promise<void> {
  for (let from = 0; from < events.length; from += EVENTS_MAX) {
    const some = events.slice(from, from + EVENTS_MAX)
    await connection.query(
      `INSERT INTO ${connection.schema}.events (session, seq, body, checksum)
        SELECT $1, $2 + given.place, given.body, given.checksum
          FROM unnest($3::text[], $4::bigint[]) WITH ORDINALITY AS given (body, checksum, place)`,
      [number, from, some, some.map((body) => crc32(body))],
    )
  }
}

function valuesOf(session: RestoredSession): unknown[] {
  const { id, key, agent, internal, labels, principal, shares, events, createdAt, at } = session
  return [
    storedName(id),
    key === null ? null : storedName(key),
    storedName(agent),
    internal,
    JSON.stringify(labels),
    events.length,
    createdAt,
    at,
    storedName(principal),
    JSON.stringify(shares),
    restoredBytes(session),
    key === null ? null : foldedKey(key),
  ]
}
