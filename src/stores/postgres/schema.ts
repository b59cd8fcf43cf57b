/**
 * The tables, as numbered steps that only go forward. A step that was released never changes: its
 * checksum is stored, and a schema whose steps are not exactly ours is refused, not guessed at.
 *
 * Layout: what a turn changes (seq, updated_at, pending, expires_at) is in no index, so that nearly
 * all updates stay within their page. `due_at` stands in for `expires_at`, and `flagged` for
 * `pending`: hints that are never wrong in the direction that matters and that most turns need not
 * touch. Times are in milliseconds, as the nodes have them from the database's clock.
 */
import { createHash } from 'node:crypto'
import { HoldfastError } from '../../core/errors.ts'
import type { Database, Session } from './database.ts'

/** `$schema` stands for the schema's name. */
const STEPS: readonly string[] = [
  `CREATE TABLE $schema.sessions (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    key text COLLATE "C",
    agent text NOT NULL,
    internal boolean NOT NULL,
    labels text NOT NULL,
    state text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    owner text COLLATE "C",
    seq bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    pending boolean NOT NULL,
    flagged boolean NOT NULL,
    expires_at bigint,
    due_at bigint,
    closed_at bigint
  ) WITH (fillfactor = 70);
  CREATE UNIQUE INDEX sessions_by_open_key ON $schema.sessions (key)
    WHERE state = 'open' AND key IS NOT NULL;
  CREATE INDEX sessions_by_key ON $schema.sessions (key, number) WHERE key IS NOT NULL;
  CREATE INDEX sessions_open ON $schema.sessions (number) WHERE state = 'open' AND NOT internal;
  CREATE INDEX sessions_flagged ON $schema.sessions (number) WHERE flagged;
  CREATE INDEX sessions_due ON $schema.sessions (due_at) WHERE due_at IS NOT NULL;
  CREATE INDEX sessions_closed ON $schema.sessions (closed_at) WHERE closed_at IS NOT NULL;
  CREATE TABLE $schema.events (
    session bigint NOT NULL,
    seq bigint NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (session, seq)
  );
  CREATE TABLE $schema.snapshots (
    session bigint PRIMARY KEY, seq bigint NOT NULL, body text NOT NULL
  );
  CREATE TABLE $schema.labels (
    name text COLLATE "C" NOT NULL, value text COLLATE "C" NOT NULL, session bigint NOT NULL,
    PRIMARY KEY (name, value, session)
  );
  CREATE INDEX labels_by_session ON $schema.labels (session);
  CREATE TABLE $schema.nodes (
    name text COLLATE "C" PRIMARY KEY,
    url text,
    version text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until timestamptz NOT NULL
  ) WITH (fillfactor = 50);
  CREATE FUNCTION $schema.claim(wanted text, claimant text)
    RETURNS TABLE (holder text, granted bigint) LANGUAGE plpgsql AS $body$
  DECLARE
    held $schema.sessions%ROWTYPE;
  BEGIN
    -- Who only asks in vain locks nothing, and so writes nothing.
    SELECT sessions.owner INTO holder FROM $schema.sessions AS sessions
      JOIN $schema.nodes AS nodes ON nodes.name = sessions.owner
      WHERE sessions.id = wanted AND sessions.state = 'open' AND sessions.owner <> claimant
        AND nodes.lease_until > clock_timestamp();
    IF FOUND THEN
      RETURN NEXT;
      RETURN;
    END IF;
    -- Each statement sees what was committed before it: the leases are read after the lock is held.
    SELECT * INTO held FROM $schema.sessions WHERE id = wanted FOR UPDATE;
    IF NOT FOUND OR held.state <> 'open' THEN
      RETURN;
    END IF;
    IF held.owner <> claimant AND EXISTS (
      SELECT FROM $schema.nodes WHERE name = held.owner AND lease_until > clock_timestamp()
    ) THEN
      RETURN QUERY SELECT held.owner, NULL::bigint;
      RETURN;
    END IF;
    UPDATE $schema.sessions SET epoch = epoch + 1, owner = claimant WHERE number = held.number;
    RETURN QUERY SELECT NULL::text, held.epoch + 1;
  END $body$;`,
  // Owners change with claims only: no turn touches this index.
  `CREATE INDEX sessions_by_owner ON $schema.sessions (owner) WHERE state = 'open';
  DROP FUNCTION $schema.claim(text, text);
  CREATE FUNCTION $schema.claim(wanted text, claimant text)
    RETURNS TABLE (holder text, granted bigint, lapsed boolean) LANGUAGE plpgsql AS $body$
  DECLARE
    held $schema.sessions%ROWTYPE;
    lease timestamptz;
  BEGIN
    -- Who only asks in vain locks nothing, and so writes nothing.
    SELECT sessions.owner INTO holder FROM $schema.sessions AS sessions
      JOIN $schema.nodes AS nodes ON nodes.name = sessions.owner
      WHERE sessions.id = wanted AND sessions.state = 'open' AND sessions.owner <> claimant
        AND nodes.lease_until > clock_timestamp();
    IF FOUND THEN
      RETURN NEXT;
      RETURN;
    END IF;
    -- Each statement sees what was committed before it: the leases are read after the lock is held.
    SELECT * INTO held FROM $schema.sessions WHERE id = wanted FOR UPDATE;
    IF NOT FOUND OR held.state <> 'open' THEN
      RETURN;
    END IF;
    SELECT lease_until INTO lease FROM $schema.nodes
      WHERE name = held.owner AND name <> claimant;
    IF lease > clock_timestamp() THEN
      RETURN QUERY SELECT held.owner, NULL::bigint, false;
      RETURN;
    END IF;
    UPDATE $schema.sessions SET epoch = epoch + 1, owner = claimant WHERE number = held.number;
    -- Who gives its lease up leaves no row behind.
    RETURN QUERY SELECT NULL::text, held.epoch + 1, lease IS NOT NULL;
  END $body$;`,
  // A function for the settings: a plan that was made while the table was small, and is kept by a
  // connection until the next ANALYZE, would read the whole table for every group. So sessions are
  // looked up by the index of their ids, in the order given, which is also the order of the locks.
  `CREATE FUNCTION $schema.append(
      ids text[], epochs bigint[], afters bigint[], counts bigint[], times bigint[],
      closings boolean[], pendings boolean[], expiries bigint[],
      event_places bigint[], event_seqs bigint[], event_bodies text,
      snapshot_places bigint[], snapshot_seqs bigint[], snapshot_bodies text
    ) RETURNS SETOF bigint LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off AS $body$
  DECLARE
    -- By place: the number of the session that was appended to, or 0.
    numbers bigint[] := array_fill(0::bigint, ARRAY[cardinality(ids)]);
    -- JSON holds no control character, so U+0001 stands between two bodies.
    events text[] := string_to_array(event_bodies, chr(1));
    snapshots text[] := string_to_array(snapshot_bodies, chr(1));
    moved record;
  BEGIN
    IF cardinality(events) <> cardinality(event_places)
        OR cardinality(snapshots) <> cardinality(snapshot_places) THEN
      RAISE EXCEPTION 'a body is not JSON';
    END IF;
    FOR moved IN
      UPDATE $schema.sessions AS held SET
        seq = given.after + given.count,
        updated_at = given.at,
        pending = given.pending AND NOT given.closed,
        flagged = (held.flagged OR given.pending) AND NOT given.closed,
        expires_at = CASE WHEN NOT given.closed THEN given.expires_at END,
        due_at = CASE
          WHEN given.closed THEN NULL
          WHEN given.expires_at IS NULL THEN held.due_at
          WHEN held.due_at <= given.expires_at AND held.due_at > given.at THEN held.due_at
          ELSE given.expires_at
        END,
        state = CASE WHEN given.closed THEN 'closed' ELSE 'open' END,
        owner = CASE WHEN NOT given.closed THEN held.owner END,
        closed_at = CASE WHEN given.closed THEN given.at END
      FROM unnest(ids, epochs, afters, counts, times, closings, pendings, expiries)
        WITH ORDINALITY AS given (id, epoch, after, count, at, closed, pending, expires_at, place)
      -- The state is looked at in a way that no index of open sessions fits: a plan could take all
      -- of one for the few that are given.
      WHERE held.id = given.id AND held.epoch = given.epoch AND held.seq = given.after
        AND held.state || '' = 'open'
      RETURNING held.number, given.place
    LOOP
      numbers[moved.place] := moved.number;
      RETURN NEXT moved.place;
    END LOOP;
    INSERT INTO $schema.events (session, seq, body)
      SELECT numbers[event.place], event.seq, event.body
        FROM unnest(event_places, event_seqs, events) AS event (place, seq, body)
        WHERE numbers[event.place] > 0;
    IF cardinality(snapshot_places) > 0 THEN
      INSERT INTO $schema.snapshots (session, seq, body)
        SELECT numbers[snapshot.place], snapshot.seq, snapshot.body
          FROM unnest(snapshot_places, snapshot_seqs, snapshots)
            AS snapshot (place, seq, body)
          WHERE numbers[snapshot.place] > 0
        ON CONFLICT (session) DO UPDATE SET seq = excluded.seq, body = excluded.body;
    END IF;
  END $body$;`,
]

/** Any number of our own: whoever holds it migrates, everybody else waits. */
const MIGRATION_LOCK = 7_420_001
/** Of one statement: a large table takes its time, and so does waiting for who is at it. */
const MIGRATION_MS = 3_600_000

/** Brings the schema to the latest step, in one transaction, or refuses it. */
export async function migrate(database: Database): Promise<void> {
  // Without a lock and without rights to create anything: the usual case.
  if ((await appliedSteps(database, database)).length === STEPS.length) return
  await database.transaction(MIGRATION_MS, async (session) => {
    await session.query('SELECT pg_advisory_xact_lock($1)', [MIGRATION_LOCK])
    await createSchema(database, session)
    await session.query(`CREATE TABLE IF NOT EXISTS ${database.schema}.migrations (
      number integer PRIMARY KEY, checksum text NOT NULL, applied_at timestamptz NOT NULL
    )`)
    const done = await appliedSteps(database, session)
    for (let number = done.length + 1; number <= STEPS.length; number += 1) {
      await applyStep(database, session, number)
    }
  })
}

/**
 * Only if it is not there: else it needs no right to create one. Looked for in the table itself: a
 * connection remembers the names that it did not find, and has not heard yet of what was made while
 * it waited for the lock.
 */
async function createSchema({ schema }: Database, session: Session): Promise<void> {
  const found = await session.query('SELECT FROM pg_namespace WHERE nspname = $1', [
    schema.slice(1, -1),
  ])
  if (found.length === 0) await session.query(`CREATE SCHEMA ${schema}`)
}

async function appliedSteps(database: Database, session: Session): Promise<readonly string[]> {
  const table = `${database.schema}.migrations`
  const [found] = await session.query<{ table: string | null }>(
    'SELECT to_regclass($1)::text AS table',
    [table],
  )
  if (found?.table === null) return refuseForeign(database, session)
  const rows = await session.query<{ checksum: string }>(
    `SELECT checksum FROM ${table} ORDER BY number`,
  )
  const done = rows.map(({ checksum }) => checksum)
  checkSteps(done, database.schema)
  return done
}

/** A schema that holds somebody else's tables is left alone. */
async function refuseForeign(database: Database, session: Session): Promise<readonly string[]> {
  const rows = await session.query(
    // Looked for once more: another node may have made our own tables a moment ago.
    `SELECT FROM pg_class
      WHERE relnamespace = to_regnamespace($1) AND to_regclass($2) IS NULL LIMIT 1`,
    [database.schema, `${database.schema}.migrations`],
  )
  if (rows.length === 0) return []
  throw new HoldfastError(
    'store_unavailable',
    `the schema ${database.schema} belongs to another program: name another with ?schema=NAME`,
  )
}

function checkSteps(done: readonly string[], schema: string): void {
  if (done.length > STEPS.length) {
    throw new HoldfastError(
      'store_unavailable',
      `the schema ${schema} was made by a newer Holdfast (step ${done.length}, ` +
        `this one knows ${STEPS.length}): update Holdfast`,
    )
  }
  const changed = done.findIndex((checksum, index) => checksum !== checksumOf(STEPS[index]!))
  if (changed === -1) return
  throw new HoldfastError(
    'store_unavailable',
    `the schema ${schema} is not the one that this Holdfast makes (step ${changed + 1} differs): ` +
      'use the Holdfast that made it',
  )
}

async function applyStep(database: Database, session: Session, number: number): Promise<void> {
  const step = STEPS[number - 1]!
  await session.query(step.replaceAll('$schema', database.schema))
  await session.query(
    `INSERT INTO ${database.schema}.migrations VALUES ($1, $2, clock_timestamp())`,
    [number, checksumOf(step)],
  )
}

function checksumOf(step: string): string {
  return createHash('sha256').update(step).digest('hex')
}
