/** Stores of released versions (`test/fixtures`): opened, continued and verified by this one. */
import { copyFile, mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { openSqlite } from '../../src/stores/sqlite/driver.ts'
import {
  openHoldfast,
  type Agent,
  type Diagnostic,
  type Holdfast,
  type SessionHandle,
} from 'holdfast'
import { openPostgresStore } from 'holdfast/postgres'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { CommandLine } from '../support/command-line.ts'
import { loadDump, openTestDatabase, schemaOf, type TestDatabase } from '../support/postgres.ts'

const FIXTURES = fileURLToPath(new URL('../fixtures/', import.meta.url))
const YEARS_MS = 100 * 365 * 86_400_000

type Facts = {
  readonly sessions: Readonly<Record<string, string>>
  readonly secrets: { readonly link: string }
  readonly turns: readonly {
    readonly name: string
    readonly turn: string
    readonly text: string
    readonly state: string
    readonly reply: string | null
    readonly idempotencyKey?: string | null
  }[]
}

const json = async (path: string): Promise<any> =>
  JSON.parse(await readFile(join(FIXTURES, path), 'utf8'))

const echo: Agent = async ({ text }) => text
const agents = { echo, failing: echo, held: echo, asking: echo, seeing: echo }

let folder: string
let database: TestDatabase
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-upgrade-'))
  database = await openTestDatabase()
})
afterAll(async () => {
  await database.close()
  await rm(folder, { recursive: true })
})

async function copySqlite(version: string, name: string): Promise<string> {
  const file = join(folder, name)
  for (const suffix of ['', '-wal']) {
    await copyFile(join(FIXTURES, version, `holdfast.db${suffix}`), file + suffix)
  }
  return file
}

async function verified(store: string): Promise<string> {
  const command = new CommandLine(['verify', '--store', store])
  await command.exited
  return command.stdout.trim().split('\n').at(-1) ?? command.stderr
}

/** Everything that was acknowledged is there, nothing is stuck, and all of it goes on. */
async function goesOn(holdfast: Holdfast, { sessions, secrets, turns }: Facts): Promise<void> {
  await belongsToDefault(holdfast, sessions)
  // Its bearer is let in before the session is loaded.
  const linked = holdfast.session(sessions['attached'] ?? '')
  expect([await linked.hasLink(secrets.link), await linked.hasLink('x')]).toEqual([true, false])
  for (const { name, turn, text, state, reply } of turns) {
    if (name === 'erased') continue
    const record = await holdfast.session(sessions[name] ?? '').getTurn(turn)
    expect(record).toMatchObject({ id: turn, input: text })
    if (state === 'queued' || state === 'running') continue
    expect([record.state, record.reply?.text ?? null]).toEqual([state, reply])
  }
  for (const [name, id] of Object.entries(sessions)) {
    const session = holdfast.session(id)
    const code = await ending(session)
    const over: Record<string, string> = { closed: 'session_closed', erased: 'session_erased' }
    expect([name, code]).toEqual([name, over[name] ?? 'done'])
  }
  await knowsKeys(holdfast, { sessions, secrets, turns })
  const { ended, links } = await holdfast.session(sessions['attached'] ?? '').state()
  expect([ended.length >= 1, links.length]).toEqual([true, 1])
  expect(await holdfast.resolve({ key: 'idle' })).toMatchObject({ id: sessions['idle'] })
  const found = (await holdfast.list({ keyPrefix: 'IDL' })).sessions
  expect(found.map(({ id }) => id)).toEqual([sessions['idle']])
  for (const name of ['idle', 'running', 'attached']) {
    const { closed } = await holdfast.session(sessions[name] ?? '').close()
    expect(closed?.reason).toBe('closed')
  }
  await countsBytes(holdfast, Object.values(sessions))
}

/** A token that names no principal sees all of it, one that does nothing. */
async function belongsToDefault(holdfast: Holdfast, sessions: Facts['sessions']): Promise<void> {
  const as = (principal: string): Holdfast => {
    const scopes = ['watch', 'talk', 'manage'] as const
    const by = { kind: 'token', issuer: 'holdfast', id: principal } as const
    return holdfast.as(by, { principal, groups: [], scopes })
  }
  const [own, alice] = [as('default'), as('alice')]
  const listed = (await own.list()).sessions
  expect(listed.length).toBeGreaterThan(0)
  expect(new Set(listed.map(({ principal }) => principal))).toEqual(new Set(['default']))
  expect((await alice.list()).sessions).toEqual([])
  for (const [name, id] of Object.entries(sessions)) {
    const code = (access: Holdfast) =>
      access
        .session(id)
        .read(0, 1)
        .then(
          () => 'read',
          (error: { code: string }) => error.code,
        )
    const expected = name === 'erased' ? 'session_erased' : 'read'
    expect([name, await code(own), await code(alice)]).toEqual([name, expected, 'session_unknown'])
  }
  expect(await alice.find('idle')).toBeNull()
}

/** The bytes that are counted are those of all logs and images, what was there before included. */
async function countsBytes(
  { authority: { store } }: Holdfast,
  sessions: readonly string[],
): Promise<void> {
  let bytes = 0
  // Internal ones are not listed.
  const listed = (await store.list({ limit: 1_000 })).sessions.map(({ id }) => id)
  for (const id of new Set([...listed, ...sessions])) {
    for (let seq = 0; ;) {
      const { row, events } = await store.read(id, seq, 1_000)
      for (const { body } of events) {
        bytes += Buffer.byteLength(body)
        const [digest = ''] = /sha256:[0-9a-f]{64}/.exec(body) ?? []
        bytes += (await store.readBlob(id, digest))?.length ?? 0
      }
      seq += events.length
      if (events.length === 0 || seq >= (row?.seq ?? 0)) break
    }
  }
  expect(await store.usage('default', 'storedBytes', 0)).toBe(bytes)
}

async function ending(session: SessionHandle): Promise<string> {
  try {
    return (await session.turn('go on')).state
  } catch (error) {
    return (error as { code: string }).code
  }
}

/** A key that a caller sends again finds its turn, and another body is refused. */
async function knowsKeys(holdfast: Holdfast, { sessions, turns }: Facts): Promise<void> {
  for (const { name, turn, text, idempotencyKey } of turns) {
    if (typeof idempotencyKey !== 'string') continue
    const session = holdfast.session(sessions[name] ?? '')
    expect(await session.submit(text, { idempotencyKey })).toMatchObject({ id: turn })
    const other = session.submit(`${text}!`, { idempotencyKey })
    await expect(other).rejects.toMatchObject({ code: 'idempotency_mismatch' })
  }
}

for (const version of ['0.1.0', '0.2.0-dev', '0.2.0-dev.2', '0.2.0-dev.3', '0.2.0-dev.4']) {
  // The last has one with an image.
  const sound = `${version >= '0.2.0-dev.3' ? 11 : 10} checked, 0 bad`
  describe(`a store of ${version}`, () => {
    it('on SQLite is copied, brought up to date, continued and verified', async () => {
      const file = await copySqlite(version, `${version}.db`)
      const store = `sqlite:${file}`
      expect(await verified(store)).toBe(sound)
      const diagnostics: Diagnostic[] = []
      const onDiagnostic = (diagnostic: Diagnostic): void => void diagnostics.push(diagnostic)
      const limits = { idempotencyMs: YEARS_MS }
      const holdfast = await openHoldfast({ store, agents, limits, onDiagnostic })
      const { sqlite: from } = await json(`${version}/formats.json`)
      const backup = `${file}.schema-${from}.backup`
      const told = diagnostics.find(({ code }) => code === 'store_migrating')
      expect(told?.facts).toMatchObject({ from, to: 6, backup })
      await goesOn(holdfast, (await json(`${version}/facts.json`)).sqlite)
      await holdfast.close()
      expect(await verified(store)).toBe(sound)
      expect(await verified(`sqlite:${backup}`)).toBe(sound)
      const copy = openSqlite(backup, { readOnly: true })
      expect(copy.prepare('SELECT count(*) AS steps FROM migrations').get()).toEqual({
        steps: from,
      })
      copy.close()
    })

    it('on SQLite is copied anew if an operator has gone back to the copy before', async () => {
      const again = `again-${version}.db`
      const file = await copySqlite(version, again)
      await (await openHoldfast({ store: `sqlite:${file}`, agents })).close()
      const { sqlite: from } = await json(`${version}/formats.json`)
      await copyFile(`${file}.schema-${from}.backup`, file)
      await (await openHoldfast({ store: `sqlite:${file}`, agents })).close()
      const names = (await readdir(folder)).filter((name) => name.startsWith(`${again}.schema`))
      const copies = [`${again}.schema-${from}-2.backup`, `${again}.schema-${from}.backup`]
      expect(names.toSorted()).toEqual(copies)
    })

    it('on PostgreSQL is brought up to date, continued and verified', async () => {
      const store = await loadDump(database, version)
      const diagnostics: Diagnostic[] = []
      const onDiagnostic = (diagnostic: Diagnostic): void => void diagnostics.push(diagnostic)
      const limits = { idempotencyMs: YEARS_MS }
      const holdfast = await openHoldfast({ store, agents, limits, onDiagnostic })
      const told = diagnostics.find(({ code }) => code === 'store_migrating')
      const formats = await json(`${version}/formats.json`)
      expect(told?.facts).toMatchObject({ from: formats.postgres, to: 8 })
      await goesOn(holdfast, (await json(`${version}/facts.json`)).postgres)
      await holdfast.close()
      expect(await verified(store)).toBe(sound)
    })

    // Later versions check the step of the schema with every statement.
    const hasOldNodes = version === '0.1.0'
    it.runIf(hasOldNodes)('on PostgreSQL takes nothing more from a node of before', async () => {
      const url = await loadDump(database, version)
      const schema = schemaOf(url)
      const node = new pg.Client(url)
      await node.connect()
      const texts: Record<string, string> = await json(`${version}/statements.json`)
      const run = async (name: string, values: unknown[]) => {
        const text = (texts[name] ?? '').replaceAll(/\bholdfast(?=\.)/g, schema)
        return (await node.query({ name, text, values })).rows
      }
      const { idle = '' } = (await json(`${version}/facts.json`)).postgres.sessions
      const owner = 'a node of before'
      const [row] = await database.query(`SELECT seq::int, epoch::int FROM ${schema}.sessions
        WHERE id = '${idle}'`)
      // What such a node does all the time, with statements that it has prepared.
      await run('beat', [owner, null, '0.1.0', 60_000])
      expect(await run('claim', [idle, owner])).toMatchObject([{ holder: null }])
      const append = (after: number): unknown[] => {
        const one = [[idle], [row.epoch + 1], [after], [1], [1], [false], [false], [null]]
        return [...one, [1], [after + 1], '{"seq":0}', [], [], '']
      }
      expect(await run('append', append(row.seq))).toHaveLength(1)
      await (await openPostgresStore({ url })).close()
      await expect(run('append', append(row.seq + 1))).rejects.toThrow('does not exist')
      await expect(run('beat', [owner, null, '0.1.0', 60_000])).rejects.toThrow('does not exist')
      await expect(run('claim', [idle, owner])).rejects.toThrow('does not exist')
      const fresh = ['new', null, 'echo', false, '{}', owner, 1, null, '{}', [], []]
      await expect(run('create', fresh)).rejects.toThrow('does not exist')
      await node.end()
      // Its lease lasts as long as it was promised; only then is the session another's.
      const later = await openPostgresStore({ url })
      expect(await later.claim(idle, 'node-b')).toEqual({ type: 'owned', node: owner })
      const { row: stored } = await later.read(idle, 0, 0)
      expect(stored?.seq).toBe(row.seq + 1)
      await later.close()
    })
  })
}

describe('verify', () => {
  const changed = async (name: string, sql: string): Promise<string> => {
    const file = await copySqlite('0.1.0', name)
    const limits = { snapshotEvery: 5 }
    const holdfast = await openHoldfast({ store: `sqlite:${file}`, agents, limits })
    await holdfast.turn({ key: 'idle' }, 'a text to be changed')
    await holdfast.close()
    const copy = openSqlite(file)
    copy.exec(sql)
    copy.close()
    return verified(`sqlite:${file}`)
  }

  it('finds one changed character of an event', async () => {
    const sql = `UPDATE events SET body = replace(body, 'to be changed', 'to be chanced')`
    expect(await changed('event.db', sql)).toBe('10 checked, 1 bad')
  })

  it('finds one changed character of a snapshot', async () => {
    const idle = `(SELECT number FROM sessions WHERE key = 'idle')`
    const sql = `UPDATE snapshots SET body = replace(body, '"turns":4', '"turns":5')
      WHERE session = ${idle}`
    expect(await changed('snapshot.db', sql)).toBe('10 checked, 1 bad')
  })

  it('finds nothing where nothing was changed', async () => {
    expect(await changed('same.db', 'SELECT 1')).toBe('10 checked, 0 bad')
  })
})

describe('every format that was released', () => {
  it('has a fixture', async () => {
    const versions = (await readdir(FIXTURES, { withFileTypes: true }))
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name)
    const formats = await Promise.all(versions.map((name) => json(`${name}/formats.json`)))
    const current = await currentFormats()
    for (const [name, number] of Object.entries(current)) {
      const found = formats.map((format) => format[name] as number)
      // The numbers before 0.1.0 were never released.
      const [oldest = number] = found.toSorted((one, other) => one - other)
      const missing = Array.from({ length: number - oldest }, (_, index) => oldest + index).filter(
        (older) => !found.includes(older),
      )
      expect({ [name]: missing }).toEqual({ [name]: [] })
    }
  })
})

async function currentFormats(): Promise<Record<string, number>> {
  const file = join(folder, 'fresh.db')
  await (await openHoldfast({ store: `sqlite:${file}` })).close()
  const fresh = openSqlite(file, { readOnly: true })
  const [sqlite] = fresh.prepare('SELECT max(number) AS step FROM migrations').all()
  fresh.close()
  const url = database.freshUrl()
  await (await openPostgresStore({ url })).close()
  const [postgres] = await database.query(
    `SELECT max(number)::int AS step FROM ${schemaOf(url)}.migrations`,
  )
  const { SNAPSHOT_FORMAT } = await import('../../src/core/snapshots.ts')
  return { sqlite: Number(sqlite?.['step']), postgres: postgres.step, snapshot: SNAPSHOT_FORMAT }
}
