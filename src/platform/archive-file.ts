/** Reads an archive, from a file or from memory. */
import { createReadStream } from 'node:fs'
import { Readable } from 'node:stream'
import { createGunzip } from 'node:zlib'
import { HoldfastError, invalid, messageOf, type RestoredSession } from '../core/index.ts'
import { ARCHIVE_LINE_BYTES_MAX, ArchiveCheck } from './archive-format.ts'
import { linesIn } from './line-splitter.ts'

/** An archive is in memory as a whole when it is restored. */
export const ARCHIVE_BYTES_MAX = 536_870_912

export function readArchiveBytes(bytes: Uint8Array, at: number): Promise<RestoredSession> {
  return readArchive(Readable.from([bytes], { objectMode: false }), isGzip(bytes), at)
}

export async function readArchiveFile(file: string, at: number): Promise<RestoredSession> {
  const isCompressed = await isGzipFile(file)
  return readArchive(createReadStream(file), isCompressed, at)
}

/** The lines of a text file, which may be compressed. Null in place of one that is too long. */
export async function* linesOfFile(file: string): AsyncGenerator<string | null> {
  const isCompressed = await isGzipFile(file)
  yield* linesIn(opened(createReadStream(file), isCompressed), ARCHIVE_LINE_BYTES_MAX, {
    isFile: true,
  })
}

async function readArchive(
  from: Readable,
  isCompressed: boolean,
  at: number,
): Promise<RestoredSession> {
  const check = new ArchiveCheck({ isKept: true })
  try {
    await readInto(check, opened(from, isCompressed))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code?.startsWith('Z_') !== true) throw error
    throw invalid('archive', `cannot be decompressed: ${messageOf(error)}`)
  }
  const [problem] = check.finish().problems
  if (problem !== undefined) throw invalid('archive', `is not sound: ${problem}`)
  return check.session(at)
}

async function readInto(check: ArchiveCheck, from: Readable): Promise<void> {
  let [bytes, number] = [0, 0]
  for await (const line of linesIn(from, ARCHIVE_LINE_BYTES_MAX, { isFile: true })) {
    // A small file can be large when it is no longer compressed.
    bytes += line?.length ?? 0
    if (line === null || bytes > ARCHIVE_BYTES_MAX) {
      const message = `an archive has at most ${ARCHIVE_BYTES_MAX} bytes that are not compressed`
      throw new HoldfastError('body_too_large', message)
    }
    if (line !== '') check.add(parsedLine(line), (number += 1), line)
  }
}

function parsedLine(line: string): object {
  try {
    const value = JSON.parse(line) as unknown
    if (typeof value === 'object' && value !== null) return value
  } catch {
    // The same words for what is no JSON, and for what is JSON but no object.
  }
  throw invalid('archive', 'has a line that is no JSON object')
}

function opened(from: Readable, isCompressed: boolean): Readable {
  if (!isCompressed) return from
  const to = createGunzip()
  from.on('error', (error) => to.destroy(error))
  // Not all of it may be read.
  to.on('close', () => from.destroy())
  return from.pipe(to)
}

function isGzip(bytes: Uint8Array): boolean {
  return bytes[0] === 0x1f && bytes[1] === 0x8b
}

async function isGzipFile(file: string): Promise<boolean> {
  for await (const chunk of createReadStream(file, { end: 1 })) return isGzip(chunk as Uint8Array)
  return false
}
