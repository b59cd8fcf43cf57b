/** Files that are sent with a message. */
import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import type { ClientPart } from '../client/index.ts'
import { fileTypeOf, imageTypeOf } from '../wire/media.ts'
import { UsageError } from './command.ts'

export function readPart(file: string): ClientPart {
  const name = basename(file)
  try {
    const data = readFileSync(file)
    const image = imageTypeOf(data)
    if (image !== null) return { type: 'image', name, mediaType: image, data }
    return { type: 'file', name, mediaType: fileTypeOf(name), data }
  } catch (error) {
    throw new UsageError(`cannot read ${file}: ${(error as NodeJS.ErrnoException).code}`)
  }
}
