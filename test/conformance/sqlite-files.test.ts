/** The files of SQLite's store, deleted, moved, replaced and locked by others, while it runs and between. */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, statSync } from 'node:fs'
import {
  chmod,
  cp,
  link,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  symlink,
  unlink,
  writeFile,
} from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openSqlite } from '../../src/stores/sqlite/driver.ts'
import { openHoldfast } from 'holdfast'
import { startServer } from 'holdfast/server'
import { backupSqlite, openSqliteStore } from 'holdfast/sqlite'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { Store } from '../../src/core/store.ts'
import { openFile } from '../../src/stores/sqlite/database.ts'
import { checkMarker } from '../../src/stores/sqlite/marker.ts'
import { GUARDED, guarded } from '../support/guarded.ts'

const PACKAGE = new URL('../..', import.meta.url)
type Mark = { readonly events: number; readonly checksum?: number | null }

const isRoot = process.getuid?.() === 0

let folder: string
let file: string
let opened: Store[]

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-files-'))
  file = join(folder, 'holdfast.db')
  opened = []
})
afterEach(async () => {
  await Promise.all(opened.map((store) => store.close().catch(() => undefined)))
  await rm(folder, { recursive: true })
})

async function open(path = file): Promise<Store> {
  const store = await openSqliteStore({ file: path })
  opened.push(store)
  return store
}

/** A session with one event, by itself. */
function write(store: Store, id: string, body = '{"seq":1}'): Promise<unknown> {
  const plain = {
    principal: 'default',
    explicit: false,
    key: null,
    agent: 'echo',
    internal: false,
    labels: {},
  }
  return store.reserve({ ...plain, id, node: 'n', at: 1, expiresAt: null, body })
}

async function seqOf(store: Store, id: string): Promise<number> {
  return (await store.read(id, 0, 1)).row?.seq ?? 0
}

/** Another process writes these sessions and is killed: the file was not closed. */
async function writeAndDie(...ids: readonly string[]): Promise<void> {
  const script = `
    import { openSqliteStore } from 'holdfast/sqlite'
    const [, file, ...ids] = process.argv
    const store = await openSqliteStore({ file })
    const plain = { principal: 'default', explicit: false, key: null, agent: 'echo', internal: false, labels: {} }
    const rest = { node: 'n', at: 1, expiresAt: null, body: '{"seq":1}' }
    for (const id of ids) await store.reserve({ ...plain, ...rest, id })
    console.log('written')
    setInterval(() => undefined, 1e6)`
  const args = ['--input-type=module', '-e', script, file, ...ids]
  const child = guarded(
    spawn(process.execPath, args, {
      cwd: PACKAGE,
      stdio: ['ignore', 'pipe', 'inherit'],
      ...GUARDED,
    }),
  )
  await once(child.stdout, 'data')
  await killed(child)
}

async function killed(child: ChildProcess): Promise<void> {
  const exited = once(child, 'exit')
  child.kill('SIGKILL')
  await exited
}

describe('under a running store', () => {
  const away = (path: string) => rename(path, `${path}.away`)
  const replaced = async (path: string): Promise<void> => {
    await writeFile(`${path}.new`, '')
    await rename(`${path}.new`, path)
  }

  test.each([
    ['deleted', '', unlink],
    ['moved away', '', away],
    ['replaced', '', replaced],
    ['with its -wal deleted', '-wal', unlink],
    ['with its -wal replaced', '-wal', replaced],
    ['with its .lock deleted', '.lock', unlink],
    ['with its .lock replaced', '.lock', replaced],
    ['with its .open deleted', '.open', unlink],
    ['with its .open replaced', '.open', replaced],
  ])('a file that is %s takes no more writes, and answers nothing', async (_, suffix, change) => {
    const store = await open()
    await write(store, 'before')
    await change(`${file}${suffix}`)
    const refusal = { code: 'store_failed', message: expect.not.stringContaining(folder) as string }
    await expect(write(store, 'after')).rejects.toMatchObject(refusal)
    await expect(store.read('before', 0, 1)).rejects.toMatchObject(refusal)
    await expect(store.ready?.()).rejects.toMatchObject(refusal)
  })

  test('an error after a commit fails the store, and runs no write again', async () => {
    const store = await open()
    await unlink(`${file}.lock`)
    await symlink('holdfast.db.lock', `${file}.lock`)
    const answers = await Promise.allSettled([write(store, 'a'), write(store, 'b')])
    const message = expect.stringMatching(/^the disk failed under the store \(ELOOP\)/) as string
    const reason = expect.objectContaining({ code: 'store_failed', message }) as Error
    const refusal = { status: 'rejected', reason }
    expect(answers).toEqual([refusal, refusal])
    await expect(store.ready?.()).rejects.toMatchObject({ code: 'store_failed' })
  })

  test('is noticed by a store that is only asked whether it is ready', async () => {
    const store = await open()
    await unlink(file)
    for (let isReady = true; isReady;) {
      isReady = await store.ready!().then(
        () => true,
        () => false,
      )
    }
    await expect(write(store, 'after')).rejects.toMatchObject({ code: 'store_failed' })
  })

  test('a deleted -wal loses nothing: it is copied into the file at the end', async () => {
    const store = await open()
    await write(store, 'before')
    await unlink(`${file}-wal`)
    await expect(write(store, 'after')).rejects.toMatchObject({ code: 'store_failed' })
    await store.close()
    expect(await seqOf(await open(), 'before')).toBe(1)
  })

  test('a file that is put in its place is not touched when the store closes', async () => {
    const store = await open()
    await write(store, 'before')
    for (const suffix of ['', '-wal']) {
      await writeFile(`${file}.new`, `other${suffix}`)
      await rename(`${file}.new`, `${file}${suffix}`)
    }
    await expect(write(store, 'after')).rejects.toMatchObject({ code: 'store_failed' })
    await store.close().catch(() => undefined)
    expect([statSync(file).size, statSync(`${file}-wal`).size]).toEqual([5, 9])
  })

  test('is not opened a second time by who deleted its files and its lock', async () => {
    const store = await open()
    await write(store, 'before')
    for (const suffix of ['', '-wal', '-shm', '.lock']) await unlink(`${file}${suffix}`)
    await expect(openSqliteStore({ file })).rejects.toMatchObject({ code: 'store_corrupt' })
    expect(existsSync(file)).toBe(false)
  })
})

describe('after a kill', () => {
  test('a whole file is opened, and closing it leaves no marker', async () => {
    await writeAndDie('a', 'b')
    expect(existsSync(`${file}.open`)).toBe(true)
    const store = await open()
    expect(await seqOf(store, 'b')).toBe(1)
    await store.close()
    const wal = statSync(`${file}-wal`, { throwIfNoEntry: false })
    expect([existsSync(`${file}.open`), wal?.size ?? 0]).toEqual([false, 0])
  })

  test.each([
    ['its -wal deleted', () => unlink(`${file}-wal`)],
    ['its -wal emptied', () => writeFile(`${file}-wal`, '')],
    ['itself deleted', () => unlink(file)],
    ['an empty file in its place', () => writeFile(file, '')],
  ])('a file with %s is refused in one sentence, until told otherwise', async (_, change) => {
    await writeAndDie('a')
    await change()
    const message = expect.stringMatching(/^[^\n]*holdfast\.db[^\n]*remove [^\n]*\.open[^\n]*$/)
    const refusal = { code: 'store_corrupt', message }
    for (const _again of [1, 2]) {
      await expect(openSqliteStore({ file })).rejects.toMatchObject(refusal)
    }
    if (existsSync(file)) {
      const copying = backupSqlite({ file, to: join(folder, 'copy.db') })
      await expect(copying).rejects.toMatchObject(refusal)
    }
    await unlink(`${file}.open`)
    const store = await open()
    await write(store, 'b')
    expect([await seqOf(store, 'a'), await seqOf(store, 'b')]).toEqual([0, 1])
  })

  test('a -wal that is put back is whole again', async () => {
    await writeAndDie('a')
    await rename(`${file}-wal`, `${file}-away`)
    await expect(openSqliteStore({ file })).rejects.toMatchObject({ code: 'store_corrupt' })
    await rename(`${file}-away`, `${file}-wal`)
    expect(await seqOf(await open(), 'a')).toBe(1)
  })

  test('a backup in its place is refused beside the old -wal, and never mixed with it', async () => {
    await writeAndDie('a')
    const copy = join(folder, 'copy.db')
    await backupSqlite({ file, to: copy })
    await writeAndDie('b')
    await rename(copy, file)
    await expect(openSqliteStore({ file })).rejects.toMatchObject({
      code: 'store_corrupt',
      message: expect.stringContaining('-wal') as string,
    })
    for (const suffix of ['-wal', '-shm', '.open']) await rm(`${file}${suffix}`, { force: true })
    expect(await seqOf(await open(), 'a')).toBe(1)
  })

  test('another store in its place is refused, though it has as many events', async () => {
    await writeAndDie('a')
    const other = join(folder, 'other.db')
    const store = await open(other)
    await write(store, 'b', '{"seq":1,"of":"b"}')
    await write(store, 'c')
    await store.close()
    for (const suffix of ['-wal', '-shm']) await rm(`${file}${suffix}`, { force: true })
    await rename(other, file)
    await expect(openSqliteStore({ file })).rejects.toMatchObject({
      code: 'store_corrupt',
      message: expect.stringContaining('has another event') as string,
    })
    // As an earlier version wrote it.
    const { checksum, ...mark } = JSON.parse(await readFile(`${file}.open`, 'utf8')) as Mark
    await writeFile(`${file}.open`, JSON.stringify(mark))
    expect(checksum).toEqual(expect.any(Number))
    expect(await seqOf(await open(), 'b')).toBe(1)
  })

  test('all files copied elsewhere are as good as the first', async () => {
    await writeAndDie('a')
    const elsewhere = join(folder, 'elsewhere')
    for (const suffix of ['', '-wal', '.open', '.lock']) {
      await cp(`${file}${suffix}`, join(elsewhere, `holdfast.db${suffix}`))
    }
    expect(await seqOf(await open(join(elsewhere, 'holdfast.db')), 'a')).toBe(1)
  })

  test('an older backup is taken without a word where the store was closed', async () => {
    const store = await open()
    await write(store, 'a')
    const copy = join(folder, 'copy.db')
    await backupSqlite({ file, to: copy })
    await write(store, 'b')
    await store.close()
    await rename(copy, file)
    const restored = await open()
    expect([await seqOf(restored, 'a'), await seqOf(restored, 'b')]).toEqual([1, 0])
  })

  test('erased events are not missed', async () => {
    const store = await open()
    await write(store, 'a')
    await write(store, 'b')
    const end = { events: ['{"seq":2}'], at: 2, closed: true, pending: false, expiresAt: null }
    await store.append([{ session: 'b', epoch: 1, after: 1, snapshot: null, ...end }])
    await store.erase('b')
    // As a kill would leave it.
    const left = join(folder, 'left')
    for (const suffix of ['', '-wal', '.open']) {
      await cp(`${file}${suffix}`, join(left, `holdfast.db${suffix}`))
    }
    expect(await seqOf(await open(join(left, 'holdfast.db')), 'a')).toBe(1)
  })
})

describe('a migration', () => {
  test('takes over every request key of a session, in their order', async () => {
    const store = await open()
    await write(store, 'a')
    const seqs = Array.from({ length: 2_000 }, (_, index) => index + 2)
    const events = seqs.map((seq) => {
      const keys = [{ key: `k${seq}`, digest: 'd' }]
      return JSON.stringify({ seq, type: 'turn.queued', turn: `t${seq}`, at: seq, keys })
    })
    const rest = { snapshot: null, at: 2, closed: false, pending: false, expiresAt: null }
    await store.append([{ session: 'a', epoch: 1, after: 1, events, ...rest }])
    await store.close()
    const database = openSqlite(file)
    database.exec(`DELETE FROM migrations WHERE number > 1;
      DROP TABLE request_keys; DROP TABLE shares; DROP TABLE audit; DROP TABLE asks; DROP TABLE blobs;
      DROP TABLE loose_blobs; DROP TABLE webhooks; DROP TABLE spending;
      DROP INDEX sessions_by_open_key; DROP INDEX sessions_by_principal;
      DROP INDEX sessions_pending; DROP INDEX sessions_failed; DROP INDEX sessions_failed_of;
      DROP INDEX sessions_listed;
      DROP INDEX sessions_active; DROP INDEX sessions_active_of; DROP INDEX sessions_of_agent;
      DROP INDEX sessions_by_folded; DROP INDEX sessions_by_key;
      ALTER TABLE sessions DROP COLUMN folded; ALTER TABLE sessions DROP COLUMN active_at;
      ALTER TABLE sessions DROP COLUMN attached; ALTER TABLE sessions DROP COLUMN bytes;
      CREATE INDEX sessions_by_key ON sessions (key, number) WHERE key IS NOT NULL;
      CREATE INDEX sessions_open ON sessions (number) WHERE state = 'open' AND internal = 0;
      CREATE INDEX sessions_pending ON sessions (number) WHERE pending = 1;
      CREATE UNIQUE INDEX sessions_by_open_key ON sessions (key)
        WHERE state = 'open' AND key IS NOT NULL;
      ALTER TABLE events DROP COLUMN checksum; ALTER TABLE sessions DROP COLUMN status;
      ALTER TABLE sessions DROP COLUMN queued; ALTER TABLE sessions DROP COLUMN principal;
      ALTER TABLE sessions DROP COLUMN shares`)
    database.close()
    const migrated = await open()
    const found = await migrated.findKeys('a', { since: 0, limit: 5_000 })
    const bytes = ['{"seq":1}', ...events].reduce((sum, text) => sum + text.length, 0)
    expect(await migrated.usage('default', 'storedBytes', 0)).toBe(bytes)
    expect(found.map(({ turn }) => turn)).toEqual(seqs.toReversed().map((seq) => `t${seq}`))
  })

  test('that fails leaves no copy behind, and the file as it was', async () => {
    await (await open()).close()
    const database = openSqlite(file)
    // The second step meets its own column.
    database.exec('DELETE FROM migrations WHERE number > 1')
    for (const _again of [1, 2]) {
      await expect(openSqliteStore({ file })).rejects.toMatchObject({ code: 'internal' })
    }
    const left = (await readdir(folder)).filter((name) => name.includes('.backup'))
    const { steps } = database.prepare('SELECT count(*) AS steps FROM migrations').get()
    database.close()
    expect([left, steps]).toEqual([[], 1])
  })
})

describe('a full disk', () => {
  test('makes the store unready until there is room, and clients are told no path', async () => {
    const store = await openSqliteStore({ file, pagesMax: 60 })
    const holdfast = await openHoldfast({ store })
    const server = await startServer({ holdfast })
    const answerOf = async (path: string, body?: object): Promise<[number, string]> => {
      const post = { method: 'POST', headers: { 'content-type': 'application/json' } }
      const init = body === undefined ? {} : { ...post, body: JSON.stringify(body) }
      const answer = await fetch(`${server.url}${path}`, init)
      return [answer.status, await answer.text()]
    }
    expect((await answerOf('/ready'))[0]).toBe(200)
    // Short, so that the last one leaves no room for anything.
    const turn = { input: 'x'.repeat(100) }
    let last = await answerOf('/v1/keys/k/turns', turn)
    while (last[0] === 200) last = await answerOf('/v1/keys/k/turns', turn)
    const ready = await answerOf('/ready')
    expect([last[0], ready[0]]).toEqual([507, 507])
    for (const [, text] of [last, ready]) {
      expect(text).toContain('store_full')
      expect(text).not.toContain(folder)
      expect(text).not.toContain('holdfast.db')
    }
    await server.close({ closeHoldfast: true })
  })

  test.runIf(isRoot && process.platform === 'linux')(
    'is noticed before anything is written to it, and so is its end',
    async () => {
      const disk = join(folder, 'disk')
      await mkdir(disk)
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=8m', 'tmpfs', disk])
      try {
        const store = await openSqliteStore({ file: join(disk, 'holdfast.db') })
        await store.ready?.()
        await writeFile(join(disk, 'ballast'), Buffer.alloc(8_000_000)).catch(() => undefined)
        await expect(store.ready?.()).rejects.toMatchObject({ code: 'store_full' })
        await rm(join(disk, 'ballast'))
        await store.ready?.()
        await write(store, 'a')
        await store.close()
      } finally {
        execFileSync('umount', [disk])
      }
    },
  )
})

describe('a file with several names', () => {
  test('is refused: by another name it has another lock', async () => {
    const store = await open()
    await link(file, join(folder, 'twin.db'))
    await expect(openSqliteStore({ file: join(folder, 'twin.db') })).rejects.toMatchObject({
      code: 'store_unavailable',
      message: expect.stringContaining('hard links') as string,
    })
    await unlink(join(folder, 'twin.db'))
    await write(store, 'a')
  })

  test('may have a symbolic link, and that link may be led elsewhere', async () => {
    const alias = join(folder, 'alias.db')
    await (await open()).close()
    await symlink(file, alias)
    const store = await open(alias)
    await unlink(alias)
    await write(store, 'a')
    expect(await seqOf(store, 'a')).toBe(1)
  })
})

describe('the lock file', () => {
  const modeOf = (path: string): number => statSync(path).mode & 0o777

  test('is its owner’s alone, and so is the marker', async () => {
    const before = process.umask(0)
    try {
      await open()
    } finally {
      process.umask(before)
    }
    const modes = ['', '-wal', '.lock', '.open'].map((suffix) => modeOf(`${file}${suffix}`))
    expect(modes).toEqual([0o600, 0o600, 0o600, 0o600])
  })

  test('of an earlier version is made so', async () => {
    await writeFile(`${file}.lock`, '', { mode: 0o644 })
    await chmod(`${file}.lock`, 0o644)
    await open()
    expect(modeOf(`${file}.lock`)).toBe(0o600)
  })

  test('that is no file is refused', async () => {
    await symlink('/dev/null', `${file}.lock`)
    await expect(openSqliteStore({ file })).rejects.toMatchObject({ code: 'store_unavailable' })
  })

  describe.runIf(isRoot && process.platform === 'linux')('with a read lock of another user', () => {
    let other: ChildProcess
    beforeEach(async () => {
      await chmod(folder, 0o755)
      await writeFile(`${file}.lock`, '')
      await chmod(`${file}.lock`, 0o644)
      const script = `import fcntl, sys, time
handle = open(sys.argv[1])
fcntl.lockf(handle, fcntl.LOCK_SH)
print("locked", flush=True)
time.sleep(1000)`
      const child = guarded(
        spawn('python3', ['-c', script, `${file}.lock`], { uid: 65_534, ...GUARDED }),
      )
      other = child
      await once(child.stdout, 'data')
    })
    afterEach(() => killed(other))

    test('does not keep its owner away, and is open to that user no more', async () => {
      const store = await open()
      await write(store, 'a')
      await expect(openSqliteStore({ file })).rejects.toMatchObject({ code: 'store_locked' })
      const cannotOpen = () =>
        execFileSync('python3', ['-c', 'import sys; open(sys.argv[1])', `${file}.lock`], {
          uid: 65_534,
          stdio: 'pipe',
        })
      expect(cannotOpen).toThrow('Permission')
    })

    test('is replaced although a start was killed while it did so', async () => {
      await chmod(`${file}.lock`, 0o600)
      await writeFile(`${file}.lock.new`, '', { mode: 0o644 })
      await write(await open(), 'a')
      expect([existsSync(`${file}.lock.new`), modeOf(`${file}.lock`)]).toEqual([false, 0o600])
    })

    test('is not replaced while another process does so', async () => {
      await writeFile(`${file}.lock.new`, '')
      const replacing = openSqlite(`${file}.lock.new`)
      replacing.exec('BEGIN EXCLUSIVE')
      await expect(openSqliteStore({ file })).rejects.toMatchObject({ code: 'store_locked' })
      replacing.close()
      await write(await open(), 'a')
    })
  })
})

describe('beside a running store', () => {
  test('a check or a copy does not take an erasure for a loss', async () => {
    const store = await open()
    await write(store, 'a')
    await write(store, 'b')
    const end = { events: ['{"seq":2}'], at: 2, closed: true, pending: false, expiresAt: null }
    await store.append([{ session: 'b', epoch: 1, after: 1, snapshot: null, ...end }])
    const before = await readFile(`${file}.open`, 'utf8')
    await store.erase('b')
    // The marker was read before the erasure, the file after it: as by a reader that is slow.
    await writeFile(`${file}.open`, before)
    expect(() => checkMarker(file)).not.toThrow()
  })
})

describe('a start that fails', () => {
  test.runIf(isRoot && process.platform === 'linux')(
    'at its marker leaves no descriptor and no lock behind',
    async () => {
      const disk = join(folder, 'disk')
      await mkdir(disk)
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=4k', 'tmpfs', disk])
      try {
        const marker = join(disk, 'marker')
        await writeFile(marker, '')
        await writeFile(join(disk, 'ballast'), Buffer.alloc(4_096))
        await symlink(marker, `${file}.open`)
        expect(() => openFile({ file })).toThrow('ENOSPC')
        const descriptors = await readdir('/proc/self/fd')
        const paths = await Promise.all(
          descriptors.map((one) => readlink(`/proc/self/fd/${one}`).catch(() => '')),
        )
        // SQLite closes the database itself when its last statement is collected.
        expect(paths.filter((path) => path === marker || path.endsWith('.lock'))).toEqual([])
        await unlink(`${file}.open`)
        await write(await open(), 'a')
      } finally {
        execFileSync('umount', [disk])
      }
    },
  )
})
