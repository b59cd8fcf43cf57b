/** The text of the database's function of all appends, which steps of the schema make. */

/** The function of all appends, as the fourth step made it. */
export const APPEND = `CREATE FUNCTION $schema.append(
      ids text[], epochs bigint[], afters bigint[], counts bigint[], times bigint[],
      closings boolean[], pendings boolean[], expiries bigint[], statuses text[],
      queues bigint[],
      event_places bigint[], event_seqs bigint[], event_checksums bigint[], event_bodies text,
      snapshot_places bigint[], snapshot_seqs bigint[], snapshot_bodies text,
      key_places bigint[], key_names text[], key_digests text[], key_turns text[],
      key_times bigint[], keys_since bigint, keys_max bigint, known integer
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
    place bigint;
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
        closed_at = CASE WHEN given.closed THEN given.at END,
        status = coalesce(given.status, held.status),
        queued = CASE WHEN given.closed THEN 0 ELSE given.queued END,
        changed = true
      FROM unnest(
          ids, epochs, afters, counts, times, closings, pendings, expiries, statuses, queues
        )
        WITH ORDINALITY AS given (
          id, epoch, after, count, at, closed, pending, expires_at, status, queued, place
        )
      -- The state is compared in a way that no index of open sessions fits: a plan could read all
      -- of one for the few that are given.
      WHERE held.id = given.id AND held.owner_epoch = given.epoch AND held.seq = given.after
        AND held.state || '' = 'open'
      RETURNING held.number, given.place
    LOOP
      numbers[moved.place] := moved.number;
      RETURN NEXT moved.place;
    END LOOP;
    -- After the lock: no migration can come between this and the change.
    PERFORM $schema.check_step(known);
    INSERT INTO $schema.events (session, seq, body, checksum)
      SELECT numbers[event.place], event.seq, event.body, event.checksum
        FROM unnest(event_places, event_seqs, events, event_checksums)
          AS event (place, seq, body, checksum)
        WHERE numbers[event.place] > 0;
    IF cardinality(snapshot_places) > 0 THEN
      INSERT INTO $schema.snapshots (session, seq, body)
        SELECT numbers[snapshot.place], snapshot.seq, snapshot.body
          FROM unnest(snapshot_places, snapshot_seqs, snapshots)
            AS snapshot (place, seq, body)
          WHERE numbers[snapshot.place] > 0
        ON CONFLICT (session) DO UPDATE SET seq = excluded.seq, body = excluded.body;
    END IF;
    IF cardinality(key_places) > 0 THEN
      INSERT INTO $schema.request_keys AS kept (session, key, number, digest, turn, at)
        SELECT numbers[given.place], given.key,
            coalesce((
              SELECT max(older.number) FROM $schema.request_keys AS older
                WHERE older.session = numbers[given.place]
            ), 0) + row_number() OVER (PARTITION BY given.place ORDER BY given.ordinal),
            given.digest, given.turn, given.at
          FROM unnest(key_places, key_names, key_digests, key_turns, key_times)
            WITH ORDINALITY AS given (place, key, digest, turn, at, ordinal)
          WHERE numbers[given.place] > 0
        ON CONFLICT ON CONSTRAINT request_keys_pkey DO UPDATE SET number = excluded.number,
          digest = excluded.digest, turn = excluded.turn, at = excluded.at;
      FOR place IN SELECT DISTINCT unnest(key_places) LOOP
        DELETE FROM $schema.request_keys AS old WHERE old.session = numbers[place]
          AND old.number < greatest(
            (SELECT max(newest.number) FROM $schema.request_keys AS newest
              WHERE newest.session = numbers[place]) - keys_max + 1,
            coalesce((SELECT oldest.number FROM $schema.request_keys AS oldest
              WHERE oldest.session = numbers[place] AND oldest.at >= keys_since
              ORDER BY oldest.number LIMIT 1), 0));
      END LOOP;
    END IF;
    FOR place IN 1 .. cardinality(ids) LOOP
      IF closings[place] AND numbers[place] > 0 THEN
        DELETE FROM $schema.request_keys AS old WHERE old.session = numbers[place];
      END IF;
    END LOOP;
  END $body$;`

/** The same with the bytes of the events of each append. */
export function withSizes(append: string): string {
  return append
    .replace('keys_max bigint, known', 'keys_max bigint, sizes bigint[], known')
    .replace('changed = true', 'bytes = held.bytes + given.size, changed = true')
    .replace('statuses, queues\n', 'statuses, queues, sizes\n')
    .replace('status, queued, place', 'status, queued, size, place')
}
