/**
 * The tables, as steps (see `steps.ts`): one that was released never changes.
 *
 * Layout: what a turn changes (seq, updated_at, status, pending, …) is in no index, so that nearly
 * all updates stay within their page. `due_at` stands in for `expires_at`, `flagged` for `pending`,
 * `active_at` for `updated_at`, and `changed` for `fed_seq < seq`: hints that are never wrong in
 * the direction that matters and that most turns need not touch. Times are those of the database.
 */
import { schemaStep, type SchemaStep } from '../steps.ts'
import { APPEND, withSizes } from './append-function.ts'
import { listColumns } from './list-columns.ts'

/**
 * `$schema` stands for the schema's name. The first three were released together with 0.1.0: what
 * the fourth replaces is left out of them, and their checksums are those of the texts of then.
 */
export const STEPS: readonly SchemaStep[] = [
  {
    checksum: '1f299d477479aa3c2badb549aefc5d100ea76fdcd9899565bcc28ac2119adf45',
    sql: `CREATE TABLE $schema.sessions (
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
  ) WITH (fillfactor = 50);`,
  },
  {
    checksum: 'a0bc3f77eaae6a17cd7c4ce512ca0549331d41971c2aa07ae5766a2d74a30036',
    // Owners change with claims only: no turn touches this index.
    sql: `CREATE INDEX sessions_by_owner ON $schema.sessions (owner) WHERE state = 'open'`,
  },
  { checksum: 'a08b141e314eb6b8f03026c8aa5c859a187e683b5f7c3dd34894aa7154fa8595', sql: '' },
  // The columns get other names so that nodes of before, which look at the steps only at their
  // start, can neither append, claim nor renew a lease: each of their statements fails. Their
  // leases run out by themselves, and only then are their sessions taken over.
  schemaStep(`ALTER TABLE $schema.sessions RENAME COLUMN epoch TO owner_epoch;
  ALTER TABLE $schema.nodes RENAME COLUMN lease_until TO lease_ends;
  ALTER TABLE $schema.nodes ADD COLUMN secret text;
  ALTER TABLE $schema.events ADD COLUMN checksum bigint;
  ALTER TABLE $schema.sessions
    ADD COLUMN status text COLLATE "C" NOT NULL DEFAULT 'idle',
    ADD COLUMN queued bigint NOT NULL DEFAULT 0,
    ADD COLUMN changed boolean NOT NULL DEFAULT false,
    ADD COLUMN fed_seq bigint NOT NULL DEFAULT 0;
  CREATE INDEX sessions_changed ON $schema.sessions (number) WHERE changed;
  CREATE TABLE $schema.changes (
    position bigint PRIMARY KEY, session bigint NOT NULL, after bigint NOT NULL, seq bigint NOT NULL
  );
  CREATE TABLE $schema.feed (last bigint NOT NULL);
  INSERT INTO $schema.feed VALUES (0);
  CREATE FUNCTION $schema.feed_changes(most bigint, kept bigint, known integer)
    RETURNS bigint LANGUAGE plpgsql AS $body$
  DECLARE
    before bigint;
    added bigint;
  BEGIN
    IF NOT EXISTS (SELECT FROM $schema.sessions WHERE changed) THEN
      RETURN (SELECT last FROM $schema.feed);
    END IF;
    -- Held until the commit: the next reader sees these positions, and gives out later ones.
    SELECT last INTO before FROM $schema.feed FOR UPDATE;
    PERFORM $schema.check_step(known);
    -- A session that is being appended to keeps its flag, and has its turn at the next read.
    WITH taken AS MATERIALIZED (
      SELECT number, fed_seq FROM $schema.sessions WHERE changed
        ORDER BY number LIMIT most FOR UPDATE SKIP LOCKED
    ), moved AS (
      UPDATE $schema.sessions AS held SET changed = false, fed_seq = held.seq
        FROM taken WHERE held.number = taken.number
        RETURNING held.number, taken.fed_seq AS after, held.seq
    )
    INSERT INTO $schema.changes (position, session, after, seq)
      SELECT before + row_number() OVER (ORDER BY moved.number), moved.number, moved.after,
          moved.seq
        FROM moved;
    GET DIAGNOSTICS added = ROW_COUNT;
    UPDATE $schema.feed SET last = before + added;
    DELETE FROM $schema.changes WHERE position <= before + added - kept;
    RETURN before + added;
  END $body$;
  CREATE TABLE $schema.request_keys (
    session bigint NOT NULL, key text COLLATE "C" NOT NULL, number bigint NOT NULL,
    digest text NOT NULL, turn text NOT NULL, at bigint NOT NULL,
    PRIMARY KEY (session, key)
  );
  CREATE UNIQUE INDEX request_keys_by_number ON $schema.request_keys (session, number);
  CREATE FUNCTION $schema.check_step(known integer) RETURNS boolean LANGUAGE plpgsql AS $body$
  BEGIN
    IF known < (SELECT max(number) FROM $schema.migrations) THEN
      RAISE EXCEPTION 'a newer Holdfast has changed the schema' USING ERRCODE = 'HF001';
    END IF;
    RETURN true;
  END $body$;
  DROP FUNCTION IF EXISTS $schema.claim(text, text);
  CREATE FUNCTION $schema.claim(wanted text, claimant text, known integer)
    RETURNS TABLE (holder text, granted bigint, lapsed boolean) LANGUAGE plpgsql AS $body$
  DECLARE
    held $schema.sessions%ROWTYPE;
    lease timestamptz;
  BEGIN
    -- A claim in vain locks nothing, and so writes nothing.
    SELECT sessions.owner INTO holder FROM $schema.sessions AS sessions
      JOIN $schema.nodes AS nodes ON nodes.name = sessions.owner
      WHERE sessions.id = wanted AND sessions.state = 'open' AND sessions.owner <> claimant
        AND nodes.lease_ends > clock_timestamp();
    IF FOUND THEN
      RETURN NEXT;
      RETURN;
    END IF;
    -- Each statement sees what was committed before it: leases are read after the row is locked.
    SELECT * INTO held FROM $schema.sessions WHERE id = wanted FOR UPDATE;
    -- After the lock: no migration can come between this and the change.
    PERFORM $schema.check_step(known);
    IF held.id IS NULL OR held.state <> 'open' THEN
      RETURN;
    END IF;
    SELECT lease_ends INTO lease FROM $schema.nodes
      WHERE name = held.owner AND name <> claimant;
    IF lease > clock_timestamp() THEN
      RETURN QUERY SELECT held.owner, NULL::bigint, false;
      RETURN;
    END IF;
    UPDATE $schema.sessions SET owner_epoch = owner_epoch + 1, owner = claimant
      WHERE number = held.number;
    -- A node that gives its lease up leaves no row behind.
    RETURN QUERY SELECT NULL::text, held.owner_epoch + 1, lease IS NOT NULL;
  END $body$;
  DROP FUNCTION IF EXISTS $schema.append(
    text[], bigint[], bigint[], bigint[], bigint[], boolean[], boolean[], bigint[],
    bigint[], bigint[], text, bigint[], bigint[], text
  );
  -- A function for its settings: a plan that was made while the table was small, and is kept by a
  -- connection until the next ANALYZE, would read the whole table for every group. So sessions are
  -- looked up by the index of their ids, in the order given, which is also the order of the locks.
  ${APPEND}`),
  // Each principal has its own keys. What was there before belongs to the default one. `bytes` is
  // the length of a session's events. Shares change rarely: an append with shares calls a function
  // of their own after that of all appends.
  schemaStep(`ALTER TABLE $schema.sessions
    ADD COLUMN principal text COLLATE "C" NOT NULL DEFAULT 'default',
    ADD COLUMN shares text NOT NULL DEFAULT '[]';
  DROP INDEX $schema.sessions_by_open_key;
  CREATE UNIQUE INDEX sessions_by_open_key ON $schema.sessions (principal, key)
    WHERE state = 'open' AND key IS NOT NULL;
  CREATE INDEX sessions_by_principal ON $schema.sessions (principal, number);
  CREATE TABLE $schema.shares (
    principal text COLLATE "C" NOT NULL, session bigint NOT NULL,
    PRIMARY KEY (principal, session)
  );
  CREATE INDEX shares_by_session ON $schema.shares (session);
  CREATE TABLE $schema.audit (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL, address text, body text NOT NULL
  );
  CREATE INDEX audit_by_time ON $schema.audit (at);
  CREATE FUNCTION $schema.add_audit(times bigint[], addresses text[], bodies text[], known integer)
    RETURNS void LANGUAGE plpgsql AS $body$
  BEGIN
    -- Until the commit, so that positions become visible in their order.
    LOCK TABLE $schema.audit IN SHARE ROW EXCLUSIVE MODE;
    PERFORM $schema.check_step(known);
    INSERT INTO $schema.audit (at, address, body)
      SELECT * FROM unnest(times, addresses, bodies);
  END $body$;
  CREATE FUNCTION $schema.share(wanted text, list text, principals json) RETURNS void
    LANGUAGE plpgsql AS $body$
  DECLARE
    found bigint;
  BEGIN
    UPDATE $schema.sessions SET shares = list WHERE id = wanted RETURNING number INTO found;
    DELETE FROM $schema.shares WHERE session = found;
    INSERT INTO $schema.shares (principal, session)
      SELECT value, found FROM json_array_elements_text(principals);
  END $body$;
  ALTER TABLE $schema.sessions ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
  UPDATE $schema.sessions AS held SET bytes = logs.bytes FROM (
    SELECT session, sum(octet_length(body)) AS bytes FROM $schema.events GROUP BY session
  ) AS logs WHERE logs.session = held.number;
  CREATE INDEX sessions_open_of_principal ON $schema.sessions (principal)
    WHERE state = 'open' AND NOT internal;
  -- The function of before stays: it tells nodes of before that the schema is newer.
  ${withSizes(APPEND)}`),
  // What each node has counted, as JSON. It is worth nothing after a crash of the database, so it
  // is not in the write-ahead log. A table of its own, so that no beat waits for it. The same holds
  // for what each node says of the followers that answer asks. The asks that wait: an append with
  // asks calls a function of their own. Those of before are withdrawn when their sessions are
  // loaded.
  // The bytes of images and files, apart from the events: a log is read without them. `bytes` of a
  // session counts them too. Most of them are compressed already.
  // The links of before become shares: those that were revoked meanwhile are good for nothing, and
  // go with the next change.
  schemaStep(`CREATE UNLOGGED TABLE $schema.counts (
    node text COLLATE "C" PRIMARY KEY, counts text NOT NULL
  ) WITH (fillfactor = 50);
  CREATE TABLE $schema.asks (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session bigint NOT NULL, ask text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL,
    at bigint NOT NULL, body text NOT NULL
  );
  CREATE UNIQUE INDEX asks_by_session ON $schema.asks (session, ask);
  CREATE FUNCTION $schema.note_asks(wanted text, opened_at bigint, opened json, settled json)
    RETURNS void LANGUAGE plpgsql AS $body$
  DECLARE
    found bigint;
  BEGIN
    SELECT number INTO found FROM $schema.sessions WHERE id = wanted;
    DELETE FROM $schema.asks WHERE session = found
      AND ask IN (SELECT value FROM json_array_elements_text(settled));
    INSERT INTO $schema.asks (session, ask, kind, at, body)
      SELECT found, value->>'id', value->>'kind', opened_at, value->>'body'
        FROM json_array_elements(opened);
  END $body$;
  CREATE UNLOGGED TABLE $schema.answerers (
    node text COLLATE "C" PRIMARY KEY, body text NOT NULL, ends timestamptz NOT NULL
  );
  CREATE TABLE $schema.blobs (
    session bigint NOT NULL, digest text COLLATE "C" NOT NULL, bytes bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (session, digest)
  );
  ALTER TABLE $schema.blobs ALTER COLUMN data SET STORAGE EXTERNAL;
  CREATE FUNCTION $schema.put_blobs(
    wanted text, digests text[], contents bytea[], most bigint, known integer
  ) RETURNS TABLE (outcome text, missing text, sizes json, added bigint)
    LANGUAGE plpgsql AS $body$
  DECLARE
    held bigint;
    fresh text[];
  BEGIN
    SELECT number INTO held FROM $schema.sessions WHERE id = wanted AND state = 'open';
    SELECT given.digest INTO missing FROM unnest(digests, contents) AS given (digest, content)
      WHERE given.content IS NULL AND NOT EXISTS (
        SELECT FROM $schema.blobs AS kept WHERE kept.session = held AND kept.digest = given.digest
      ) LIMIT 1;
    outcome := CASE WHEN held IS NULL THEN 'closed' WHEN missing IS NOT NULL THEN 'missing' END;
    IF outcome IS NOT NULL THEN
      RETURN NEXT;
      RETURN;
    END IF;
    WITH inserted AS (
      INSERT INTO $schema.blobs AS kept (session, digest, bytes, data)
        SELECT held, given.digest, octet_length(given.content), given.content
          FROM unnest(digests, contents) AS given (digest, content)
          WHERE given.content IS NOT NULL ORDER BY given.digest
        ON CONFLICT DO NOTHING RETURNING kept.digest, kept.bytes
    )
    SELECT coalesce(array_agg(inserted.digest), '{}'), coalesce(sum(inserted.bytes), 0)
      INTO fresh, added FROM inserted;
    -- The session's row is locked after the bytes are written, so that its appends wait for a
    -- moment only; a close or an erasure that came in between is seen.
    UPDATE $schema.sessions SET bytes = bytes + added WHERE number = held AND state = 'open';
    IF NOT FOUND THEN
      outcome := 'closed';
    ELSIF added > 0 AND most < (
      SELECT sum(kept.bytes) FROM $schema.blobs AS kept WHERE kept.session = held
    ) THEN
      outcome := 'full';
      UPDATE $schema.sessions SET bytes = bytes - added WHERE number = held;
    ELSE
      outcome := 'stored';
    END IF;
    PERFORM $schema.check_step(known);
    IF outcome <> 'stored' THEN
      DELETE FROM $schema.blobs AS kept WHERE kept.session = held AND kept.digest = ANY (fresh);
    END IF;
    sizes := (
      SELECT json_agg(kept.bytes ORDER BY given.place)
        FROM unnest(digests) WITH ORDINALITY AS given (digest, place)
        JOIN $schema.blobs AS kept ON kept.session = held AND kept.digest = given.digest
    );
    RETURN NEXT;
  END $body$;
  INSERT INTO $schema.shares (principal, session)
    SELECT '#link ' || (body::json ->> 'digest'), session FROM $schema.events
      WHERE CASE WHEN body LIKE '%"type":"link.created"%'
        THEN body::json ->> 'type' = 'link.created' END
    ON CONFLICT DO NOTHING`),
  // The blobs that no event names yet: they go if the request is refused, and when the session is
  // claimed.
  schemaStep(`CREATE TABLE $schema.loose_blobs (
    session bigint NOT NULL, digest text COLLATE "C" NOT NULL,
    PRIMARY KEY (session, digest)
  );
  -- Under the lock of the session's row: no claim and no put comes in between.
  CREATE FUNCTION $schema.drop_loose_blobs(
    wanted text, under bigint, digests text[], known integer
  ) RETURNS bigint LANGUAGE plpgsql AS $body$
  DECLARE
    held bigint;
    freed bigint;
  BEGIN
    SELECT number INTO held FROM $schema.sessions
      WHERE id = wanted AND owner_epoch = under FOR UPDATE;
    PERFORM $schema.check_step(known);
    WITH loose AS (
      DELETE FROM $schema.loose_blobs AS loose WHERE loose.session = held
        AND (digests IS NULL OR loose.digest = ANY (digests)) RETURNING loose.digest
    ), removed AS (
      DELETE FROM $schema.blobs AS kept USING loose
        WHERE kept.session = held AND kept.digest = loose.digest RETURNING kept.bytes
    )
    SELECT coalesce(sum(removed.bytes), 0) INTO freed FROM removed;
    IF freed > 0 THEN
      UPDATE $schema.sessions SET bytes = bytes - freed WHERE number = held;
    END IF;
    RETURN freed;
  END $body$;
  CREATE FUNCTION $schema.keep_blobs(wanted text, digests json) RETURNS void
    LANGUAGE sql AS $body$
    DELETE FROM $schema.loose_blobs
      WHERE session = (SELECT number FROM $schema.sessions WHERE id = wanted)
        AND digest IN (SELECT value FROM json_array_elements_text(digests))
  $body$;
  -- As before, and it marks those that are new as loose, or those that are to be kept as kept.
  CREATE FUNCTION $schema.put_blobs(
    wanted text, digests text[], contents bytea[], most bigint, is_loose boolean, known integer
  ) RETURNS TABLE (outcome text, missing text, sizes json, added bigint)
    LANGUAGE plpgsql AS $body$
  DECLARE
    held bigint;
  BEGIN
    SELECT put.outcome, put.missing, put.sizes, put.added
      INTO outcome, missing, sizes, added
      FROM $schema.put_blobs(wanted, digests, contents, most, known) AS put;
    SELECT number INTO held FROM $schema.sessions WHERE id = wanted;
    IF outcome = 'stored' AND is_loose THEN
      -- Those that this transaction has inserted.
      INSERT INTO $schema.loose_blobs (session, digest)
        SELECT held, kept.digest FROM $schema.blobs AS kept
          WHERE kept.session = held AND kept.digest = ANY (digests)
            AND kept.xmin = pg_current_xact_id()::xid
        ON CONFLICT DO NOTHING;
    ELSIF outcome = 'stored' THEN
      DELETE FROM $schema.loose_blobs AS loose
        WHERE loose.session = held AND loose.digest = ANY (digests);
    END IF;
    RETURN NEXT;
  END $body$`),
  // Where each webhook stands, and the node that delivers it. What principals have used on a day.
  // What lists of sessions are filtered and sorted by.
  schemaStep(`CREATE TABLE $schema.webhooks (
    name text COLLATE "C" PRIMARY KEY, node text COLLATE "C", ends timestamptz, body text
  ) WITH (fillfactor = 50);
  CREATE TABLE $schema.spending (
    day integer NOT NULL, principal text COLLATE "C" NOT NULL,
    tokens float8 NOT NULL, cost float8 NOT NULL, running float8 NOT NULL,
    PRIMARY KEY (day, principal)
  ) WITH (fillfactor = 50);
  ${listColumns(withSizes(APPEND))}`),
]

/** The step that this version makes, and that its statements were written for. */
export const STEP = STEPS.length
