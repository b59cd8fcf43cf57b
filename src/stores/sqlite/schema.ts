/**
 * The tables, as steps (see `steps.ts`): one that was released never changes.
 *
 * Layout: what a turn changes (seq, updated_at, status, pending, …) is in no index but those of
 * sessions with work and of failed ones, which hold few. `active_at` stands in for `updated_at`,
 * and `due_at` for `expires_at`: each is a lower bound that most turns need not touch. `log.ts`
 * says why so few events are indexed.
 */
import { schemaStep } from '../steps.ts'

export const STEPS = [
  `CREATE TABLE sessions (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    key TEXT,
    agent TEXT NOT NULL,
    internal INTEGER NOT NULL,
    labels TEXT NOT NULL,
    state TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    owner TEXT,
    seq INTEGER NOT NULL,
    last_event INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    pending INTEGER NOT NULL,
    expires_at INTEGER,
    due_at INTEGER,
    closed_at INTEGER
  );
  CREATE UNIQUE INDEX sessions_by_open_key ON sessions (key)
    WHERE state = 'open' AND key IS NOT NULL;
  CREATE INDEX sessions_by_key ON sessions (key, number) WHERE key IS NOT NULL;
  CREATE INDEX sessions_open ON sessions (number) WHERE state = 'open' AND internal = 0;
  CREATE INDEX sessions_pending ON sessions (number) WHERE pending = 1;
  CREATE INDEX sessions_due ON sessions (due_at) WHERE due_at IS NOT NULL;
  CREATE INDEX sessions_closed ON sessions (closed_at) WHERE closed_at IS NOT NULL;
  CREATE TABLE events (
    number INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    previous INTEGER NOT NULL,
    body TEXT NOT NULL
  );
  CREATE UNIQUE INDEX events_marked ON events (session, seq) WHERE seq % 64 = 0;
  CREATE TABLE snapshots (session INTEGER PRIMARY KEY, seq INTEGER NOT NULL, body TEXT NOT NULL);
  CREATE TABLE labels (
    name TEXT NOT NULL, value TEXT NOT NULL, session INTEGER NOT NULL,
    PRIMARY KEY (name, value, session)
  ) WITHOUT ROWID;
  CREATE INDEX labels_by_session ON labels (session);`,
  // A checksum is the CRC-32 of the body; events of before have none. Keys are numbered within
  // their session, so that the oldest are found without counting.
  `ALTER TABLE events ADD COLUMN checksum INTEGER;
  ALTER TABLE sessions ADD COLUMN status TEXT NOT NULL DEFAULT 'idle';
  ALTER TABLE sessions ADD COLUMN queued INTEGER NOT NULL DEFAULT 0;
  CREATE TABLE request_keys (
    session INTEGER NOT NULL, key TEXT NOT NULL, number INTEGER NOT NULL, digest TEXT NOT NULL,
    turn TEXT NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (session, key)
  ) WITHOUT ROWID;
  CREATE UNIQUE INDEX request_keys_by_number ON request_keys (session, number);`,
  // Each principal has its own keys. What was there before belongs to the default one. `bytes` is
  // the length of a session's events.
  `ALTER TABLE sessions ADD COLUMN principal TEXT NOT NULL DEFAULT 'default';
  ALTER TABLE sessions ADD COLUMN shares TEXT NOT NULL DEFAULT '[]';
  DROP INDEX sessions_by_open_key;
  CREATE UNIQUE INDEX sessions_by_open_key ON sessions (principal, key)
    WHERE state = 'open' AND key IS NOT NULL;
  CREATE INDEX sessions_by_principal ON sessions (principal, number);
  CREATE TABLE shares (
    principal TEXT NOT NULL, session INTEGER NOT NULL,
    PRIMARY KEY (principal, session)
  ) WITHOUT ROWID;
  CREATE INDEX shares_by_session ON shares (session);
  CREATE TABLE audit (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL, address TEXT, body TEXT NOT NULL
  );
  CREATE INDEX audit_by_time ON audit (at);
  ALTER TABLE sessions ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
  UPDATE sessions SET bytes = logs.bytes FROM (
    SELECT session, sum(octet_length(body)) AS bytes FROM events GROUP BY session
  ) AS logs WHERE logs.session = sessions.number;
  CREATE INDEX sessions_open_of_principal ON sessions (principal)
    WHERE state = 'open' AND internal = 0;`,
  // The asks that wait. Those of before are withdrawn when their sessions are loaded. The bytes of
  // images and files, apart from the events: a log is read without them. `bytes` of a session
  // counts them too.
  // The links of before become shares: those that were revoked meanwhile are good for nothing, and
  // go with the next change.
  `CREATE TABLE asks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL, ask TEXT NOT NULL, kind TEXT NOT NULL, at INTEGER NOT NULL,
    body TEXT NOT NULL
  );
  CREATE UNIQUE INDEX asks_by_session ON asks (session, ask);
  CREATE TABLE blobs (
    session INTEGER NOT NULL, digest TEXT NOT NULL, bytes INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (session, digest)
  );
  INSERT OR IGNORE INTO shares (principal, session)
    SELECT '#link ' || json_extract(body, '$.digest'), session FROM events
      WHERE CASE WHEN body LIKE '%"type":"link.created"%'
        THEN json_extract(body, '$.type') = 'link.created' END;`,
  // The blobs that no event names yet: they go if the request is refused, and when the session is
  // claimed.
  `CREATE TABLE loose_blobs (
    session INTEGER NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (session, digest)
  ) WITHOUT ROWID;`,
  // Where each webhook stands. What lists of sessions are filtered and sorted by: `folded` is the
  // key to be searched. What principals have used on a day.
  `CREATE TABLE webhooks (name TEXT PRIMARY KEY, node TEXT, body TEXT) WITHOUT ROWID;
  ALTER TABLE sessions ADD COLUMN attached INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE sessions ADD COLUMN active_at INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE sessions ADD COLUMN folded TEXT;
  UPDATE sessions SET active_at = updated_at;
  DROP INDEX sessions_open;
  DROP INDEX sessions_open_of_principal;
  DROP INDEX sessions_by_key;
  DROP INDEX sessions_pending;
  CREATE INDEX sessions_by_key ON sessions (key, principal) WHERE key IS NOT NULL;
  CREATE INDEX sessions_pending ON sessions (principal) WHERE pending = 1;
  CREATE INDEX sessions_failed ON sessions (active_at)
    WHERE status = 'failed' AND state = 'open' AND internal = 0;
  CREATE INDEX sessions_failed_of ON sessions (principal, active_at)
    WHERE status = 'failed' AND state = 'open' AND internal = 0;
  CREATE INDEX sessions_listed ON sessions (state) WHERE internal = 0;
  CREATE INDEX sessions_active ON sessions (state, active_at, number, agent, folded, internal)
    WHERE internal = 0;
  CREATE INDEX sessions_active_of
    ON sessions (principal, state, active_at, number, agent, folded, internal)
    WHERE internal = 0;
  CREATE INDEX sessions_of_agent ON sessions (agent) WHERE internal = 0;
  CREATE INDEX sessions_by_folded ON sessions (folded) WHERE folded IS NOT NULL AND internal = 0;
  CREATE TABLE spending (
    day INTEGER NOT NULL, principal TEXT NOT NULL,
    tokens REAL NOT NULL, cost REAL NOT NULL, running REAL NOT NULL,
    PRIMARY KEY (day, principal)
  ) WITHOUT ROWID;`,
].map(schemaStep)
