/**
 * `<file>.open` is there while a process has the file open, and holds the number and the checksum
 * of the event that was acknowledged last. Found at the next start, it means that the process
 * before did not close the file, and what must be in it: so a `-wal` that was deleted, or a file
 * put in the place of ours, is noticed.
 *
 * It is synced once, when it is made. What is noted later is never ahead of what is synced in the
 * file, survives the end of the process, and may be lost with the machine, which weakens the check
 * and nothing else.
 */
import fs from 'node:fs'
import { readSqlite, type SqliteDatabase, type SqliteStatement } from './driver.ts'
import { HoldfastError } from '../../core/errors.ts'

const VERSION = 1
const BYTES = 256

const LAST_EVENT = 'SELECT number, checksum FROM events ORDER BY number DESC LIMIT 1'

type Mark = {
  readonly v: number
  /** The inodes of the file and of its `-wal`. */
  readonly database: number
  readonly wal: number
  /** The number of the last event. */
  readonly events: number
  /** That event's checksum. Marks of earlier versions have none, nor do events of schema 1. */
  readonly checksum?: number | null
}

/** The files of a store. The first is the database itself. */
const SUFFIXES = ['', '-wal', '.lock', '.open'] as const

/** The marker of an open file, and whether the paths of its files still lead to them. */
export class OpenMarker {
  readonly #path: string
  readonly #descriptor: number
  readonly #lastEvent: SqliteStatement
  readonly #files: readonly { suffix: string; path: string; dev: number; ino: number }[]

  /** The file is open and locked: its `-wal` and its lock file are there. */
  constructor(file: string, database: SqliteDatabase) {
    this.#path = `${file}.open`
    this.#lastEvent = database.prepare(LAST_EVENT)
    this.#descriptor = fs.openSync(this.#path, 'w', 0o600)
    try {
      this.#files = SUFFIXES.map((suffix) => {
        const path = file + suffix
        const { dev, ino } = fs.statSync(path)
        return { suffix, path, dev, ino }
      })
      this.note()
      fs.fsyncSync(this.#descriptor)
    } catch (thrown) {
      this.close(false)
      throw thrown
    }
  }

  /** What was committed is acknowledged next. */
  note(): void {
    const [database, wal] = this.#files
    const { number: events, checksum } = this.#lastEvent.get() ?? { number: 0, checksum: null }
    const inodes = { database: database?.ino, wal: wal?.ino }
    const text = JSON.stringify({ v: VERSION, ...inodes, events, checksum })
    fs.writeSync(this.#descriptor, `${text.padEnd(BYTES - 1)}\n`, 0)
  }

  /**
   * Throws `store_failed` if a path leads elsewhere or nowhere: a file that was deleted, moved or
   * replaced goes on to take writes, which are lost.
   */
  checkPaths(): void {
    for (const { suffix, path, dev, ino } of this.#files) {
      const now = fs.statSync(path, { throwIfNoEntry: false })
      if (now?.ino === ino && now.dev === dev) continue
      const what = now === undefined ? 'deleted or moved' : 'replaced'
      // Clients see it too: the kind of file, not its path.
      throw new HoldfastError(
        'store_failed',
        `a file of the store was ${what} while it was in use (${suffix || 'the database'}): ` +
          'nothing more is written; put it back, then start Holdfast again',
      )
    }
  }

  /** `isComplete`: the file was closed, and everything is in it. */
  close(isComplete: boolean): void {
    fs.closeSync(this.#descriptor)
    if (isComplete) fs.rmSync(this.#path, { force: true })
  }
}

function inodeOf(path: string): number {
  return fs.statSync(path, { throwIfNoEntry: false })?.ino ?? 0
}

/**
 * Throws `store_corrupt` if the process before left the file open and it is not what that process
 * had. Changes nothing, so that what is missing can still be put back. Numbers of events only grow,
 * so a file that a process has open is never behind the marker.
 */
export function checkMarker(file: string): void {
  const mark = readMark(file)
  const problem = mark === null ? null : problemWith(file, mark)
  if (problem === null) return
  throw new HoldfastError(
    'store_corrupt',
    `${file} ${problem}, and the Holdfast before did not stop cleanly: put its files back, ` +
      `or remove ${file}.open to go on with what is there`,
  )
}

/** Null: there is none, because the file before was closed, or it cannot be read. */
function readMark(file: string): Mark | null {
  try {
    const mark = JSON.parse(fs.readFileSync(`${file}.open`, 'utf8')) as Mark
    return mark.v === VERSION ? mark : null
  } catch {
    // The marker was cut off with the machine. One that cannot be read cannot be written either:
    // then opening the file will fail.
    return null
  }
}

function problemWith(file: string, mark: Mark): string | null {
  if (!fs.existsSync(file)) return mark.events > 0 ? 'is gone' : null
  const isReplaced = inodeOf(file) !== mark.database
  const hasItsWal = inodeOf(`${file}-wal`) === mark.wal
  if (isReplaced && mark.wal !== 0 && hasItsWal) {
    return 'was replaced, and its -wal is that of the file before'
  }
  // A reader makes an empty one.
  const wal = hasItsWal ? '' : ' (its -wal is gone)'
  const found = eventsIn(file, mark.events)
  if (found === null) return null
  const missing = mark.events - found.last
  if (missing > 0) return `lacks the last ${missing} events that were acknowledged${wal}`
  const isOther = found.event !== undefined && found.event.checksum !== mark.checksum
  if (!isOther || typeof mark.checksum !== 'number') return null
  return `has another event in place of the last that was acknowledged${wal}`
}

/**
 * The last event's number, and the event of the number that is asked for. As a reader, which
 * neither copies the `-wal` into the file nor deletes it. Null: it cannot be read.
 */
function eventsIn(file: string, number: number) {
  try {
    return readSqlite(file, (database) => {
      const tables = database.prepare(`SELECT name FROM sqlite_schema WHERE name = 'events'`).all()
      if (tables.length === 0) return { last: 0 }
      const { last } = database.prepare('SELECT coalesce(max(number), 0) AS last FROM events').get()
      // All columns: a file of schema 1 has no checksum.
      const event = database.prepare('SELECT * FROM events WHERE number = ?').get(number)
      return { last, event }
    })
  } catch {
    // Opening the file reports it.
    return null
  }
}
