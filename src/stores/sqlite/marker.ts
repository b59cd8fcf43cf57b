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
import {
  closeSync,
  existsSync,
  fsyncSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs'
import { openSqliteToRead, type SqliteDatabase } from './driver.ts'
import { HoldfastError } from '../../core/errors.ts'

const VERSION = 1
const BYTES = 256

type Mark = {
  /** The inodes of the file and of its `-wal`. */
  readonly database: number
  readonly wal: number
  /** The number of the last event. */
  readonly events: number
  /** That event's checksum. Marks of earlier versions have none, nor do events of schema 1. */
  readonly checksum?: number | null
}

type LastEvent = { readonly number: number; readonly checksum: number | null }

const LAST_EVENT = 'SELECT number, checksum FROM events ORDER BY number DESC LIMIT 1'
const LAST_NUMBER = 'SELECT coalesce(max(number), 0) AS number FROM events'

const NONE: LastEvent = { number: 0, checksum: null }

export class OpenMarker {
  readonly #path: string
  readonly #descriptor: number
  readonly #inodes: Pick<Mark, 'database' | 'wal'>
  readonly #lastEvent: { get(): LastEvent | undefined }

  /** The file is open: its `-wal` is there. */
  constructor(file: string, database: SqliteDatabase) {
    this.#path = markerOf(file)
    this.#inodes = { database: inodeOf(file), wal: inodeOf(`${file}-wal`) }
    this.#lastEvent = database.prepare(LAST_EVENT)
    this.#descriptor = openSync(this.#path, 'w', 0o600)
    try {
      this.note()
      fsyncSync(this.#descriptor)
    } catch (thrown) {
      this.close(false)
      throw thrown
    }
  }

  /** What was committed is acknowledged next. */
  note(): void {
    const { number: events, checksum } = this.#lastEvent.get() ?? NONE
    const text = JSON.stringify({ v: VERSION, ...this.#inodes, events, checksum })
    writeSync(this.#descriptor, `${text.padEnd(BYTES - 1)}\n`, 0)
  }

  /** `isComplete`: the file was closed, and everything is in it. */
  close(isComplete: boolean): void {
    closeSync(this.#descriptor)
    if (isComplete) rmSync(this.#path, { force: true })
  }
}

function markerOf(file: string): string {
  return `${file}.open`
}

function inodeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.ino ?? 0
}

/**
 * Throws `store_corrupt` if the process before left the file open and it is not what that process
 * had. Changes nothing, so that what is missing can still be put back. Numbers of events only grow,
 * so a file that a process has open is never behind the marker.
 */
export function checkMarker(file: string): void {
  const mark = markOf(readMarker(file))
  const problem = mark === null ? null : problemWith(file, mark)
  if (problem !== null) throw notOurs(file, problem)
}

/** What is wrong with the file if that is its mark. */
function problemWith(file: string, mark: Mark): string | null {
  const isThere = existsSync(file)
  if (!isThere) return mark.events > 0 ? 'is gone' : null
  const isReplaced = inodeOf(file) !== mark.database
  if (isReplaced && mark.wal !== 0 && inodeOf(`${file}-wal`) === mark.wal) {
    return 'was replaced, and its -wal is that of the file before'
  }
  // A reader makes an empty one.
  const wal = inodeOf(`${file}-wal`) === mark.wal ? '' : ' (its -wal is gone)'
  const found = eventsIn(file, mark.events)
  if (found === null) return null
  const missing = mark.events - found.last
  if (missing > 0) return `lacks the last ${missing} events that were acknowledged${wal}`
  const isOther = found.event !== undefined && found.event.checksum !== mark.checksum
  if (!isOther || typeof mark.checksum !== 'number') return null
  return `has another event in place of the last that was acknowledged${wal}`
}

function notOurs(file: string, what: string): HoldfastError {
  return new HoldfastError(
    'store_corrupt',
    `${file} ${what}, and the Holdfast before did not stop cleanly: put its files back, ` +
      `or remove ${markerOf(file)} to go on with what is there`,
  )
}

/** Empty: there is none, because the file before was closed. */
function readMarker(file: string): string {
  try {
    return readFileSync(markerOf(file), 'utf8')
  } catch {
    // A marker that cannot be read cannot be written either: opening the file will fail.
    return ''
  }
}

/** Null: there is none, or it cannot be parsed. */
function markOf(text: string): Mark | null {
  try {
    const mark = JSON.parse(text) as Mark & { v: number }
    return mark.v === VERSION ? mark : null
  } catch {
    // The marker was cut off with the machine.
    return null
  }
}

type Found = { readonly last: number; readonly event: { checksum?: unknown } | undefined }

/**
 * The last event's number, and the event of the number that is asked for. As a reader, which
 * neither copies the `-wal` into the file nor deletes it. Null: it cannot be read.
 */
function eventsIn(file: string, number: number): Found | null {
  let database: SqliteDatabase | undefined
  try {
    database = openSqliteToRead(file)
    const tables = database.prepare(`SELECT name FROM sqlite_schema WHERE name = 'events'`).all()
    if (tables.length === 0) return { last: 0, event: undefined }
    const { number: last } = database.prepare(LAST_NUMBER).get() as { number: number }
    // All columns: a file of schema 1 has no checksum.
    const event = database.prepare('SELECT * FROM events WHERE number = ?').get(number)
    return { last, event: event as Found['event'] }
  } catch {
    // Opening the file reports it.
    return null
  } finally {
    database?.close()
  }
}
