/**
 * The audit: what happens outside of sessions, kept by the store. What happens in a session is in
 * its log, with its principal.
 *
 * A record is a diagnostic of one of the codes below. Addresses of clients are kept here only, and
 * for a time of their own. Refusals that repeat within a while are one record with a count, and
 * records are written once a second at most: a client cannot make the audit grow at its own pace.
 */
import {
  messageOf,
  type AuditRecord,
  type Authority,
  type Diagnostic,
  type DiagnosticCode,
} from '../core/index.ts'
import {
  changedBetween,
  digestOf,
  fingerprintOf,
  type Fingerprint,
} from './configuration-record.ts'

export const AUDITED: ReadonlySet<DiagnosticCode> = new Set([
  'budget_reached',
  'client_refused',
  'config_unusable',
  'limit_reached',
  'link_used',
  'listening',
  'session_erased',
  'tokens_read',
  'tokens_unusable',
])

/** Records of a code that differ in one of these facts, or in their address, are no repetitions. */
const TOLD_APART = ['reason', 'principal', 'session', 'link'] as const

const AUDIT_LIMITS = {
  /** Between two writes. */
  writeMs: 1_000,
  /** So long repetitions are counted before they are a record again. */
  repeatMs: 60_000,
  /** Kinds of repetitions that are told apart, and records that wait to be written. */
  kindsMax: 1_000,
  waitingMax: 1_000,
  /** Between two times of forgetting what is too old. */
  pruneMs: 3_600_000,
} as const

type AuditNode = Pick<Authority, 'store' | 'clock' | 'entropy' | 'limits' | 'node' | 'diagnose'>

/** What a server is configured with. */
export type Configuration = {
  /** Every setting, however nested. The audit keeps their paths, and no value. */
  readonly settings: object
  /** Which of several servers on one store it is, if there are: its address for the others. */
  readonly server?: string | undefined
}

type Configured = { readonly fingerprint: Fingerprint }

export class Audit {
  readonly #node: AuditNode
  #waiting: AuditRecord[] = []
  /** Records that were not written because too many waited. */
  #dropped = 0
  /** How often each kind was seen since its last record, and when that was. */
  readonly #kinds = new Map<string, { readonly since: number; count: number }>()
  #writing: Promise<void> | null = null
  #timer: NodeJS.Timeout | undefined
  readonly #pruneTimer: NodeJS.Timeout
  #configured: Promise<void> | null = null
  #isClosed = false

  constructor(node: AuditNode) {
    this.#node = node
    this.#pruneTimer = setInterval(() => void this.#prune(), AUDIT_LIMITS.pruneMs).unref()
    void this.#prune()
  }

  /** A listener for diagnostics. */
  readonly take = ({ code, message, facts }: Diagnostic): void => {
    if (!AUDITED.has(code) || this.#isClosed || this.#node.store.addAudit === undefined) return
    const { address = null, ...rest } = facts
    const told = TOLD_APART.map((name) => rest[name] ?? null)
    const kind = JSON.stringify([code, address, ...told])
    const count = this.#countOf(kind)
    if (count === 0) return
    if (this.#waiting.length >= AUDIT_LIMITS.waitingMax) return void (this.#dropped += 1)
    const what = { code, message, node: this.#node.node, ...(count > 1 ? { count } : {}) }
    const body = JSON.stringify({ ...what, facts: rest })
    this.#waiting.push({ at: this.#node.clock.now(), address: textOf(address), body })
    this.#writeLater()
  }

  /** Records what the server is configured with, and what of it differs from the last record. */
  configured(configuration: Configuration, verb: 'has started' | 'runs on'): void {
    const before = this.#configured ?? Promise.resolve()
    this.#configured = before
      .then(() => this.#addConfigured(configuration, verb))
      .catch((error: unknown) => {
        const facts = { reason: 'write', records: 1, error: messageOf(error) }
        this.#node.diagnose('audit_failed', 'records of the audit were lost', facts)
      })
  }

  async #addConfigured({ settings, server = '' }: Configuration, verb: string): Promise<void> {
    const { store, node, clock, entropy } = this.#node
    if (store.lastAudit === undefined) return
    const what = { code: 'configured', server }
    const last = await store.lastAudit(JSON.stringify(what).replace(/}$/, ','))
    const before = last === null ? null : (JSON.parse(last.body) as Configured).fingerprint
    const fingerprint = fingerprintOf(settings, before?.salt ?? entropy.id())
    const changed = before === null ? null : changedBetween(before, fingerprint)
    const compared = changed?.length === 0 ? 'the same configuration' : 'another configuration'
    const first = 'a configuration, for the first time'
    const message = `the server ${verb} with ${changed === null ? first : compared}`
    const facts = {
      digest: digestOf(fingerprint),
      settings: Object.keys(fingerprint.digests).length,
      ...(changed === null ? {} : { changed }),
    }
    const body = JSON.stringify({ ...what, message, node, facts, fingerprint })
    await store.addAudit?.([{ at: clock.now(), address: null, body }])
  }

  /** How many a record now stands for; 0: it is only counted. */
  #countOf(kind: string): number {
    const now = this.#node.clock.monotonic()
    const seen = this.#kinds.get(kind)
    if (seen !== undefined && now - seen.since < AUDIT_LIMITS.repeatMs) {
      seen.count += 1
      return 0
    }
    if (this.#kinds.size >= AUDIT_LIMITS.kindsMax) this.#kinds.clear()
    this.#kinds.set(kind, { since: now, count: 0 })
    return (seen?.count ?? 0) + 1
  }

  #writeLater(): void {
    this.#timer ??= setTimeout(() => this.#write(), AUDIT_LIMITS.writeMs).unref()
  }

  #write(): void {
    this.#timer = undefined
    // One write at a time: the next takes what came meanwhile.
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = null
      if (this.#waiting.length > 0 && !this.#isClosed) this.#writeLater()
    })
  }

  async #writeAll(): Promise<void> {
    const records = this.#waiting
    this.#waiting = []
    const dropped = this.#dropped
    this.#dropped = 0
    if (dropped > 0) {
      const body = JSON.stringify({ code: 'audit_dropped', node: this.#node.node, count: dropped })
      records.push({ at: this.#node.clock.now(), address: null, body })
    }
    try {
      if (records.length > 0) await this.#node.store.addAudit?.(records)
    } catch (error) {
      const facts = { reason: 'write', records: records.length, error: messageOf(error) }
      this.#node.diagnose('audit_failed', 'records of the audit were lost', facts)
    }
  }

  async #prune(): Promise<void> {
    const { store, clock, limits } = this.#node
    const recordsAt = clock.now() - limits.auditMs
    const addressesAt = clock.now() - limits.auditAddressMs
    try {
      await store.pruneAudit?.({ recordsAt, addressesAt })
    } catch (error) {
      // The next time it is tried again.
      const facts = { reason: 'prune', error: messageOf(error) }
      this.#node.diagnose('audit_failed', 'old records of the audit could not be removed', facts)
    }
  }

  /** Writes what waits. */
  async close(): Promise<void> {
    this.#isClosed = true
    clearTimeout(this.#timer)
    clearInterval(this.#pruneTimer)
    await this.#configured
    await this.#writing
    await this.#writeAll()
  }
}

function textOf(address: unknown): string | null {
  return typeof address === 'string' && address !== '' ? address : null
}
