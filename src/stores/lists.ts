/**
 * Pages of sessions in SQL, alike for both databases: which index finds them, and how many rows are
 * looked at.
 *
 * A page is put together from branches. A *set* is what an index finds by a filter that few
 * sessions match: all of it is looked up and sorted. A *walk* goes along an index in the order of
 * the list, and checks what the range of the index does not say. It looks at so many entries and
 * no more, so that no filter makes a page slow: such a page ends early, and its cursor goes on.
 *
 * A caller who does not see all sessions is shown walks along those of its own principals only, so
 * that neither the time nor the length of a page tells about others.
 */
import {
  COUNT_MAX,
  type ListCount,
  type ListLabel,
  type ListPage,
  type ListQuery,
} from '../core/store.ts'
import { foldedKey, prefixEnd, storedName } from './names.ts'
import { cursorAfter, listCount, positionOf, type ListPosition } from './pages.ts'
import { ROW_COLUMNS, sessionRow, type StoredRow } from './rows.ts'

/** So many sessions a set may have: each is looked up, wherever it is in the table. */
const SET_MAX = 2_000

/** Branches that are put together at a time. */
const UNION_MAX = 100

/** Entries of its index that a walk looks at for one page … */
const LOOKS_MAX = 5_000
/** … and how many times longer each takes that needs what is not in the index. */
const LOOK_COSTS: ReadonlyMap<string, number> = new Map([
  ['label', 3],
  ['status', 5],
  ['key', 5],
])

/** How a database says what its SQL has of its own. */
export type ListDialect = {
  /** Before the name of a table. */
  readonly schema: string
  readonly isPublic: string
  readonly isPending: string
  readonly isFailed: string
  /** The table of sessions, to be read by this index. */
  readonly by: (index: string) => string
  /** These columns of the table `found`, and the session of each of its numbers, looked up. */
  readonly lookUp: (columns: string, found: string) => string
  /** What stands in a text for the value of this place, from 1 on. */
  readonly placeholder: (place: number, type: 'bigint' | 'text') => string
}

export type Statement = { readonly text: string; readonly values: readonly unknown[] }

/** Collects the values of a statement. */
class Values {
  readonly all: unknown[] = []
  readonly #dialect: ListDialect

  constructor(dialect: ListDialect) {
    this.#dialect = dialect
  }

  number(value: number): string {
    return this.#dialect.placeholder(this.all.push(value), 'bigint')
  }

  text(value: string): string {
    return this.#dialect.placeholder(this.all.push(value), 'text')
  }

  name(value: string): string {
    return this.text(storedName(value))
  }
}

/** A part of a statement: its values are added where it is used. */
type Sql = (values: Values) => string

/** What a session has to match; each condition by the column that it is about. */
type Filter = { readonly about: string; readonly sql: Sql }

type Branch =
  | { readonly type: 'set'; readonly numbers: Sql; readonly filters: readonly Filter[] }
  | {
      readonly type: 'walk'
      readonly index: string
      /** Where the index begins and ends. */
      readonly range: readonly Filter[]
      /** What the range does not say. */
      readonly filters: readonly Filter[]
    }

type FoundRow = StoredRow & {
  readonly active_at: number
  readonly matches: number
  /** The last one that its branch has looked at. */
  readonly is_end: number
  readonly branch: number
}

type FoundCount = { readonly matched: number; readonly is_cut: number }

/** The statements that a page takes, one after the other; each is answered with its rows. */
export function* listing(
  query: ListQuery,
  dialect: ListDialect,
): Generator<Statement, ListPage, readonly unknown[]> {
  const branches = branchesOf(query, yield* smallestSet(query, dialect), dialect)
  const isEmpty = branches.length === 0
  const found = isEmpty ? [] : yield pageStatement(query, branches, dialect)
  const page = mergedPage(query, found as readonly FoundRow[])
  if (query.count !== true) return page
  const counts = isEmpty ? [] : yield countStatement(query, branches, dialect)
  return { ...page, count: countOf(counts as readonly FoundCount[]) }
}

/**
 * The filters that few sessions may match, as the numbers that an index finds by each. Of a caller
 * who does not see all sessions, only those that find its own.
 */
function setsOf(query: ListQuery, dialect: ListDialect): readonly Sql[] {
  const { status, agent, key, keyPrefix, visibleTo } = query
  const { by, isPublic, isPending, isFailed, schema } = dialect
  const sessions = (index: string, where: Sql): Sql => {
    return (values) => `SELECT number FROM ${by(index)} WHERE ${where(values)}`
  }
  const isOwn: Sql = (values) => {
    return visibleTo === undefined ? '' : ` AND principal IN (${names(visibleTo, values)})`
  }
  const sets: Sql[] = []
  if (status === 'failed') {
    const index = visibleTo === undefined ? 'sessions_failed' : 'sessions_failed_of'
    sets.push(sessions(index, (values) => isFailed + isOwn(values)))
  }
  if (status === 'running' || status === 'queued' || status === 'waiting') {
    sets.push(sessions('sessions_pending', (values) => isPending + isOwn(values)))
  }
  if (visibleTo !== undefined) return sets
  if (key !== undefined) sets.push(sessions('sessions_by_key', isName('key', key)))
  if (agent !== undefined) {
    const isAgent = isName('agent', agent)
    sets.push(sessions('sessions_of_agent', (values) => `${isAgent(values)} AND ${isPublic}`))
  }
  if (keyPrefix !== undefined) {
    const begins = hasPrefix(keyPrefix)
    sets.push(sessions('sessions_by_folded', (values) => `${begins(values)} AND ${isPublic}`))
  }
  for (const { name, value } of labelsOf(query)) {
    const [isLabel, isValue] = [isName('name', name), isName('value', value)]
    sets.push((values) => {
      const where = `${isLabel(values)} AND ${isValue(values)}`
      return `SELECT session AS number FROM ${schema}labels WHERE ${where}`
    })
  }
  return sets
}

/** The smallest set, if it is small. */
function* smallestSet(
  query: ListQuery,
  dialect: ListDialect,
): Generator<Statement, Sql | null, readonly unknown[]> {
  if (query.visibleTo?.length === 0 || isOfOneKey(query)) return null
  const sets = setsOf(query, dialect)
  if (sets.length === 0) return null
  const values = new Values(dialect)
  const counts = sets.map((numbers, place) => {
    return `SELECT ${place} AS place, count(*) AS count
      FROM (SELECT 1 FROM (${numbers(values)}) AS found LIMIT ${SET_MAX + 1}) AS counted`
  })
  const found = yield { text: counts.join(' UNION ALL '), values: values.all }
  const sizes = found as readonly { readonly place: number; readonly count: number }[]
  const [first] = sizes.toSorted((one, other) => one.count - other.count)
  return first !== undefined && first.count <= SET_MAX ? sets[first.place]! : null
}

/** Then one index has all of them in their order. */
function isOfOneKey({ key, principal, visibleTo, sort }: ListQuery): boolean {
  return key !== undefined && (principal ?? visibleTo) !== undefined && sort !== 'activity'
}

function branchesOf(query: ListQuery, set: Sql | null, dialect: ListDialect): readonly Branch[] {
  const filters = filtersOf(query, dialect)
  if (statesOf(query).length === 0) return []
  const { principal, visibleTo } = query
  if (visibleTo?.length === 0) return []
  const shared = visibleTo === undefined ? [] : [sharedWith(visibleTo, filters, dialect)]
  if (set !== null) return [{ type: 'set', numbers: set, filters }, ...shared]
  if (visibleTo === undefined) return walksOf(query, principal, filters, dialect)
  const own = visibleTo.filter((one) => principal === undefined || one === principal)
  const walks = own.flatMap((one) => walksOf(query, one, filters, dialect))
  return [...walks, ...shared]
}

/** What others have shared with one of these principals. */
function sharedWith(
  visibleTo: readonly string[],
  filters: readonly Filter[],
  { schema }: ListDialect,
): Branch {
  const numbers: Sql = (values) => `SELECT DISTINCT session AS number FROM ${schema}shares
    WHERE principal IN (${names(visibleTo, values)})`
  const isOthers: Sql = (values) => `principal NOT IN (${names(visibleTo, values)})`
  return { type: 'set', numbers, filters: [...filters, { about: 'owner', sql: isOthers }] }
}

/** Walks that together have all sessions, or those of a principal: one for each state. */
function walksOf(
  query: ListQuery,
  principal: string | undefined,
  filters: readonly Filter[],
  { isFailed }: ListDialect,
): readonly Branch[] {
  const own: readonly Filter[] =
    principal === undefined ? [] : [{ about: 'principal', sql: isName('principal', principal) }]
  const walk = (index: string, range: readonly Filter[]): Branch => {
    const whole = [...own, ...range]
    const left = filters.filter(({ about }) => !whole.some((one) => one.about === about))
    return { type: 'walk', index, range: whole, filters: left }
  }
  if (isOfOneKey(query)) {
    const keys = filters.filter(({ about }) => about === 'key')
    if (query.state !== 'open') return [walk('sessions_by_key', keys)]
    return [walk('sessions_by_open_key', [...keys, isState('open')])]
  }
  const isByActivity = query.sort === 'activity'
  const of = own.length > 0 ? '_of' : ''
  if (isByActivity && query.status === 'failed') {
    const range = ['status', 'state', 'public'].map((about): Filter => ({
      about,
      sql: () => isFailed,
    }))
    return [walk(`sessions_failed${of}`, range)]
  }
  if (own.length > 0 && !isByActivity) return [walk('sessions_by_principal', [])]
  const isPublic = filters.filter(({ about }) => about === 'public')
  return statesOf(query).map((state) => {
    const range = [...isPublic, isState(state)]
    return walk(isByActivity ? `sessions_active${of}` : 'sessions_listed', range)
  })
}

function isState(state: 'open' | 'closed'): Filter {
  return { about: 'state', sql: () => `state = '${state}'` }
}

/** The states that a session that matches may have. */
function statesOf({ state, status }: ListQuery): readonly ('open' | 'closed')[] {
  const states = (['open', 'closed'] as const).filter((one) => state === undefined || one === state)
  if (status === undefined) return states
  return states.filter((one) => (one === 'closed') === (status === 'closed'))
}

function labelsOf({ label = [] }: ListQuery): readonly ListLabel[] {
  return 'name' in label ? [label] : label
}

function filtersOf(query: ListQuery, { schema, isPublic }: ListDialect): readonly Filter[] {
  const { status, principal, key, agent, keyPrefix, keyText } = query
  const filters: Filter[] = [{ about: 'public', sql: () => isPublic }]
  const add = (about: string, sql: Sql): unknown => filters.push({ about, sql })
  const states = statesOf(query).map((state) => `'${state}'`)
  add('state', () => `state IN (${states.join(', ')})`)
  if (status !== undefined && status !== 'closed') {
    add('status', (values) => `status = ${values.text(status)}`)
  }
  if (principal !== undefined) add('principal', isName('principal', principal))
  if (key !== undefined) add('key', isName('key', key))
  if (agent !== undefined) add('agent', isName('agent', agent))
  for (const { name, value } of labelsOf(query)) {
    const [isLabel, isValue] = [isName('labels.name', name), isName('labels.value', value)]
    add(
      'label',
      (values) => `EXISTS (SELECT 1 FROM ${schema}labels AS labels
      WHERE labels.session = number AND ${isLabel(values)} AND ${isValue(values)})`,
    )
  }
  if (keyPrefix !== undefined) add('folded', hasPrefix(keyPrefix))
  if (keyText !== undefined) add('folded', hasText(keyText))
  return filters
}

function names(all: readonly string[], values: Values): string {
  return all.map((one) => values.name(one)).join(', ')
}

function isName(column: string, name: string): Sql {
  return (values) => `${column} = ${values.name(name)}`
}

function hasPrefix(prefix: string): Sql {
  const folded = foldedKey(prefix)
  const end = prefixEnd(folded)
  return (values) => {
    const isFrom = `folded >= ${values.text(folded)}`
    return end === null ? isFrom : `${isFrom} AND folded < ${values.text(end)}`
  }
}

/** What gets shorter without the text has it: `replace` is in both databases. */
function hasText(text: string): Sql {
  const folded = foldedKey(text)
  return (values) => `length(replace(folded, ${values.text(folded)}, '')) < length(folded)`
}

/** Times may be the same, numbers are not. */
function orderOf({ sort, order }: ListQuery): string {
  const direction = order === 'asc' ? 'ASC' : 'DESC'
  return sort === 'activity' ? `active_at ${direction}, number ${direction}` : `number ${direction}`
}

function afterCursor(query: ListQuery): readonly Sql[] {
  const position = positionOf(query)
  if (position === null) return []
  const than = query.order === 'asc' ? '>' : '<'
  const { at, number } = position
  if (query.sort !== 'activity') return [(values) => `number ${than} ${values.number(number)}`]
  return [
    (values) => `(active_at, number) ${than} (${values.number(at)}, ${values.number(number)})`,
  ]
}

/** How much a branch looks at: together they take no longer than one would. */
function looksOf(rows: number, { filters }: Branch, branches: readonly Branch[]): number {
  const costs = filters.map(({ about }) => LOOK_COSTS.get(about) ?? 1)
  return Math.max(rows, Math.ceil(LOOKS_MAX / branches.length / Math.max(1, ...costs)))
}

function pageStatement(
  query: ListQuery,
  branches: readonly Branch[],
  dialect: ListDialect,
): Statement {
  const values = new Values(dialect)
  const order = orderOf(query)
  const rows = query.limit + 1
  const after = afterCursor(query)
  const texts = branches.map((branch, place) => {
    const end = `ORDER BY ${order} LIMIT ${rows}`
    const columns = `${ROW_COLUMNS}, active_at, ${place} AS branch`
    const filters = branch.filters.map(({ sql }) => sql)
    if (branch.type === 'set') {
      const found = dialect.lookUp('', branch.numbers(values))
      return `SELECT ${columns}, 1 AS matches, 0 AS is_end FROM (${found}) AS sessions
        WHERE ${all([...after, ...filters], values)} ${end}`
    }
    const range = all([...branch.range.map(({ sql }) => sql), ...after], values)
    const from = `FROM ${dialect.by(branch.index)} WHERE ${range} ORDER BY ${order}`
    if (filters.length === 0) {
      return `SELECT ${columns}, 1 AS matches, 0 AS is_end ${from} LIMIT ${rows}`
    }
    const looks = looksOf(rows, branch, branches)
    const walked = `SELECT * FROM (
        SELECT number${query.sort === 'activity' ? ', active_at' : ''},
          CASE WHEN ${all(filters, values)} THEN 1 ELSE 0 END AS matches,
          CASE WHEN row_number() OVER (ORDER BY ${order}) = ${looks} THEN 1 ELSE 0 END AS is_end
        ${from} LIMIT ${looks}
      ) AS walked WHERE matches = 1 OR is_end = 1 ${end}`
    const found = dialect.lookUp('found.matches, found.is_end,', walked)
    return `SELECT ${columns}, matches, is_end FROM (${found}) AS sessions`
  })
  const branched = texts.map((one, place) => `SELECT * FROM (${one}) AS branch_${place}`)
  return { text: unionOf(branched), values: values.all }
}

function all(conditions: readonly Sql[], values: Values): string {
  return conditions.map((sql) => `(${sql(values)})`).join(' AND ')
}

/** The page ends where the first of the branches was not read any further. */
function mergedPage(query: ListQuery, found: readonly FoundRow[]): ListPage {
  const sign = query.order === 'asc' ? 1 : -1
  const position = ({ active_at: at, number }: FoundRow): ListPosition => {
    return { at: query.sort === 'activity' ? at : 0, number }
  }
  const byPosition = (one: FoundRow, other: FoundRow): number => {
    const [before, after] = [position(one), position(other)]
    return sign * (before.at - after.at || before.number - after.number)
  }
  const sorted = found.toSorted(byPosition)
  const counts = new Map<number, number>()
  const end = sorted.find(({ branch, is_end: isEnd }) => {
    const count = (counts.get(branch) ?? 0) + 1
    counts.set(branch, count)
    return count > query.limit || isEnd === 1
  })
  const read = end === undefined ? sorted : sorted.filter((row) => byPosition(row, end) <= 0)
  const matching = read.filter(({ matches }) => matches === 1)
  const page = matching.slice(0, query.limit)
  const last = matching.length > query.limit ? page.at(-1) : end
  const nextCursor = last === undefined ? null : cursorAfter(position(last), query)
  return { sessions: page.map(sessionRow), nextCursor }
}

function countStatement(
  query: ListQuery,
  branches: readonly Branch[],
  dialect: ListDialect,
): Statement {
  const values = new Values(dialect)
  const texts = branches.map((branch) => {
    const filters = branch.filters.map(({ sql }) => sql)
    if (branch.type === 'set') {
      const found = dialect.lookUp('', branch.numbers(values))
      return `SELECT count(*) AS matched, 0 AS is_cut FROM (${found}) AS sessions
        WHERE ${all(filters, values)}`
    }
    const range = all(
      branch.range.map(({ sql }) => sql),
      values,
    )
    const from = `FROM ${dialect.by(branch.index)} WHERE ${range}`
    if (filters.length === 0) {
      return `SELECT count(*) AS matched, 0 AS is_cut
        FROM (SELECT 1 ${from} LIMIT ${COUNT_MAX + 1}) AS counted`
    }
    const looks = looksOf(1, branch, branches)
    return `SELECT coalesce(sum(matches), 0) AS matched,
        CASE WHEN count(*) = ${looks} THEN 1 ELSE 0 END AS is_cut
      FROM (
        SELECT CASE WHEN ${all(filters, values)} THEN 1 ELSE 0 END AS matches
        ${from} ORDER BY ${orderOf(query)} LIMIT ${looks}
      ) AS walked`
  })
  return { text: unionOf(texts), values: values.all }
}

/** In parts: SQLite takes at most 500 in one, and a caller may be in more groups. */
function unionOf(texts: readonly string[]): string {
  if (texts.length <= UNION_MAX) return texts.join(' UNION ALL ')
  const parts = Array.from({ length: Math.ceil(texts.length / UNION_MAX) }, (_, index) => {
    const some = texts.slice(index * UNION_MAX, (index + 1) * UNION_MAX)
    return `SELECT * FROM (${some.join(' UNION ALL ')}) AS part_${index}`
  })
  return unionOf(parts)
}

function countOf(counts: readonly FoundCount[]): ListCount {
  const matched = counts.reduce((sum, count) => sum + count.matched, 0)
  return listCount(matched, !counts.some((count) => count.is_cut === 1))
}
