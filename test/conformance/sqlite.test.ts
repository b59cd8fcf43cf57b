/** What SQLite's store promises beyond the contract: its file, its lock, and what it does when the disk fails. */
import { execFile, execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { openSqlite } from '../../src/stores/sqlite/driver.ts'
import { backupSqlite, openSqliteStore } from 'holdfast/sqlite'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { GUARDED, guarded } from '../support/guarded.ts'
import type { Append, Reservation, Store } from '../../src/core/store.ts'

const PACKAGE = new URL('../..', import.meta.url)

let folder: string
let file: string
let opened: Store[]

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-'))
  file = join(folder, 'holdfast.db')
  opened = []
})

afterEach(async () => {
  await Promise.all(opened.map((store) => store.close()))
  await rm(folder, { recursive: true })
})

async function open(options: { file?: string; pagesMax?: number } = {}): Promise<Store> {
  const store = await openSqliteStore({ file, ...options })
  opened.push(store)
  return store
}

function reservation(id: string, changes: Partial<Reservation> = {}): Reservation {
  const plain = {
    principal: 'default',
    explicit: false,
    key: null,
    agent: 'echo',
    internal: false,
    labels: {},
  }
  return { ...plain, id, node: 'node-a', at: 1, expiresAt: null, body: '{"seq":1}', ...changes }
}

function append(session: string, after: number, text = 'hello'): Append {
  const events = [JSON.stringify({ seq: after + 1, text })]
  const flags = { snapshot: null, closed: false, pending: false, expiresAt: null }
  return { session, epoch: 1, after, events, at: 2, ...flags }
}

describe('one process at a time', () => {
  test('refuses a second open of the same file, by whatever path', async () => {
    await open()
    const alias = join(folder, 'alias.db')
    await symlink(file, alias)
    for (const path of [file, alias]) {
      await expect(openSqliteStore({ file: path })).rejects.toMatchObject({ code: 'store_locked' })
    }
  })

  test('refuses a second process with one sentence that names the file', async () => {
    await open()
    const { stdout } = await promisify(execFile)(process.execPath, [...SCRIPT, OPEN_OR_SAY, file], {
      cwd: PACKAGE,
    })
    expect(stdout.trim()).toBe(`store_locked ${file} is in use by another Holdfast: stop it first`)
  })

  test('opens again after the process that had it was killed, with all it acknowledged', async () => {
    const args = [...SCRIPT, APPEND_FOR_EVER, file]
    const child = guarded(spawn(process.execPath, args, { cwd: PACKAGE, ...GUARDED }))
    let acknowledged = 0
    for await (const chunk of child.stdout) {
      acknowledged = Number(String(chunk).trim().split('\n').at(-1))
      if (acknowledged >= 50) break
    }
    child.kill('SIGKILL')
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
    const store = await open()
    const { row, events } = await store.read('session', 0, 1e6)
    expect(row!.seq).toBeGreaterThanOrEqual(acknowledged)
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1))
  })
})

describe('opening', () => {
  test('keeps all it was told when it is closed and opened again', async () => {
    const first = await open()
    await first.beat('node-a', Number.POSITIVE_INFINITY)
    await first.reserve(reservation('session', { key: 'alice', labels: { team: 'blue' } }))
    await first.append([append('session', 1)])
    const before = await first.read('session', 0, 10)
    await first.close()
    const second = await open()
    expect(await second.read('session', 0, 10)).toEqual(before)
    expect(await second.reserve(reservation('other', { key: 'alice' }))).toMatchObject({
      type: 'found',
      id: 'session',
    })
  })

  test('knows that every node which had the file before is dead', async () => {
    const first = await open()
    await first.beat('node-a', Number.POSITIVE_INFINITY)
    await first.reserve(reservation('session'))
    expect(await first.claim('session', 'node-b')).toMatchObject({ type: 'owned' })
    await first.close()
    const second = await open()
    expect(await second.claim('session', 'node-b')).toMatchObject({ type: 'claimed', epoch: 2 })
  })

  test('makes the folders of its file', async () => {
    const store = await open({ file: join(folder, 'a', 'b', 'holdfast.db') })
    expect(await store.reserve(reservation('session'))).toMatchObject({ type: 'created' })
  })

  test('says so when its folder cannot be used', async () => {
    const notFolder = join(folder, 'file')
    await writeFile(notFolder, '')
    const opening = openSqliteStore({ file: join(notFolder, 'holdfast.db') })
    await expect(opening).rejects.toMatchObject({ code: 'store_unavailable' })
  })

  test('refuses a file of a newer Holdfast, and leaves it alone', async () => {
    await (await open()).close()
    change(`INSERT INTO migrations VALUES (99, 'unknown', 'later')`)
    await expect(openSqliteStore({ file })).rejects.toMatchObject({
      code: 'store_newer',
      message: expect.stringContaining('newer Holdfast') as string,
    })
  })

  test('refuses a file whose schema is not the one that its steps make', async () => {
    await (await open()).close()
    change(`UPDATE migrations SET checksum = 'changed' WHERE number = 1`)
    await expect(openSqliteStore({ file })).rejects.toMatchObject({ code: 'store_unavailable' })
  })

  test('refuses the database of another program', async () => {
    change('CREATE TABLE bookmarks (url TEXT)')
    await expect(openSqliteStore({ file })).rejects.toMatchObject({
      code: 'store_unavailable',
      message: expect.stringContaining('another program') as string,
    })
  })
})

describe('damage', () => {
  test('refuses a file that is not a database, and does not change it', async () => {
    const garbage = Buffer.from('not a database at all '.repeat(1_000))
    await writeFile(file, garbage)
    await expectDamaged()
    expect((await readFile(file)).equals(garbage)).toBe(true)
  })

  test('refuses a file with damage in its middle, and does not change it', async () => {
    const store = await open()
    await store.reserve(reservation('session'))
    for (let after = 1; after < 300; after += 1) {
      await store.append([append('session', after, 'x'.repeat(500))])
    }
    await store.close()
    const bytes = await readFile(file)
    for (let page = 4; page < bytes.length / 4_096; page += 1)
      bytes.fill(0xa5, page * 4_096, page * 4_096 + 64)
    await writeFile(file, bytes)
    await expectDamaged()
    expect((await readFile(file)).equals(bytes)).toBe(true)
  })

  async function expectDamaged(): Promise<void> {
    await expect(openSqliteStore({ file })).rejects.toMatchObject({
      code: 'store_corrupt',
      message: expect.stringMatching(/holdfast\.db.*restore a backup/) as string,
    })
  }
})

describe('a failed sync', () => {
  test.runIf(canTrace())(
    'is the end: nothing is answered until the process starts anew',
    async () => {
      const inject = ['-f', '-qq', '-e', 'trace=fsync,fdatasync', '-o', join(folder, 'trace')]
      const fail = ['-e', 'inject=fsync,fdatasync:error=EIO:when=20']
      const node = [process.execPath, ...SCRIPT, APPEND_UNTIL_REFUSED, file]
      const { stdout } = await promisify(execFile)('strace', [...inject, ...fail, ...node], {
        cwd: PACKAGE,
      })
      const { acknowledged, codes } = JSON.parse(stdout) as {
        acknowledged: number
        codes: string[]
      }
      expect(codes).toEqual(['store_failed', 'store_failed', 'store_failed'])
      const store = await open()
      expect((await store.read('session', 0, 1e6)).row!.seq).toBeGreaterThanOrEqual(acknowledged)
    },
  )
})

describe('a full disk', () => {
  test('refuses writes, stays readable, loses nothing and goes on when a quota is raised', async () => {
    const small = await open({ pagesMax: 60 })
    const written = await fillUp(small)
    expect((await small.read('session', 0, 1e6)).row?.seq).toBe(written)
    await small.close()
    const store = await open()
    expect((await store.read('session', 0, 1e6)).events).toHaveLength(written)
    expect(await store.append([append('session', written)])).toEqual(['appended'])
  })

  test.runIf(canMount())('goes on by itself when there is room again', async () => {
    const disk = await mkdtemp(join(tmpdir(), 'holdfast-disk-'))
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=2m', 'tmpfs', disk])
    try {
      await writeFile(join(disk, 'ballast'), Buffer.alloc(500_000))
      const store = await openSqliteStore({ file: join(disk, 'holdfast.db') })
      const written = await fillUp(store)
      expect((await store.read('session', 0, 1e6)).row?.seq).toBe(written)
      await rm(join(disk, 'ballast'))
      expect(await store.append([append('session', written)])).toEqual(['appended'])
      const { row, events } = await store.read('session', written - 1, 10)
      expect([row?.seq, events.length]).toEqual([written + 1, 2])
      await store.close()
    } finally {
      execFileSync('umount', [disk])
      await rm(disk, { recursive: true })
    }
  })

  /** Appends until the disk is full; the seq of the last acknowledged event. */
  async function fillUp(store: Store): Promise<number> {
    await store.reserve(reservation('session'))
    for (let seq = 1; ; seq += 1) {
      try {
        await store.append([append('session', seq, 'x'.repeat(4_000))])
      } catch (thrown) {
        expect(thrown).toMatchObject({ code: 'store_full' })
        return seq
      }
    }
  }
})

describe('a group', () => {
  test('lets an operation that fails by its own fault harm nobody else', async () => {
    const store = await open()
    await store.reserve(reservation('session'))
    const outcomes = await Promise.allSettled([
      store.append([append('session', 1)]),
      store.reserve(reservation('session', { key: 'twin' })),
      store.reserve(reservation('unclonable', { labels: { run: (() => 0) as unknown as string } })),
      store.reserve(reservation('unbindable', { at: 'soon' as unknown as number, agent: null! })),
      store.append([append('session', 2)]),
      store.reserve(reservation('other', { key: 'twin' })),
      store.read('session', 0, 10),
    ])
    expect(outcomes.map(({ status }) => status)).toEqual([
      'fulfilled',
      'rejected',
      'rejected',
      'rejected',
      'fulfilled',
      'fulfilled',
      'fulfilled',
    ])
    expect((await store.read('session', 0, 10)).row?.seq).toBe(3)
    expect((await store.list({ limit: 10 })).sessions.map(({ id }) => id)).toEqual([
      'other',
      'session',
    ])
  })
})

describe('erasing', () => {
  test('leaves nothing of the log, its snapshot and its labels but one empty row', async () => {
    const store = await open()
    await store.reserve(reservation('session', { labels: { team: 'blue' } }))
    await store.append([{ ...append('session', 1), snapshot: '{}', closed: true }])
    expect(await store.erase('session')).toBe(true)
    await store.close()
    for (const table of ['snapshots', 'labels']) expect(rowsIn(table)).toBe(0)
    expect([rowsIn('events'), rowsIn(`events WHERE body = ''`)]).toEqual([1, 1])
  })
})

describe('a backup', () => {
  test('is one moment of a store that is being written to', async () => {
    const store = await open()
    const ids = Array.from({ length: 20 }, (_, index) => `session-${index}`)
    await Promise.all(ids.map((id) => store.reserve(reservation(id))))
    const writing = { on: true }
    const writer = writeWhile(store, ids, writing)
    const copy = join(folder, 'copy.db')
    await backupSqlite({ file, to: copy })
    writing.on = false
    const last = await writer
    const restored = await open({ file: copy })
    const reads = await Promise.all(ids.map((id) => restored.read(id, 0, 1e6)))
    const seqs = reads.map(({ row, events }) => {
      expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1))
      expect(row?.seq).toBe(events.length)
      return events.length
    })
    // Every session is in each group, so that one moment has them all at one position.
    expect(new Set(seqs).size).toBe(1)
    expect(seqs[0]).toBeLessThanOrEqual(last)
  })

  test('never overwrites a file', async () => {
    await (await open()).close()
    const to = join(folder, 'copy.db')
    await writeFile(to, 'precious')
    await expect(backupSqlite({ file, to })).rejects.toMatchObject({
      message: expect.stringContaining('never overwrites') as string,
    })
    expect(await readFile(to, 'utf8')).toBe('precious')
  })

  test('refuses to copy what is not there, and makes no file', async () => {
    const missing = join(folder, 'missing.db')
    const backup = backupSqlite({ file: missing, to: join(folder, 'copy.db') })
    await expect(backup).rejects.toMatchObject({ code: 'store_unavailable' })
    await expect(readFile(missing)).rejects.toMatchObject({ code: 'ENOENT' })
  })

  async function writeWhile(
    store: Store,
    ids: readonly string[],
    writing: { on: boolean },
  ): Promise<number> {
    let seq = 1
    for (; writing.on || seq < 50; seq += 1) {
      await store.append(ids.map((id) => append(id, seq, 'x'.repeat(500))))
    }
    return seq
  }
})

const SCRIPT = ['--input-type=module', '--eval'] as const

const OPEN_OR_SAY = `
  import { openSqliteStore } from 'holdfast/sqlite'
  await openSqliteStore({ file: process.argv[1] }).catch((error) => console.log(error.code, error.message))
`

const PREPARE = `
  import { openSqliteStore } from 'holdfast/sqlite'
  const store = await openSqliteStore({ file: process.argv[1] })
  const id = 'session'
  const base = { agent: 'echo', internal: false, labels: {}, node: 'node-a', at: 1, expiresAt: null }
  await store.reserve({ id, principal: 'default', explicit: false, key: null, body: '{}', ...base })
  const flags = { snapshot: null, at: 2, closed: false, pending: false, expiresAt: null }
  const extend = (after) => store.append([{ session: id, epoch: 1, after, events: ['{}'], ...flags }])
`

const APPEND_FOR_EVER = `${PREPARE}
  for (let after = 1; ; after += 1) {
    await extend(after)
    console.log(after + 1)
  }
`

const APPEND_UNTIL_REFUSED = `${PREPARE}
  let acknowledged = 1
  const codeOf = (promise) => promise.then(() => null, (error) => error.code)
  let code = null
  while (code === null) {
    code = await codeOf(extend(acknowledged))
    if (code === null) acknowledged += 1
  }
  const codes = [code, await codeOf(extend(acknowledged)), await codeOf(store.read(id, 0, 1))]
  console.log(JSON.stringify({ acknowledged, codes }))
  await store.close()
`

/** Changes the file behind the store's back. */
function change(sql: string): void {
  const database = openSqlite(file)
  database.exec(sql)
  database.close()
}

function rowsIn(table: string): number {
  const database = openSqlite(file, { readOnly: true })
  const { count } = database.prepare(`SELECT count(*) AS count FROM ${table}`).get() as {
    count: number
  }
  database.close()
  return count
}

function canTrace(): boolean {
  return (
    spawnSync('strace', ['-qq', '-e', 'trace=none', process.execPath, '--version']).status === 0
  )
}

function canMount(): boolean {
  return process.platform === 'linux' && process.getuid?.() === 0
}
