/**
 * The part of the schema that lists of sessions are filtered and sorted by.
 *
 * `active_at` stands in for `updated_at`: at most a second behind it, so that most turns need not
 * touch its indexes, and brought up to date when the change feed is read. `failed` stands in for
 * the status, so that others do not touch its index either. `folded` is the key to be searched.
 */
/** `append` makes the function of all appends, as it was before. */
export function listColumns(append: string): string {
  return `ALTER TABLE $schema.sessions
    ADD COLUMN attached bigint NOT NULL DEFAULT 0,
    ADD COLUMN active_at bigint NOT NULL DEFAULT 0,
    ADD COLUMN failed boolean NOT NULL DEFAULT false,
    ADD COLUMN folded text COLLATE "C";
  UPDATE $schema.sessions SET active_at = updated_at,
    failed = (state = 'open' AND status = 'failed');
  DROP INDEX $schema.sessions_open, $schema.sessions_open_of_principal, $schema.sessions_by_key,
    $schema.sessions_flagged;
  CREATE INDEX sessions_by_key ON $schema.sessions (key, principal, number) WHERE key IS NOT NULL;
  CREATE INDEX sessions_flagged ON $schema.sessions (principal, number) WHERE flagged;
  CREATE INDEX sessions_failed ON $schema.sessions (active_at, number)
    WHERE failed AND NOT internal;
  CREATE INDEX sessions_failed_of ON $schema.sessions (principal, active_at, number)
    WHERE failed AND NOT internal;
  CREATE INDEX sessions_listed ON $schema.sessions (state, number) WHERE NOT internal;
  CREATE INDEX sessions_active ON $schema.sessions (state, active_at, number)
    INCLUDE (agent, folded) WHERE NOT internal;
  CREATE INDEX sessions_active_of ON $schema.sessions (principal, state, active_at, number)
    INCLUDE (agent, folded) WHERE NOT internal;
  CREATE INDEX sessions_of_agent ON $schema.sessions (agent, number) WHERE NOT internal;
  CREATE INDEX sessions_by_folded ON $schema.sessions (folded)
    WHERE folded IS NOT NULL AND NOT internal;
  CREATE OR REPLACE FUNCTION $schema.feed_changes(most bigint, kept bigint, known integer)
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
      UPDATE $schema.sessions AS held
        SET changed = false, fed_seq = held.seq, active_at = held.updated_at
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
  ${withListed(append)}`
}

/** The function of appends with the columns of lists. */
function withListed(append: string): string {
  return append
    .replace('sizes bigint[], known', 'sizes bigint[], attachments bigint[], known')
    .replace(
      'changed = true',
      `attached = CASE WHEN given.closed THEN 0 ELSE given.attached END,
        failed = (NOT given.closed AND coalesce(given.status, held.status) = 'failed'),
        active_at = CASE
          WHEN given.closed OR given.at < held.active_at OR given.at >= held.active_at + 1000
            THEN given.at
          ELSE held.active_at
        END,
        changed = true`,
    )
    .replace('queues, sizes\n', 'queues, sizes, attachments\n')
    .replace('queued, size, place', 'queued, size, attached, place')
}
