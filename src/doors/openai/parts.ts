/** Images and files of a message, in the shapes of both APIs of OpenAI. */
import { invalid, type GivenPart } from '../../core/index.ts'
import { isRecord } from '../../schema/contract.ts'
import { decodeBase64 } from '../parts.ts'

/** An image or a file; null: the part is something else. Only bytes: the server fetches nothing. */
export function readMedia(part: unknown, field: string): GivenPart | null {
  const { type, image_url: image, file, ...rest } = isRecord(part) ? part : {}
  if (type === 'image_url') return readImage(isRecord(image) ? image['url'] : image, field)
  if (type === 'input_image') return readImage(image, field)
  if (type === 'file') return readFile(isRecord(file) ? file : {}, field)
  return type === 'input_file' ? readFile(rest, field) : null
}

function readImage(url: unknown, field: string): GivenPart {
  const { mediaType, data } = readDataUrl(url, field, 'image')
  return { type: 'image', mediaType, data }
}

function readFile(
  { filename = 'file', file_data: text }: Readonly<Record<string, unknown>>,
  field: string,
): GivenPart {
  const isBare = typeof text === 'string' && !text.startsWith('data:')
  const mediaType = 'application/octet-stream'
  const bytes = isBare
    ? { mediaType, data: decodeBase64(text, field) }
    : readDataUrl(text, field, 'file')
  // The core refuses a name that is none.
  return { type: 'file', name: filename as string, ...bytes }
}

function readDataUrl(url: unknown, field: string, what: 'image' | 'file') {
  const head = typeof url === 'string' ? /^data:([^;,]+)(;[^,]*)?;base64,/i.exec(url) : null
  if (head === null) {
    const why = 'the server fetches no address, and has no uploads by id'
    throw invalid(field, `must have the ${what} itself, as a data: URL with base64: ${why}`)
  }
  const [start, mediaType = ''] = head
  return { mediaType, data: decodeBase64((url as string).slice(start.length), field) }
}
