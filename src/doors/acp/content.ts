/** Prompts of ACP as inputs of turns, and inputs as the content of messages. */
import {
  HoldfastError,
  invalid,
  partsOf,
  type BlobPart,
  type GivenInput,
  type GivenPart,
  type Input,
} from '../../core/index.ts'
import { isRecord } from '../../schema/contract.ts'
import { decodeBase64 } from '../parts.ts'

type Block = Readonly<Record<string, unknown>>

/** A prompt as the input of a turn: a text where it has nothing but texts. */
export function promptInput(prompt: readonly unknown[]): GivenInput {
  const parts = prompt.map(partOf)
  const texts = parts.flatMap((part) => (part.type === 'text' ? [part.text] : []))
  return texts.length === parts.length ? texts.join('\n') : { parts }
}

const BLOCKS = 'text, image, resource, resource_link'

function partOf(block: unknown, index: number): GivenPart {
  const where = `prompt.${index}`
  if (!isRecord(block)) throw invalid(where, 'must be an object')
  switch (block['type']) {
    case 'text':
      return { type: 'text', text: textOf(block, 'text', where) }
    case 'image':
      return imagePart(block, where)
    case 'resource_link':
      return { type: 'text', text: linkText(block, where) }
    case 'resource':
      return resourcePart(block, where)
    default:
      throw new HoldfastError('input_unsupported', `${where}.type must be one of ${BLOCKS}`)
  }
}

function textOf(block: Block, name: string, where: string): string {
  const value = block[name]
  if (typeof value === 'string') return value
  throw invalid(`${where}.${name}`, 'must be a text')
}

function imagePart(block: Block, where: string): GivenPart {
  const data = decodeBase64(block['data'], `${where}.data`)
  return { type: 'image', mediaType: textOf(block, 'mimeType', where), data }
}

/** A link is words for the agent, in Markdown: it has the means to follow it, or has not. */
function linkText(block: Block, where: string): string {
  return `[${textOf(block, 'name', where)}](${textOf(block, 'uri', where)})`
}

function resourcePart({ resource }: Block, at: string): GivenPart {
  const where = `${at}.resource`
  if (!isRecord(resource)) throw invalid(where, 'must be an object')
  const uri = textOf(resource, 'uri', where)
  const { mimeType, text, blob } = resource
  const isText = typeof text === 'string'
  const fallback = isText ? 'text/plain' : 'application/octet-stream'
  const mediaType = typeof mimeType === 'string' && mimeType !== '' ? mimeType : fallback
  const data = isText ? new TextEncoder().encode(text) : decodeBase64(blob, `${where}.blob`)
  return { type: 'file', name: fileName(uri), mediaType: plainType(mediaType), data }
}

/** Without its parameters, as `text/plain; charset=utf-8` has them. */
function plainType(mediaType: string): string {
  return mediaType.split(';', 1)[0]?.trim() ?? mediaType
}

/** The last part of an address, as a name that may be one of a file. */
function fileName(uri: string): string {
  const path = uri.split(/[?#]/, 1)[0] ?? ''
  const last = decoded(path.split('/').findLast((part) => part !== '') ?? '')
  const name = last.replace(/[\p{Cc}\p{Cs}/\\]/gu, '_').slice(-200)
  return name === '' || /^\.\.?$/.test(name) ? 'resource' : name
}

/** As it is, if it is malformed. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** A part of a message: its block, or an image whose bytes have to be read first. */
export type MessagePart = { readonly block: object } | { readonly image: BlobPart }

export function messageParts(input: Input): readonly MessagePart[] {
  const parts = partsOf(input)
  const text = typeof input === 'string' ? input : input.text
  if (parts === null) return [{ block: textBlock(text) }]
  return parts.map((part) => {
    if (part.type === 'text') return { block: textBlock(part.text) }
    return part.type === 'image' ? { image: part } : { block: fileBlock(part) }
  })
}

export function textBlock(text: string): object {
  return { type: 'text', text }
}

export function imageBlock({ mediaType }: BlobPart, data: Uint8Array): object {
  return { type: 'image', mimeType: mediaType, data: Buffer.from(data).toString('base64') }
}

/** Its bytes are at `GET /v1/sessions/:id/blobs/:digest`. */
function fileBlock({ name = 'file', mediaType, bytes, digest }: BlobPart): object {
  return {
    type: 'resource_link',
    name,
    uri: `holdfast:${digest}`,
    mimeType: mediaType,
    size: bytes,
  }
}
