/**
 * The store's steps as SQL, each one statement, for one schema.
 *
 * I1 a key is unique among open sessions by an index, on which a second reservation waits for the
 * first. I4, I5 an append is fenced by the row that it changes: PostgreSQL judges epoch and
 * position again once it holds the row's lock, and events are written only for rows that changed.
 *
 * Every statement that writes checks the schema's step: by `isCurrent`, or in the function that it
 * calls. It holds a lock on its table by then, so that no migration comes in between.
 */
import { createHash } from 'node:crypto'
import { AUDIT_LOOKS, PAGE_CHARS } from '../../core/store.ts'
import { ROW_COLUMNS } from '../rows.ts'
import { STEP } from './schema.ts'

/** The database's time, in milliseconds since 1970. */
export const NOW = '(extract(epoch FROM clock_timestamp()) * 1000)::float8'

/** A statement that each connection prepares once. */
export type NamedStatement = { readonly name: string; readonly text: string }

export type StatementName = keyof ReturnType<typeof texts>

export function statementsFor(schema: string): Readonly<Record<StatementName, NamedStatement>> {
  const named = Object.entries(texts(schema)).map(([name, text]) => {
    // Behind a pooler others use our connections: the same name must be the same statement.
    const digest = createHash('sha256').update(text).digest('hex').slice(0, 12)
    return [name, { name: `holdfast_${name}_${digest}`, text }]
  })
  return Object.fromEntries(named) as Record<StatementName, NamedStatement>
}

const NOTHING_COPIED = { source: '', isThere: '', bytes: '', copies: '' }

function texts(schema: string) {
  const sessions = `${schema}.sessions`
  const events = `${schema}.events`
  const snapshots = `${schema}.snapshots`
  const labels = `${schema}.labels`
  const nodes = `${schema}.nodes`
  const keys = `${schema}.request_keys`
  const shares = `${schema}.shares`
  const audit = `${schema}.audit`
  const counts = `${schema}.counts`
  const asks = `${schema}.asks`
  const answerers = `${schema}.answerers`
  const blobs = `${schema}.blobs`
  const looseBlobs = `${schema}.loose_blobs`
  const webhooks = `${schema}.webhooks`
  const spending = `${schema}.spending`
  const ownerOf = `SELECT sessions.owner FROM ${sessions} AS sessions
      JOIN ${nodes} AS nodes
        ON nodes.name = sessions.owner AND nodes.lease_ends > clock_timestamp()
      WHERE sessions.state = 'open'`
  const keysOf = `SELECT key, digest, turn, at FROM ${keys}
      WHERE session = (SELECT number FROM ${sessions} WHERE id = $1)`
  // Asked once, whether or not there is a row to change; throws if the schema is newer.
  const isCurrent = `(SELECT ${schema}.check_step(${STEP}))`
  const append = `${schema}.append(
        $1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
        $6::boolean[], $7::boolean[], $8::bigint[], $9::text[], $10::bigint[],
        $11::bigint[], $12::bigint[], $13::bigint[], $14::text,
        $15::bigint[], $16::bigint[], $17::text,
        $18::bigint[], $19::text[], $20::text[], $21::text[], $22::bigint[],
        $23::bigint, $24::bigint, $25::bigint[], $26::bigint[], ${STEP}
      )`
  const read = (isFound: string): string =>
    `WITH found AS (SELECT ${ROW_COLUMNS} FROM ${sessions} WHERE ${isFound})
      SELECT 0::bigint AS seq, row_to_json(found)::text AS body FROM found
      UNION ALL SELECT seq, body FROM (
        ${pageText(schema, 'NULL', '(SELECT number FROM found)')}
      ) AS page
      ORDER BY seq`
  // Blobs that are copied: what they are read from, how many bytes that are, and the copies.
  const copied = {
    source: `source AS (
        SELECT digest, bytes, data FROM ${blobs}
          WHERE session = (SELECT number FROM ${sessions} WHERE id = $15::text)
            AND digest = ANY ($16::text[])
      ), `,
    isThere: 'AND (SELECT count(*) FROM source) = cardinality($16::text[])',
    bytes: '+ (SELECT coalesce(sum(bytes), 0) FROM source)::bigint',
    copies: `, copies AS (
        INSERT INTO ${blobs} (session, digest, bytes, data)
        SELECT created.number, source.digest, source.bytes, source.data FROM created, source
      )`,
  }
  const create = ({ source, isThere, bytes, copies } = NOTHING_COPIED): string =>
    `WITH ${source}created AS (
        INSERT INTO ${sessions} (id, key, agent, internal, labels, state, owner_epoch, owner, seq,
          created_at, updated_at, pending, flagged, expires_at, due_at, changed, principal, bytes,
          active_at, folded)
        SELECT $1::text, $2::text, $3::text, $4::boolean, $5::text, 'open', 1, $6::text, 1,
          $7::bigint, $7::bigint, false, false, $8::bigint, $8::bigint, true, $13::text,
          octet_length($9::text) ${bytes}, $7::bigint, $14::text
          WHERE ${isCurrent} ${isThere}
        ON CONFLICT DO NOTHING RETURNING number
      ), logged AS (
        INSERT INTO ${events} (session, seq, body, checksum)
          SELECT number, 1, $9::text, $12::bigint FROM created
      ), labelled AS (
        INSERT INTO ${labels} (name, value, session)
        SELECT given.name, given.value, created.number
          FROM created, unnest($10::text[], $11::text[]) AS given (name, value)
      )${copies}
      SELECT number FROM created`
  return {
    create: create(),
    createCopy: create(copied),
    byIdOrKey: `SELECT ${ROW_COLUMNS}, owner_epoch FROM ${sessions}
      WHERE id = $1 OR (principal = $3 AND key = $2 AND state = 'open')`,
    claim: `SELECT holder, granted, lapsed, CASE WHEN granted IS NOT NULL
        THEN ${schema}.drop_loose_blobs($1, granted, NULL, ${STEP}) END AS freed
      FROM ${schema}.claim($1, $2, ${STEP})`,
    release: `UPDATE ${sessions} SET owner = NULL
      WHERE ${isCurrent} AND id = $1 AND owner_epoch = $2 AND state = 'open'`,
    // $1 to $10: one entry per append. $11 to $14: one per event, $15 to $17 one per snapshot, and
    // $18 to $22 one per request key, each with the place of its append, from 1 on. $23 and $24:
    // how old and how many keys may be. $25: the bytes of each append, $26: the clients that are
    // attached after it. Answers the places that were appended.
    append: `SELECT place FROM ${append} AS place`,
    // $27 to $30: one entry per append that changes shares, $31 to $35: one per append that opens
    // or settles asks, $36 to $38: one per append whose events name blobs, each with its place.
    appendMore: `SELECT appended.place,
        CASE WHEN given.place IS NOT NULL
          THEN ${schema}.share(given.id, given.list, given.principals) END AS shared,
        CASE WHEN asking.place IS NOT NULL
          THEN ${schema}.note_asks(asking.id, asking.at, asking.opened, asking.settled)
          END AS asked,
        CASE WHEN naming.place IS NOT NULL
          THEN ${schema}.keep_blobs(naming.id, naming.digests) END AS kept
      FROM ${append} AS appended (place)
      LEFT JOIN unnest($27::bigint[], $28::text[], $29::text[], $30::json[])
        AS given (place, id, list, principals) ON given.place = appended.place
      LEFT JOIN unnest($31::bigint[], $32::text[], $33::bigint[], $34::json[], $35::json[])
        AS asking (place, id, at, opened, settled) ON asking.place = appended.place
      LEFT JOIN unnest($36::bigint[], $37::text[], $38::json[])
        AS naming (place, id, digests) ON naming.place = appended.place`,
    positions: `SELECT id, owner_epoch AS epoch, seq FROM ${sessions} WHERE id = ANY ($1::text[])`,
    // The row as JSON, as if it were event 0: one statement sees one moment.
    load: `WITH found AS (SELECT ${ROW_COLUMNS} FROM ${sessions} WHERE id = $1),
      snapshot AS (
        SELECT seq, body FROM ${snapshots} WHERE session = (SELECT number FROM found)
      )
      SELECT 0::bigint AS seq, row_to_json(found)::text AS body, false AS "isSnapshot" FROM found
      UNION ALL SELECT seq, body, true FROM snapshot
      UNION ALL SELECT seq, body, false FROM ${events}
        WHERE session = (SELECT number FROM found)
          AND seq > coalesce((SELECT seq FROM snapshot), 0)
      ORDER BY seq`,
    read: read('id = $1'),
    // The same look-ups for an id that is not there: that it is takes no longer.
    readVisibleTo: read(`number = (
      WITH wanted AS MATERIALIZED (
        SELECT coalesce((SELECT number FROM ${sessions} WHERE id = $1), 0) AS number
      )
      SELECT number FROM wanted WHERE EXISTS (
        SELECT FROM ${sessions} AS own
          WHERE own.principal = ANY ($4::text[]) AND own.number = wanted.number
      ) OR EXISTS (
        SELECT FROM ${shares} AS one
          WHERE one.principal = ANY ($4::text[]) AND one.session = wanted.number
      )
    )`),
    erase: `WITH erased AS (
        UPDATE ${sessions} SET state = 'erased', key = NULL, folded = NULL, labels = '{}',
          shares = '[]', closed_at = NULL, changed = true, bytes = 0
        WHERE ${isCurrent} AND id = $1 AND state = 'closed' RETURNING number
      ), ${[events, snapshots, keys, labels, shares, asks, blobs, looseBlobs]
        .map(dropErased)
        .join()}
      SELECT number FROM erased`,
    addAudit: `SELECT ${schema}.add_audit($1::bigint[], $2::text[], $3::text[], ${STEP})`,
    readAudit: `SELECT position, at, address, body FROM ${audit}
      WHERE position > $1::bigint ORDER BY position LIMIT $2::bigint`,
    lastAudit: `SELECT position, at, address, body FROM (
        SELECT * FROM ${audit} ORDER BY position DESC LIMIT ${AUDIT_LOOKS}
      ) AS newest WHERE starts_with(body, $1) ORDER BY position DESC LIMIT 1`,
    pruneAudit: `WITH dropped AS (DELETE FROM ${audit} WHERE ${isCurrent} AND at < $1::bigint)
      UPDATE ${audit} SET address = NULL
        WHERE at >= $1::bigint AND at < $2::bigint AND address IS NOT NULL`,
    feedChanges: `SELECT ${schema}.feed_changes($1::bigint, $2::bigint, ${STEP}) AS last`,
    changes: `SELECT changes.position, changes.session, changes.after, changes.seq,
        to_json(found) AS row
      FROM ${schema}.changes AS changes
      JOIN (SELECT ${ROW_COLUMNS} FROM ${sessions}) AS found ON found.number = changes.session
      WHERE changes.position > $1::bigint ORDER BY changes.position LIMIT $2::bigint`,
    // As it was before: clocks jump, and machines sleep, without the node noticing.
    beat: `WITH before AS (
        SELECT lease_ends <= clock_timestamp() AS lapsed FROM ${nodes} WHERE name = $1
      )
      INSERT INTO ${nodes} (name, url, version, secret, lease_ends)
      SELECT $1::text, $2::text, $3::text, $5::text,
        coalesce(clock_timestamp() + $4::float8 * interval '1 millisecond', 'infinity')
        WHERE ${isCurrent}
      ON CONFLICT (name) DO UPDATE SET lease_ends = excluded.lease_ends
      RETURNING ${NOW} AS now, (SELECT lapsed FROM before) AS lapsed`,
    leave: `DELETE FROM ${nodes} WHERE ${isCurrent} AND name = $1`,
    exchangeCounts: `WITH published AS (
        INSERT INTO ${counts} (node, counts) SELECT $1::text, $2::text
          WHERE $2::text IS NOT NULL AND ${isCurrent}
            AND EXISTS (SELECT FROM ${nodes} WHERE name = $1)
        ON CONFLICT (node) DO UPDATE SET counts = excluded.counts
      )
      SELECT counts.counts FROM ${counts} AS counts
        JOIN ${nodes} AS nodes
          ON nodes.name = counts.node AND nodes.lease_ends > clock_timestamp()
        WHERE counts.node <> $1`,
    node: `SELECT url FROM ${nodes} WHERE name = $1 AND lease_ends > clock_timestamp()`,
    nodes: `SELECT nodes.name, nodes.url, nodes.version,
        (extract(epoch FROM nodes.started_at) * 1000)::float8 AS "startedAt",
        extract(epoch FROM nodes.lease_ends - clock_timestamp())::float8 * 1000 AS "leaseMs",
        (SELECT count(*) FROM ${sessions} AS sessions
          WHERE sessions.owner = nodes.name AND sessions.state = 'open') AS sessions
      FROM ${nodes} AS nodes ORDER BY nodes.started_at, nodes.name`,
    // A living node with another secret: neither would pass requests on to the other.
    stranger: `SELECT name, url FROM ${nodes}
      WHERE secret <> $1 AND lease_ends > clock_timestamp() LIMIT 1`,
    findKey: `${keysOf} AND key = $2 AND at >= $3`,
    findAllKeys: `${keysOf} AND at >= $2::bigint ORDER BY number DESC LIMIT $3::bigint`,
    ownerOfId: `${ownerOf} AND sessions.id = $1`,
    ownerOfKey: `${ownerOf} AND sessions.key = $1 AND sessions.principal = $2`,
    owned: `SELECT count(*) AS count FROM ${sessions} WHERE owner = $1 AND state = 'open'`,
    openOf: `SELECT count(*) AS count FROM (
        SELECT FROM ${sessions} WHERE principal = $1 AND state = 'open' AND NOT internal
          LIMIT $2::bigint
      ) AS counted`,
    bytesOf: `SELECT coalesce(sum(bytes), 0)::bigint AS count FROM ${sessions}
      WHERE principal = $1`,
    announceAnswerers: `INSERT INTO ${answerers} (node, body, ends)
      SELECT $1::text, $2::text, clock_timestamp() + $3::float8 * interval '1 millisecond'
        WHERE ${isCurrent}
      ON CONFLICT (node) DO UPDATE SET body = excluded.body, ends = excluded.ends`,
    answerersBut: `SELECT body FROM ${answerers} WHERE node <> $1 AND ends > clock_timestamp()`,
    forgetAnswerers: `DELETE FROM ${answerers} WHERE ${isCurrent} AND ends < clock_timestamp()`,
    holdWebhook: `INSERT INTO ${webhooks} AS held (name, node, ends)
      SELECT $1::text, $2::text, clock_timestamp() + $3::float8 * interval '1 millisecond'
        WHERE ${isCurrent}
      ON CONFLICT (name) DO UPDATE SET node = excluded.node, ends = excluded.ends
        WHERE held.node IS NULL OR held.node = excluded.node OR held.ends <= clock_timestamp()
      RETURNING body`,
    saveWebhook: `UPDATE ${webhooks} SET body = $3::text,
        node = CASE WHEN $4::float8 > 0 THEN node END,
        ends = clock_timestamp() + $4::float8 * interval '1 millisecond'
      WHERE ${isCurrent} AND name = $1 AND node = $2 RETURNING name`,
    listWebhooks: `SELECT name, body, CASE WHEN ends > clock_timestamp() THEN node END AS node
      FROM ${webhooks} ORDER BY name`,
    spend: `WITH given AS (
        SELECT day, principal, sum(tokens) AS tokens, sum(cost) AS cost, sum(running) AS running
          FROM unnest($1::integer[], $2::text[], $3::float8[], $4::float8[], $5::float8[])
            AS one (day, principal, tokens, cost, running)
          GROUP BY day, principal ORDER BY day, principal
      ), old AS (
        DELETE FROM ${spending} WHERE ${isCurrent} AND day < $6::integer
      )
      INSERT INTO ${spending} AS kept (day, principal, tokens, cost, running)
        SELECT day, principal, tokens, cost, running FROM given WHERE ${isCurrent}
      ON CONFLICT (day, principal) DO UPDATE SET tokens = kept.tokens + excluded.tokens,
        cost = kept.cost + excluded.cost, running = kept.running + excluded.running
      RETURNING day, principal, tokens AS "tokensPerDay", cost AS "costUsdPerDay",
        running AS "runningMsPerDay"`,
    putBlobs: `SELECT outcome, missing, sizes, added
      FROM ${schema}.put_blobs($1, $2::text[], $3::bytea[], $4::bigint, $5::boolean, ${STEP})`,
    dropBlobs: `SELECT ${schema}.drop_loose_blobs($1, $2::bigint, $3::text[], ${STEP}) AS freed`,
    countBlobs: `SELECT count(*) AS count FROM ${blobs}
      WHERE session = (SELECT number FROM ${sessions} WHERE id = $1) AND digest = ANY ($2::text[])`,
    readBlob: `SELECT data FROM ${blobs}
      WHERE session = (SELECT number FROM ${sessions} WHERE id = $1) AND digest = $2`,
    // A stale flag or the row of a dead node does no harm; both only make queries slower.
    unflag: `UPDATE ${sessions} SET flagged = false WHERE ${isCurrent} AND number IN (
        SELECT number FROM ${sessions} WHERE flagged AND NOT pending
        ORDER BY number LIMIT 500 FOR UPDATE SKIP LOCKED
      ) AND NOT pending`,
    forget: `WITH uncounted AS (
        DELETE FROM ${counts} WHERE ${isCurrent} AND node NOT IN (SELECT name FROM ${nodes})
      )
      DELETE FROM ${nodes}
        WHERE ${isCurrent} AND lease_ends < clock_timestamp() - interval '1 hour'`,
  }
}

function dropErased(table: string, index: number): string {
  return `dropped_${index} AS (DELETE FROM ${table} WHERE session = (SELECT number FROM erased))`
}

/** A page of a session's events after $2, at most $3 of them: each with another column of it. */
export function pageText(schema: string, column: string, session: string): string {
  return `SELECT seq, body, ${column} FROM (
      SELECT seq, body, ${column},
        sum(octet_length(body)) OVER (ORDER BY seq) - octet_length(body) AS before
      FROM (
        SELECT * FROM ${schema}.events
          WHERE session = ${session} AND seq > $2::bigint
          ORDER BY seq LIMIT $3::bigint
      ) AS following
    ) AS page WHERE before < ${PAGE_CHARS} ORDER BY seq`
}
