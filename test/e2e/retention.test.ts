/** What is not kept goes into the archive, then out of the store, and comes back from there. */
import { createHash } from 'node:crypto'
import { execFile } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import { type Agent, type Diagnostic, type RetentionOptions, type Store } from 'holdfast'
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest'
import { verifyFile } from '../../src/cli/file-checks.ts'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'
import { CLI } from '../support/repository.ts'
import { lines, serve, type TestServer } from '../support/server.ts'

let folder: string
let server: TestServer
let database: TestDatabase | null = null

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-retention-'))
})
afterEach(async () => {
  await server.close()
  rmSync(folder, { recursive: true })
})
afterAll(() => database?.close())

/** The archived files; a part that is being written is none. */
function archived(): readonly string[] {
  const files = readdirSync(folder, { recursive: true }) as string[]
  return files.filter((name) => /\.jsonl(\.gz)?$/.test(name)).map((name) => join(folder, name))
}

async function start(
  store: string | Store,
  retention: RetentionOptions = {},
  limits: object = {},
): Promise<TestServer> {
  server = await serve({
    store,
    agents: { looker },
    retention: { archive: folder, ...retention },
    limits: { sweepMs: 20, ...limits },
  })
  return server
}

const PICTURE = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk',
  'base64',
)
/** With signs that end lines elsewhere. */
const TRICKY = 'one\u2028two\u0000three\n"four"'
const looker: Agent = Object.assign((async ({ text }) => text) satisfies Agent, {
  capabilities: { images: true },
})

/** Closed, with a picture. */
async function closedSession(id: string, key: string | null = null): Promise<void> {
  const named = key === null ? { id } : { id, key }
  const session = await server.holdfast.resolve({ ...named, labels: { team: 'a' } })
  const image = { type: 'image', mediaType: 'image/png', data: PICTURE } as const
  await session.turn({ text: TRICKY, parts: [image] })
  await session.close()
}

async function importFile(file: string) {
  const headers = { 'content-type': 'application/jsonl' }
  const init = { method: 'POST', headers, body: readFileSync(file) }
  const response = await fetch(`${server.url}/v1/archives`, init)
  return { status: response.status, body: (await response.json()) as any }
}

async function state(id: string): Promise<string> {
  const { status, body } = await server.get(`/v1/sessions/${id}`)
  return status === 200 ? body.state : body.code
}

async function cli(...args: readonly string[]): Promise<string> {
  const url = args.includes('--data') ? [] : ['--url', server.url]
  const run = promisify(execFile)(process.execPath, [CLI, ...args, ...url])
  const { stdout, stderr } = await run.catch((error: any) => error)
  return `${stdout}${stderr}`
}

const readLog = (page: string): string =>
  JSON.parse(page)
    .events.map((event: object) => `${JSON.stringify(event)}\n`)
    .join('')

const logOf = async (id: string): Promise<string> =>
  (await server.get(`/v1/sessions/${id}/events`)).text

describe.each(['sqlite', 'postgres'])('on %s', (kind) => {
  async function newStore(): Promise<string | Store> {
    if (kind === 'sqlite') return `sqlite:${join(folder, 'data', 'holdfast.db')}`
    database ??= await openTestDatabase()
    return database.freshUrl()
  }

  it('a session is archived, then erased, and comes back by an import as it was', async () => {
    await start(await newStore(), { rules: [{ name: 'none', count: 0 }] }, { sweepMs: 200 })
    await closedSession('one', 'its key')
    const before = await logOf('one')
    await expect.poll(() => state('one')).toBe('session_erased')
    const [file = '', ...others] = archived()
    expect(others).toEqual([])
    const parts = lines(readFileSync(file, 'utf8'))
    expect(parts.map(({ type }) => type)).toEqual([
      ...['archive', 'session.created', 'turn.started', 'message.added', 'turn.done'],
      ...['session.closed', 'blob', 'end'],
    ])
    expect(await verifyFile(file)).toEqual({ events: 5, turns: 1, problems: [], pending: [] })
    expect(await importFile(file)).toMatchObject({ status: 201, body: { id: 'one', events: 5 } })
    expect(await logOf('one')).toBe(before)
    const [, digest] = /"digest":"(sha256:\w+)"/.exec(before) ?? []
    const blob = await fetch(`${server.url}/v1/sessions/one/blobs/${digest}`)
    expect(Buffer.from(await blob.arrayBuffer())).toEqual(PICTURE)
    // Nothing of it is overwritten, nor open again; its key is free.
    expect(await importFile(file)).toMatchObject({ status: 409, body: { code: 'session_exists' } })
    expect((await server.post('/v1/sessions/one/turns', { input: 'x' })).body.code).toBe(
      'session_closed',
    )
    expect((await server.holdfast.resolve({ key: 'its key' })).isNew).toBe(true)
    // It can be taken out again, the same to the byte.
    const exported = await server.get('/v1/sessions/one/archive')
    expect(exported.text).toBe(readFileSync(file, 'utf8'))
  })
})

const sqlite = (): string => `sqlite:${join(folder, 'data', 'holdfast.db')}`

it('a session that was archived before a crash is erased after it, into no second file', async () => {
  await start(sqlite(), { compress: true }, { retainMs: 0 })
  const { store } = server.holdfast.authority
  // The erasure is lost, as it is if the process is killed after the file was written.
  Object.assign(store, { erase: () => Promise.reject(new Error('killed')) })
  await closedSession('one')
  await expect.poll(archived).toHaveLength(1)
  expect(await state('one')).toBe('closed')
  const [before] = archived()
  // What a crash leaves while it writes is no archive, and goes when it is old.
  const part = join(folder, '2020-01-01', 'one.part')
  mkdirSync(dirname(part))
  writeFileSync(part, 'half')
  utimesSync(part, 0, 0)
  await server.close()
  await start(sqlite(), { compress: false }, { retainMs: 0 })
  await expect.poll(() => state('one')).toBe('session_erased')
  expect(archived()).toEqual([before])
  expect(existsSync(part)).toBe(false)
  expect(await verifyFile(before ?? '')).toMatchObject({ events: 5, problems: [] })
})

it('nothing is erased that could not be archived, and the operator is told', async () => {
  const diagnostics: Diagnostic[] = []
  const onDiagnostic = (diagnostic: Diagnostic): void => void diagnostics.push(diagnostic)
  server = await serve({
    store: sqlite(),
    agents: { looker },
    retention: { archive: join(folder, 'archive') },
    limits: { sweepMs: 20, retainMs: 0 },
    onDiagnostic,
  })
  // No folder can be made where a file is.
  rmSync(join(folder, 'archive'), { recursive: true })
  writeFileSync(join(folder, 'archive'), '')
  await closedSession('one')
  const failures = () => diagnostics.filter(({ code }) => code === 'archive_failed')
  await expect.poll(() => failures().length).toBeGreaterThan(1)
  expect(failures()[0]).toMatchObject({ level: 'error', facts: { session: 'one' } })
  expect(await state('one')).toBe('closed')
  rmSync(join(folder, 'archive'))
  await expect.poll(() => state('one')).toBe('session_erased')
})

it('an archive that was changed, cut or is of another format is refused, and says why', async () => {
  await start(sqlite(), {}, { retainMs: 0 })
  await closedSession('one')
  await expect.poll(() => state('one')).toBe('session_erased')
  const text = readFileSync(archived()[0] ?? '', 'utf8')
  const all = text.trimEnd().split('\n')
  const bad: Readonly<Record<string, readonly [string | Uint8Array, string]>> = {
    changed: [text.replace('"text":"one', '"text":"two'), 'checksum'],
    cut: [all.slice(0, -1).join('\n') + '\n', 'it was cut'],
    shorter: [[...all.slice(0, 2), ...all.slice(3)].join('\n') + '\n', 'follows event'],
    other: [text.replace('"format":1', '"format":2'), 'knows format 1'],
    elsewhere: [text.replace('"session":"one"', '"session":"../one"'), 'must have 1 to 128'],
    bytes: [text.replace(/"data":"iVBO/, '"data":"iVBA'), 'were changed'],
    longer: [`${text}{"type":"x"}\n`, 'something follows'],
    none: ['{"type":"x"}\n', 'is none'],
    empty: ['', 'it is empty'],
    torn: [gzipSync(text).subarray(0, 200), 'decompressed'],
    binary: [Uint8Array.from([7, 10, 0]), 'no JSON object'],
  }
  for (const [name, [content, problem]] of Object.entries(bad)) {
    const file = join(folder, `${name}.txt`)
    writeFileSync(file, content)
    const { status, body } = await importFile(file)
    expect([name, status, body.detail]).toEqual([name, 422, expect.stringContaining(problem)])
  }
  expect(await state('one')).toBe('session_erased')
})

it('an archive whose first line does not fit its log, or the store, is refused', async () => {
  await start(sqlite(), {}, { retainMs: 0 })
  await closedSession('one')
  await expect.poll(() => state('one')).toBe('session_erased')
  const lines = readFileSync(archived()[0] ?? '', 'utf8')
    .trimEnd()
    .split('\n')
  const header = JSON.parse(lines[0] ?? '')
  const share = { with: 'bob', scopes: ['watch'] }
  const changes: readonly (readonly [object, number])[] = [
    [{ session: 'two' }, 422],
    [{ principal: 'mallory' }, 422],
    [{ internal: true }, 422],
    [{ labels: ['a'] }, 422],
    [{ shares: [{ with: 'bob' }] }, 422],
    [{ shares: [share, share] }, 422],
    [{ shares: [share] }, 201],
  ]
  for (const [change, expected] of changes) {
    const first = JSON.stringify({ ...header, ...change })
    const content = `${[first, ...lines.slice(1, -1)].join('\n')}\n`
    const sha256 = createHash('sha256').update(content).digest('hex')
    const end = JSON.stringify({ ...JSON.parse(lines.at(-1) ?? ''), sha256 })
    const file = join(folder, 'made.txt')
    writeFileSync(file, `${content}${end}\n`)
    const { status } = await importFile(file)
    expect([change, status]).toEqual([change, expected])
  }
})

it('a closed session is exported and imported into another store, without a server there', async () => {
  await start(sqlite(), {}, { retainMs: 1e9 })
  await closedSession('one')
  const [archive, log] = [join(folder, 'a.txt'), join(folder, 'b.txt')]
  writeFileSync(archive, gzipSync(await cli('export', 'one', '--archive')))
  writeFileSync(log, readLog(await logOf('one')))
  await server.holdfast.resolve({ id: 'open' })
  expect((await server.get('/v1/sessions/open/archive')).body.code).toBe('session_open')
  const data = join(folder, 'other')
  // An exported log is an archive too, unless it names images and files.
  const told = await cli('import', archive, archive, log, '--data', data)
  expect(told).toContain('session one, 5 events')
  expect(told).toContain('there is a session one: nothing was changed')
  expect(told).toContain('are missing')
  const early = join(folder, 'c.txt')
  writeFileSync(early, readLog(await logOf('open')))
  expect(await cli('import', early, '--data', data)).toContain('its session is open at its end')
  expect(await cli('verify', archive, log)).toContain('2 checked, 0 bad')
  expect(await cli('verify', '--data', data)).toContain('1 checked, 0 bad')
})

it('says what would go, by the rules of the server and by others, and erases nothing', async () => {
  await start(sqlite(), { rules: [{ name: 'team', labels: ['team:a'], ageMs: 1e9 }] })
  await closedSession('one')
  const now = await server.post('/v1/retention/preview', {})
  const rules = [expect.objectContaining({ rule: 'team', kept: 1, gone: 0 }), expect.anything()]
  expect(now.body).toEqual({ rules, sessions: [] })
  const config = join(folder, 'config.json')
  writeFileSync(config, JSON.stringify({ retention: { rules: [{ name: 'tidy', count: 0 }] } }))
  expect(await cli('retention', '--config', config)).toMatch(/^one .* tidy +count$/m)
  const bad = { rules: [{ name: 'tidy', days: 3 }] }
  const refused = await server.post('/v1/retention/preview', bad)
  expect([refused.status, refused.body.code]).toEqual([422, 'invalid_field'])
  expect(await state('one')).toBe('closed')
})

it('of several nodes one archives, and each session once', async () => {
  database ??= await openTestDatabase()
  const store = database.freshUrl()
  const options = { store, isNode: true, agents: { looker } } as const
  server = await serve({ ...options, limits: { sweepMs: 100, retainMs: 1e9 } })
  const ids = Array.from({ length: 20 }, (_, n) => `s${n}`)
  for (const id of ids) await closedSession(id)
  const folders = ['a', 'b'].map((name) => join(folder, name))
  const nodes = await Promise.all(
    folders.map((archive) =>
      serve({ ...options, retention: { archive }, limits: { sweepMs: 20, retainMs: 0 } }),
    ),
  )
  await server.close()
  await expect.poll(async () => (await nodes[0]!.get('/v1/sessions/s0')).status).toBe(410)
  const states = () =>
    Promise.all(ids.map(async (id) => (await nodes[1]!.get(`/v1/sessions/${id}`)).status))
  await expect.poll(async () => new Set(await states())).toEqual(new Set([410]))
  const counts = folders.map((name) => archived().filter((file) => file.startsWith(name)).length)
  expect(counts.toSorted((a, b) => a - b)).toEqual([0, 20])
  await Promise.all(nodes.map((node) => node.close()))
})
