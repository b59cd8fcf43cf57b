/** Files that are sent with a message. */
import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import type { ClientPart } from '../client/index.ts'
import { fileTypeOf, imageTypeOf } from '../wire/media.ts'
import { UsageError } from './command.ts'

const PROBLEMS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file',
  EISDIR: 'it is a folder',
  EACCES: 'you may not read it',
}

export function readPart(file: string): ClientPart {
  const name = basename(file)
  try {
    const data = readFileSync(file)
    const image = imageTypeOf(data)
    if (image !== null) return { type: 'image', name, mediaType: image, data }
    return { type: 'file', name, mediaType: fileTypeOf(name), data }
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException
    throw new UsageError(`cannot read ${file}: ${PROBLEMS[code] ?? code}`)
  }
}
