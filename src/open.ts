/** Opens Holdfast with a store by its name, agents as runners, and the real clock. */
import {
  Holdfast,
  HoldfastError,
  diagnoseTo,
  type DiagnosticListener,
  type Limits,
  type Runner,
  type Store,
} from './core/index.ts'
import { systemClock, systemDigest, systemEntropy } from './platform/clock.ts'
import { ask, echo, functionRunner, slow, type Agent } from './runners/function.ts'
import { MemoryStore } from './stores/memory.ts'
import { openPostgresStore } from './stores/postgres/index.ts'
import { openSqliteStore } from './stores/sqlite/index.ts'
import { VERSION } from './wire/version.ts'
import { coreLimits } from './core/limits.ts'
import { checkBudgetOptions, type BudgetOptions } from './core/budgets.ts'
import { checkQuotaOptions, type QuotaOptions } from './core/quotas.ts'
import { checkRetention, type RetentionRule } from './core/retention.ts'
import { checkRules, type Rule } from './core/rules.ts'
import { ArchiveFolder } from './platform/archive-folder.ts'

export type OpenOptions = {
  /** `memory:`, `sqlite:FILE`, `postgres://…`, or a store of your own. */
  readonly store: string | Store
  /** Agents by name, or runners of your own. Without any: `echo`, `slow` and `ask`. */
  readonly agents?: Readonly<Record<string, Agent | Runner>>
  /** The agent of sessions that do not name one: else the first. */
  readonly defaultAgent?: string
  readonly limits?: Partial<Limits>
  /** How much each principal may use: for callers that `as` was given an `access` for. */
  readonly quotas?: QuotaOptions
  /** How much each principal may use in a day: for the same callers. */
  readonly budgets?: BudgetOptions
  /** What is decided of what agents ask before people are asked. */
  readonly rules?: readonly Rule[]
  /** Which closed sessions are kept and for how long, and where they go before they are erased. */
  readonly retention?: RetentionOptions
  /** On PostgreSQL: the address at which other nodes reach this one's server. */
  readonly advertise?: string
  /** On PostgreSQL: the secret that all nodes share; a living node with another one is an error. */
  readonly clusterSecret?: string
  /** Called with every diagnostic: an event that no response reports. */
  readonly onDiagnostic?: DiagnosticListener
}

export type RetentionOptions = {
  /** The first that a closed session matches decides about it; without one `limits.retainMs`. */
  readonly rules?: readonly RetentionRule[]
  /** A folder; without it nothing is archived. */
  readonly archive?: string
  /** The archive by gzip. */
  readonly compress?: boolean
}

/** The defaults where many nodes share a database. */
export const CLUSTER_LIMITS = {
  leaseMs: 10_000,
  sweepMs: 2_000,
  commitAppendsMax: 256,
  commitsInFlightMax: 2,
} satisfies Partial<Limits>

export const builtinAgents: Readonly<Record<string, Agent>> = { echo, slow, ask }

/** Opens the store, continues what an earlier process left unfinished, and accepts turns. */
export async function openHoldfast(options: OpenOptions): Promise<Holdfast> {
  const { store: named, agents = builtinAgents, limits = {}, defaultAgent, onDiagnostic } = options
  const { quotas = {}, budgets = {}, rules = [], retention = {} } = options
  // Before the store is opened, which would have to be closed again.
  checkOptions(options)
  const archive = await openArchive(retention)
  const store = typeof named === 'string' ? await openStore(named, options) : named
  const { cluster } = store
  try {
    const holdfast = new Holdfast({
      store,
      runners: runnersFrom(agents),
      // Nodes that share a store use its clock.
      clock: cluster === undefined ? systemClock : { ...systemClock, now: () => cluster.now() },
      entropy: systemEntropy,
      digest: systemDigest,
      node: systemEntropy.id(),
      about: { version: VERSION, runtime: `node ${process.version}`, store: shownStore(named) },
      defaultAgent,
      onDiagnostic,
      quotas,
      budgets,
      rules,
      retention: retention.rules,
      archive,
      limits: limitsFor(named, limits),
    })
    await holdfast.authority.start()
    return holdfast
  } catch (error) {
    await store.close()
    throw error
  }
}

export function runnersFrom(agents: NonNullable<OpenOptions['agents']>): Record<string, Runner> {
  const runners = Object.entries(agents).map(([name, agent]) => {
    return [name, typeof agent === 'function' ? functionRunner(agent) : agent] as const
  })
  return Object.fromEntries(runners)
}

/** Throws unless Holdfast can be opened with these. */
export function checkOptions({
  limits,
  quotas,
  budgets,
  rules,
  retention,
}: Pick<OpenOptions, 'limits' | 'quotas' | 'budgets' | 'rules' | 'retention'>) {
  coreLimits(limits ?? {})
  checkQuotaOptions(quotas ?? {})
  checkBudgetOptions(budgets ?? {})
  checkRules(rules ?? [])
  checkRetention(retention?.rules ?? [])
}

/** The limits on a store: on PostgreSQL some defaults are others. */
export function limitsFor(store: OpenOptions['store'], limits: Partial<Limits>): Partial<Limits> {
  // An undefined limit must not replace a default.
  const given = Object.entries(limits).filter(([, value]) => value !== undefined)
  return { ...(isPostgres(store) ? CLUSTER_LIMITS : {}), ...Object.fromEntries(given) }
}

async function openArchive({ archive: folder, compress }: RetentionOptions) {
  if (folder === undefined) return null
  const archive = new ArchiveFolder({ folder, compress })
  await archive.open()
  return archive
}

/** The store's name as it may be shown: without a password. */
export function shownStore(store: OpenOptions['store']): string {
  if (typeof store !== 'string') return store.constructor.name
  if (!isPostgres(store) || !URL.canParse(store)) return store
  const { protocol, username, host, pathname } = new URL(store)
  return `${protocol}//${username === '' ? '' : `${username}@`}${host}${pathname}`
}

function isPostgres(store: OpenOptions['store']): boolean {
  return typeof store === 'string' && /^postgres(ql)?:/.test(store)
}

async function openStore(name: string, options: OpenOptions): Promise<Store> {
  if (name === 'memory:') return new MemoryStore()
  const diagnose = diagnoseTo(options.onDiagnostic ?? (() => undefined))
  const onMigration = (migration: Readonly<Record<string, string | number>>): void =>
    diagnose('store_migrating', 'the store has an older version and is migrated', {
      store: shownStore(name),
      ...migration,
    })
  if (isPostgres(name)) {
    const { advertise, clusterSecret: secret } = options
    const self = { version: VERSION, advertise, secret }
    return openPostgresStore({ url: name, diagnose, onMigration, ...self })
  }
  if (!/^sqlite:./.test(name)) {
    const known = 'memory:, sqlite:FILE or postgres://…'
    throw new HoldfastError('invalid_field', `store must be ${known}, not ${name}`)
  }
  return openSqliteStore({ file: name.slice('sqlite:'.length), onMigration })
}
