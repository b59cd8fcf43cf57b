/**
 * Where logs, keys and ownership live. Sixteen operations and an audit, each one atomic step;
 * a store never decides.
 *
 * Times, positions and counts are safe integers; only a lease may be infinite.
 *
 * I1 `reserve` gives a key to exactly one session, whatever races.
 * I4 `append` extends a log only at its end, whole or not at all, and answers after it is durable.
 * I5 `append` under any epoch but the latest changes nothing.
 *
 * A rejected promise means that the outcome is unknown: the caller must claim again before it goes
 * on. `holdfast/testing` holds the conformance suite that every store passes.
 */
import type { Spending } from './budgets.ts'
import type { Share } from './state.ts'

/** What a store counts of a principal. */
export type StoredQuota = 'openSessions' | 'storedBytes'

export interface Store {
  /**
   * Finds the open session of a key, or creates it (log, key, ownership, and the blobs that it
   * begins with) in the same step.
   */
  reserve(reservation: Reservation): Promise<Reserved>
  /**
   * Makes `node` the owner under a new epoch and returns what is needed to load the session. Its
   * loose blobs are removed: the requests that needed them are gone with the owner before.
   */
  claim(session: string, node: string): Promise<Claim>
  /** The owner under `epoch` owns it no more; under any other epoch nothing is changed. */
  release(session: string, epoch: number): Promise<void>
  /** Extends many logs in one durable step; each is judged by itself, in order. */
  append(appends: readonly Append[]): Promise<readonly AppendOutcome[]>
  /** Request keys that were appended and are not forgotten, the newest first. */
  findKeys(session: string, query: KeyQuery): Promise<readonly KeyedTurn[]>
  /**
   * The session's row, and its events after a position, oldest first: at most `limit`, or fewer if
   * they are large (`PAGE_CHARS`), but one at least. The row's seq says whether there are more.
   * With `visibleTo`, a session is not there that neither belongs to one of these principals and
   * groups nor is shared with one: decided before its row is read, so that it takes no longer.
   */
  read(
    session: string,
    after: number,
    limit: number,
    visibleTo?: readonly string[],
  ): Promise<ReadResult>
  /**
   * Sessions by a filter, in an order. A page may have fewer than `limit`, if few of those that
   * were looked at match: only a page without `nextCursor` is the last.
   */
  list(query: ListQuery): Promise<ListPage>
  /**
   * The asks that wait in open sessions by a filter, in the order in which they were opened;
   * internal sessions are left out. A page ends early if the asks are large (`PAGE_CHARS`).
   */
  listAsks(query: AskQuery): Promise<AskPage>
  /**
   * Renews a node's lease for `leaseMs` from now on the store's clock; 0 gives it up. `lapsed`: the
   * lease before had ended, or is gone, so that others may have taken over whatever the node owned.
   */
  beat(node: string, leaseMs: number): Promise<Beat>
  /**
   * Removes a closed session's log and leaves a tombstone. False if there is nothing to
   * erase.
   */
  erase(session: string): Promise<boolean>
  /**
   * Makes a closed session of its whole log and its blobs, in one step; one that was erased is
   * there again. False, and nothing is changed, if there is one of this id. A store without it
   * takes nothing from archives.
   */
  restore?(session: RestoredSession): Promise<boolean>
  /**
   * The change feed: the sessions that were created, appended to or erased after a position, each
   * once in a page. `limit` bounds what is read; an empty page means that there is nothing more.
   * A null position asks for the feed's end. Positions grow, and no commit becomes visible behind
   * one that was given out. Throws `changes_gone` if the feed does not reach back to the position,
   * or never gave it out.
   */
  changes(after: number | null, limit: number): Promise<ChangePage>
  /** Adds records to the audit, in order. A store without these methods keeps no audit. */
  addAudit?(records: readonly AuditRecord[]): Promise<void>
  /** The records after a position, oldest first; 0 is the beginning. */
  readAudit?(after: number, limit: number): Promise<readonly StoredAuditRecord[]>
  /**
   * The newest record whose body begins so, of the newest 100,000; null: there is none. A store
   * without it cannot tell what has changed since an earlier start.
   */
  lastAudit?(start: string): Promise<StoredAuditRecord | null>
  /** Forgets records that are older than `recordsAt`, and addresses older than `addressesAt`. */
  pruneAudit?(older: { readonly recordsAt: number; readonly addressesAt: number }): Promise<void>
  /**
   * Makes a node the one that delivers a webhook, for so long from now on the store's clock; again
   * for longer. Null: another node does. `body` is what was kept of it; null: nothing. A store
   * without these methods has no webhooks.
   */
  holdWebhook?(name: string, node: string, ms: number): Promise<HeldWebhook | null>
  /**
   * Replaces what is kept of a webhook, and lets its node deliver it for so long; 0 gives it up.
   * False, and nothing is changed: another node delivers it, or none does.
   */
  saveWebhook?(name: string, node: string, body: string, ms: number): Promise<boolean>
  /** What is kept of all webhooks. */
  listWebhooks?(): Promise<readonly StoredWebhook[]>
  /** Adds what principals have used, and returns the sums by then, in order; of 35 days. */
  spend?(used: readonly Spending[]): Promise<readonly Spending[]>
  /**
   * How many open sessions belong to a principal, internal ones left out, up to `most`; or how many
   * bytes the events and blobs of all its sessions have that are not erased.
   */
  usage(principal: string, quota: StoredQuota, most: number): Promise<number>
  /**
   * Keeps blobs with an open session, each digest once, in a durable step of its own: all of them
   * or none. Together a session's blobs have at most `bytesMax`. `erase` removes them. New ones are
   * loose until an append keeps them, if that is asked for; otherwise none of these is loose.
   */
  putBlobs(
    session: string,
    blobs: readonly GivenBlob[],
    bytesMax: number,
    isLoose?: boolean,
  ): Promise<PutBlobs>
  /**
   * Removes those of these blobs that are loose, and returns how many bytes they had; under any
   * epoch but the latest nothing.
   */
  dropBlobs(session: string, epoch: number, digests: readonly string[]): Promise<number>
  /** The bytes that a session has under a digest; null: none. */
  readBlob(session: string, digest: string): Promise<Uint8Array | null>
  /**
   * Rejects with the reason why nothing could be written now. A store without it is ready while it
   * can be read.
   */
  ready?(): Promise<void>
  /** Settles all that is under way and lets go of files and connections. */
  close(): Promise<void>
  /** The nodes, where several share the store. A store for one node has none. */
  readonly cluster?: Cluster
}

/** What a store that several nodes share knows of them. */
export interface Cluster {
  /** The store's time in milliseconds since 1970, which is the time for all nodes. */
  now(): number
  /** The address of a living node; null if it is gone, or has given none. */
  urlOf(node: string): Promise<string | null>
  /** The living node that owns an open session; null if there is none. */
  ownerOf(session: SessionRef): Promise<string | null>
  /** How many open sessions a node owns. */
  owned(node: string): Promise<number>
  /** The oldest node first; also some whose lease is over. */
  nodes(): Promise<readonly NodeRow[]>
  /**
   * Replaces what this node has counted, unless that is null, and returns the counts of every other
   * node that lives. Without it, each node counts by itself.
   */
  exchangeCounts?(node: string, counts: NodeCounts | null): Promise<readonly NodeCounts[]>
  /** Tells the other nodes, for so long, what this one says of the followers that answer asks. */
  announceAnswerers(node: string, body: string, ms: number): Promise<void>
  /** What the other nodes have announced. */
  answerersBut(node: string): Promise<readonly string[]>
}

/** Counts of one node by their names. They need not survive a crash of the store. */
export type NodeCounts = Readonly<Record<string, number>>

/** A session by its id, or the open one of a principal by its key. */
export type SessionRef =
  | { readonly id: string }
  | { readonly key: string; readonly principal: string }

export type NodeRow = {
  readonly name: string
  /** Where other nodes reach it; null if it has given no address. */
  readonly url: string | null
  readonly version: string
  /** Milliseconds since 1970. */
  readonly startedAt: number
  /** What is left of its lease on the store's clock; 0 or less: it is over. */
  readonly leaseMs: number
  /** Open sessions that it owns. */
  readonly sessions: number
}

/** A page of a log ends when it has so much text, however few events that is: readers hold it. */
export const PAGE_CHARS = 262_144

/** An event as it is stored: `body` is its JSON, and holds the `seq` too. */
export type StoredEvent = { readonly seq: number; readonly body: string }

/** What a store knows of a session without reading its log. */
export type SessionRow = {
  readonly id: string
  /** Whom it belongs to, and what it is shared for; with the bearer of a link for nothing here. */
  readonly principal: string
  readonly shares: readonly Share[]
  readonly key: string | null
  readonly agent: string
  readonly internal: boolean
  readonly labels: Readonly<Record<string, string>>
  readonly state: 'open' | 'closed' | 'erased'
  readonly seq: number
  readonly status: SessionStatus
  /** Admitted turns that wait. */
  readonly queuedTurns: number
  /** Clients that are attached and connected, without those that only watch. */
  readonly attached: number
  /** Of its events and blobs. */
  readonly bytes: number
  readonly createdAt: number
  /** The time of the last event, or of its restoration. */
  readonly updatedAt: number
  /** It came from an archive; without it, it did not. */
  readonly isRestored?: true
}

/** A session from an archive. Its last event is `session.closed`. */
export type RestoredSession = Pick<SessionRow, RestoredField> & {
  readonly events: readonly string[]
  readonly blobs: readonly { readonly digest: string; readonly data: Uint8Array }[]
  /** From then on it counts as closed. */
  readonly at: number
}

type RestoredField =
  | 'id'
  | 'principal'
  | 'shares'
  | 'key'
  | 'agent'
  | 'internal'
  | 'labels'
  | 'createdAt'

/**
 * `waiting`: a turn waits for an answer to an ask. `queued`: turns wait and none runs yet.
 * `failed`: nothing is to be done, and the last turn failed.
 */
export type SessionStatus = 'idle' | 'failed' | 'queued' | 'running' | 'waiting' | 'closed'

/** What changed after a position of the feed. */
export type ChangePage = {
  /** In the order of the last change of each session. */
  readonly changes: readonly SessionChange[]
  /** Where the next page begins: a follower that has handled this one remembers it. */
  readonly position: number
}

/** The events after `after` up to `seq` are new. Of an erased session there are none any more. */
export type SessionChange = {
  readonly after: number
  readonly seq: number
  /** As it is now. */
  readonly row: SessionRow
}

export type Reservation = {
  /** The id to create under. With `explicit`, an existing session of this id is the answer. */
  readonly id: string
  readonly explicit: boolean
  /** Whom it will belong to: each principal has its own keys. */
  readonly principal: string
  /** Null: no key leads here. */
  readonly key: string | null
  readonly agent: string
  readonly internal: boolean
  readonly labels: Readonly<Record<string, string>>
  readonly node: string
  readonly at: number
  /** When the session may be closed for idleness, or null. */
  readonly expiresAt: number | null
  /** The JSON of `session.created`, seq 1. */
  readonly body: string
  /** What it begins with: copies, so that either session may be erased. */
  readonly blobs?: CopiedBlobs
}

/** Blobs of another session, by their digests, each once. */
export type CopiedBlobs = { readonly from: string; readonly digests: readonly string[] }

export type Reserved =
  /** Created, owned by the asking node under this epoch. */
  | { readonly type: 'created'; readonly id: string; readonly epoch: number }
  /** The key, or the explicit id, has this open session. */
  | { readonly type: 'found'; readonly id: string }
  /** The explicit id is closed or erased: it is never given out again. */
  | { readonly type: 'closed'; readonly id: string; readonly state: 'closed' | 'erased' }
  /** The key belongs to another open session than the explicit id. */
  | { readonly type: 'taken'; readonly id: string }
  /** Nothing was created: this session does not have all the blobs that were to be copied. */
  | { readonly type: 'gone'; readonly id: string }

export type Claim =
  | {
      readonly type: 'claimed'
      readonly row: SessionRow
      /** Null for a closed session, which has no owner. */
      readonly epoch: number | null
      readonly snapshot: string | null
      /** The events after the snapshot. */
      readonly tail: readonly StoredEvent[]
      /** It was another node's, whose lease ended without being given up. Only counted. */
      readonly takenOver?: boolean
    }
  /** Another node holds it and its lease has not ended. */
  | { readonly type: 'owned'; readonly node: string }
  | { readonly type: 'unknown' }
  | { readonly type: 'erased' }

export type Append = {
  readonly session: string
  readonly epoch: number
  /** The log's last seq before this append. */
  readonly after: number
  /** JSON bodies of the events `after + 1`, `after + 2`, … */
  readonly events: readonly string[]
  /** The folded session after these events, to load from later. */
  readonly snapshot: string | null
  readonly at: number
  readonly closed: boolean
  /** Something is due in it: if its owner is gone, another node picks it up by itself. */
  readonly pending: boolean
  readonly expiresAt: number | null
  /** What a list shows of it; without it, as it was. Something is due in one that has work. */
  readonly status?: Exclude<SessionStatus, 'closed'>
  /** Admitted turns that wait (0). */
  readonly queuedTurns?: number
  /** Clients that are attached and connected (0). */
  readonly attached?: number
  /** All its shares, and its links as shares with their bearers; without it, as before. */
  readonly shares?: readonly Share[]
  /** Request keys of the turns that these events admit, if any. */
  readonly keys?: AppendedKeys
  /** Blobs that its events name, by their digests: they are not loose any more. */
  readonly blobs?: readonly string[]
  /** The asks that wait from now on, and those that wait no more, if any. */
  readonly asks?: AppendedAsks
}

/** An ask that waits for an answer: `body` is its JSON. */
export type StoredAsk = { readonly id: string; readonly kind: string; readonly body: string }

export type AppendedAsks = {
  readonly opened: readonly StoredAsk[]
  /** By their ids. */
  readonly settled: readonly string[]
}

/** A request key, and the turn that was admitted with it at that time. */
export type KeyedTurn = {
  readonly key: string
  readonly digest: string
  readonly turn: string
  readonly at: number
}

/** With them older keys of the session are forgotten: by time, and beyond the number the oldest. */
export type AppendedKeys = {
  readonly added: readonly KeyedTurn[]
  readonly since: number
  readonly max: number
}

export type KeyQuery = {
  /** This one only; without it, all. */
  readonly key?: string
  /** None that is older. */
  readonly since: number
  readonly limit: number
}

/** A store without leases of its own has nothing to say. */
export type Beat = 'lapsed' | void

/**
 * `stale`: another epoch owns the session, or the log does not end at `after`; nothing was
 * changed.
 */
export type AppendOutcome = 'appended' | 'stale'

/** Bytes by their digest, which occurs once in a call; null: the session must have them. */
export type GivenBlob = { readonly digest: string; readonly data: Uint8Array | null }

/** Unless they are stored, nothing was changed. */
export type PutBlobs =
  /** The length of each, in their order, and of those that the session did not have. */
  | { readonly type: 'stored'; readonly bytes: readonly number[]; readonly added: number }
  | { readonly type: 'missing'; readonly digest: string }
  /** The session would have more than `bytesMax`. */
  | { readonly type: 'full' }
  /** There is no open session of that id. */
  | { readonly type: 'closed' }

/** Something that happened outside of sessions. */
export type AuditRecord = {
  readonly at: number
  /** Of the client that it is about: forgotten before the rest. */
  readonly address: string | null
  /** JSON. */
  readonly body: string
}

/** Of so many records, the newest, `lastAudit` finds one. */
export const AUDIT_LOOKS = 100_000

/** JSON. */
export type HeldWebhook = { readonly body: string | null }

export type StoredWebhook = HeldWebhook & {
  readonly name: string
  /** The node that delivers it; null: none, or its time is over. */
  readonly node: string | null
}

/** `position` grows, and no record becomes visible behind one that was read. */
export type StoredAuditRecord = AuditRecord & { readonly position: number }

export type ReadResult = {
  readonly row: SessionRow | null
  readonly events: readonly StoredEvent[]
}

/** Lists count up to so many sessions. */
export const COUNT_MAX = 10_000

export type ListLabel = { readonly name: string; readonly value: string }

export type ListQuery = {
  readonly limit: number
  readonly cursor?: string
  /** When they were made (the default), or when they last changed: at most a second late. */
  readonly sort?: 'created' | 'activity'
  /** The newest first (`desc`, the default), or the oldest. */
  readonly order?: 'desc' | 'asc'
  /** Also how many there are on all pages together. */
  readonly count?: boolean
  readonly state?: 'open' | 'closed'
  readonly status?: SessionStatus
  readonly key?: string
  /** Only those whose key begins so, in any case. */
  readonly keyPrefix?: string
  /** Only those whose key has this in it, in any case. */
  readonly keyText?: string
  readonly agent?: string
  /** Only those that belong to it. */
  readonly principal?: string
  /** Only those that belong to one of these principals and groups, or are shared with one. */
  readonly visibleTo?: readonly string[]
  /** Only those with this label, or with all of these. */
  readonly label?: ListLabel | readonly ListLabel[]
  /**
   * Only sessions with something due in them that no living node but this one owns. Internal ones
   * too.
   */
  readonly pendingFor?: string
  /** Only open sessions whose `expiresAt` is at or before this time. Internal ones too. */
  readonly expiredAt?: number
  /**
   * Only closed, not yet erased sessions last changed at or before this time. Internal ones too.
   */
  readonly closedBefore?: number
}

export type ListPage = {
  readonly sessions: readonly SessionRow[]
  readonly nextCursor: string | null
  /** If it was asked for. */
  readonly count?: ListCount
}

/** At most `COUNT_MAX`; unless it is exact, there may be more. */
export type ListCount = { readonly atLeast: number; readonly isExact: boolean }

export type AskQuery = {
  readonly limit: number
  readonly cursor?: string
  /** Only those of this session, by its id. */
  readonly session?: string
  readonly kind?: string
  /** As in a list of sessions. */
  readonly visibleTo?: readonly string[]
  readonly label?: { readonly name: string; readonly value: string }
}

/** An ask with its session. */
export type AskRow = {
  readonly row: SessionRow
  /** JSON, as it was given. */
  readonly body: string
  /** The time of the append that opened it. */
  readonly openedAt: number
}

export type AskPage = {
  readonly asks: readonly AskRow[]
  readonly nextCursor: string | null
}
