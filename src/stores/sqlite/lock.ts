/**
 * One process has the file at a time: it holds a transaction on `<file>.lock` beside it. The kernel
 * releases that lock however the process ends, and the file itself stays readable for a backup.
 *
 * Only its owner may read the lock file: a reader could hold a shared lock on it, which
 * keeps the exclusive one away. Nothing here opens a lock file that exists but SQLite: a process
 * loses its POSIX locks on a file when it closes any descriptor of it.
 */
import fs from 'node:fs'
import { openSqlite, type SqliteDatabase } from './driver.ts'
import { HoldfastError } from '../../core/errors.ts'
import { unavailable } from '../failures.ts'
import { storeError } from './failures.ts'

const PRIVATE = 0o600
const OTHERS = 0o077

/** Takes the lock, or throws `store_locked`. */
export function takeLock(file: string): SqliteDatabase {
  const path = `${file}.lock`
  makePrivate(path)
  const lock = tryLock(path, file) ?? replaceLock(path, file)
  if (lock !== null) return lock
  throw new HoldfastError('store_locked', `${file} is in use by another Holdfast: stop it first`)
}

/**
 * Puts another lock file in the place of one that another user had opened while an earlier version
 * left it readable, and holds a read lock on. Only the process that has `.lock.new` locked may
 * rename it, and its lock goes with the file. Null: a Holdfast has the lock, or is about to.
 */
function replaceLock(path: string, file: string): SqliteDatabase | null {
  if (!isForeign(path)) return null
  const next = `${path}.new`
  // One may be left over from a process that was killed.
  makePrivate(next)
  const inode = inodeOf(next)
  const lock = tryLock(next, file)
  if (lock === null) return null
  // Meanwhile another process may have renamed this one, or taken the first after all.
  const isOurs = inode !== null && inodeOf(next) === inode
  const first = isOurs ? tryLock(path, file) : null
  if (isOurs && first === null && isForeign(path)) {
    fs.renameSync(next, path)
    return lock
  }
  if (isOurs) fs.unlinkSync(next)
  lock.close()
  return first
}

/** Null: another process has it. */
function tryLock(path: string, file: string): SqliteDatabase | null {
  let lock: SqliteDatabase | undefined
  try {
    lock = openSqlite(path)
    lock.exec('BEGIN EXCLUSIVE')
    return lock
  } catch (thrown) {
    lock?.close()
    const error = storeError(thrown, file)
    if (error.code === 'store_locked') return null
    throw error
  }
}

/** Makes it if it is not there, for its owner alone. */
function makePrivate(path: string): void {
  try {
    const found = fs.lstatSync(path, { throwIfNoEntry: false })
    if (found === undefined) return fs.closeSync(fs.openSync(path, 'wx', PRIVATE))
    if (!found.isFile()) throw new Error('it is not a file')
    if ((found.mode & OTHERS) !== 0) fs.chmodSync(path, PRIVATE)
  } catch (thrown) {
    const { code, message } = thrown as NodeJS.ErrnoException
    // Another process has made it in this moment.
    if (code === 'EEXIST') return
    const reason = code === 'EPERM' ? 'it belongs to another user' : message
    throw unavailable(`cannot use ${path}: ${reason}`)
  }
}

function inodeOf(path: string): number | null {
  return fs.lstatSync(path, { throwIfNoEntry: false })?.ino ?? null
}

/**
 * Whether the system lists locks on it, and all of them are read locks of other users: a Holdfast
 * has a write lock, or is this user's. Only Linux lists them.
 */
function isForeign(path: string): boolean {
  try {
    const lines = fs.readFileSync('/proc/locks', 'utf8').split('\n')
    const own = lines.filter((line) => line.includes(`:${inodeOf(path)} `))
    return own.length > 0 && own.every(isReadLockOfAnother)
  } catch {
    // Not known here, or the process has ended by now: the lock counts.
    return false
  }
}

function isReadLockOfAnother(line: string): boolean {
  const [, pid] = / READ +(\d+) /.exec(line) ?? []
  if (pid === undefined) return false
  const { uid } = fs.statSync(`/proc/${pid}`)
  return uid !== process.getuid?.() && uid !== 0
}
