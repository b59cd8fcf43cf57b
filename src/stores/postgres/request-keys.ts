/** Request keys by session: looked up by their text (I11). `append` adds and forgets them. */
import { keysInText } from '../../core/request-keys.ts'
import type { KeyedTurn, KeyQuery } from '../../core/store.ts'
import { nameFrom, storedName, storedRanges } from '../names.ts'
import type { Database, Queryable } from './database.ts'
import type { Statements } from './statements.ts'

export async function findKeys(
  database: Database,
  sql: Statements,
  session: string,
  { key, prefix = '', since, limit }: KeyQuery,
): Promise<readonly KeyedTurn[]> {
  const name = storedName(session)
  const rows = await database.rideOut(() =>
    key === undefined
      ? database.query<KeyedTurn>(sql.findAllKeys, [name, since, limit, ...storedRanges(prefix)])
      : database.query<KeyedTurn>(sql.findKey, [name, storedName(key), since]),
  )
  return rows.map((row) => ({ ...row, key: nameFrom(row.key) }))
}

const PAGE = 1_000

/** The keys of the logs that are there, of open sessions: nothing was indexed before. */
export async function fillRequestKeys(schema: string, session: Queryable): Promise<void> {
  let [number, seq] = [0, 0]
  for (;;) {
    const page = await session.query<{ session: number; seq: number; body: string }>(
      `SELECT events.session::float8 AS session, events.seq::float8 AS seq, events.body
        FROM ${schema}.events JOIN ${schema}.sessions ON sessions.number = events.session
        WHERE sessions.state = 'open' AND (events.session, events.seq) > ($1::bigint, $2::bigint)
          AND events.body LIKE '%"keys":[{%'
        ORDER BY events.session, events.seq LIMIT ${PAGE}`,
      [number, seq],
    )
    for (const row of page) await addKeys(schema, session, row)
    const last = page.at(-1)
    if (last === undefined) return
    ;[number, seq] = [last.session, last.seq]
  }
}

async function addKeys(
  schema: string,
  session: Queryable,
  row: { readonly session: number; readonly body: string },
): Promise<void> {
  for (const { key, digest, turn, at } of keysInText(row.body)) {
    await session.query(
      `INSERT INTO ${schema}.request_keys VALUES ($1, $2,
          1 + coalesce((SELECT max(number) FROM ${schema}.request_keys WHERE session = $1), 0),
          $3, $4, $5)
        ON CONFLICT (session, key) DO UPDATE SET number = excluded.number,
          digest = excluded.digest, turn = excluded.turn, at = excluded.at`,
      [row.session, storedName(key), digest, turn, at],
    )
  }
}
