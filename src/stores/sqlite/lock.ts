/**
 * One process has the file at a time: it holds a transaction on `<file>.lock` beside it. The kernel
 * lets go of that lock however the process ends, and the file itself stays readable for a backup.
 *
 * The lock file is its owner's alone: whoever may read it could hold a shared lock on it, which
 * keeps the exclusive one away. Nothing here opens a lock file that exists but SQLite: a process
 * loses its POSIX locks on a file when it closes any descriptor of it.
 */
import { chmodSync, closeSync, lstatSync, openSync, readFileSync, renameSync } from 'node:fs'
import { DatabaseSync, type DatabaseSyncInstance } from '@photostructure/sqlite'
import { HoldfastError } from '../../core/errors.ts'
import { storeError } from './failures.ts'

const PRIVATE = 0o600
const OTHERS = 0o077

/** Takes the lock, or throws `store_locked`. */
export function takeLock(file: string): DatabaseSyncInstance {
  const path = `${file}.lock`
  const wasPrivate = makePrivate(path)
  const lock = tryLock(path, file)
  if (lock !== null) return lock
  if (wasPrivate || !isOnlyReadLocked(path)) throw inUse(file)
  // Another user had opened it while an earlier version left it readable: theirs is put aside.
  create(`${path}.new`)
  renameSync(`${path}.new`, path)
  const again = tryLock(path, file)
  if (again === null) throw inUse(file)
  return again
}

function inUse(file: string): HoldfastError {
  return new HoldfastError('store_locked', `${file} is in use by another Holdfast: stop it first`)
}

/** Null: another process has it. */
function tryLock(path: string, file: string): DatabaseSyncInstance | null {
  let lock: DatabaseSyncInstance | undefined
  try {
    lock = new DatabaseSync(path)
    lock.exec('BEGIN EXCLUSIVE')
    return lock
  } catch (thrown) {
    lock?.close()
    const error = storeError(thrown, file)
    if (error.code === 'store_locked') return null
    throw error
  }
}

/** Whether nobody else could open it before. */
function makePrivate(path: string): boolean {
  try {
    const found = lstatSync(path, { throwIfNoEntry: false })
    if (found === undefined) return create(path)
    if (!found.isFile()) throw new Error('it is not a file')
    if ((found.mode & OTHERS) === 0) return true
    chmodSync(path, PRIVATE)
    return process.platform === 'win32'
  } catch (thrown) {
    const { code, message } = thrown as NodeJS.ErrnoException
    const reason = code === 'EPERM' ? 'it belongs to another user' : message
    throw new HoldfastError('store_unavailable', `cannot use ${path}: ${reason}`)
  }
}

function create(path: string): true {
  closeSync(openSync(path, 'wx', PRIVATE))
  return true
}

/** Whether the system lists locks on it, and none that a Holdfast would hold. Only Linux tells. */
function isOnlyReadLocked(path: string): boolean {
  try {
    const { ino } = lstatSync(path)
    const lines = readFileSync('/proc/locks', 'utf8').split('\n')
    const own = lines.filter((line) => line.includes(`:${ino} `))
    return own.length > 0 && own.every((line) => / READ /.test(line))
  } catch {
    // Not told here: the lock counts.
    return false
  }
}
