/**
 * Images and files of a turn, on their way. Small ones travel in the message; larger ones are
 * stored by HTTP first, and the message names them by their digest.
 */
import type { BlobPart, Input, TextPart } from '../wire/frames.ts'
import { HttpApi } from './http-api.ts'
import { HoldfastClientError } from './endings.ts'

/** What the client uses of a browser's `Blob`; a `File` has a name besides. */
export interface ClientBlob {
  readonly type: string
  readonly name?: string
  arrayBuffer(): Promise<ArrayBuffer>
}

type ClientMedia = {
  readonly type: 'image' | 'file'
  /** By default that of the `File`. */
  readonly name?: string
  /** By default that of the `Blob`. */
  readonly mediaType?: string
  /** Text is base64. */
  readonly data: Uint8Array | ClientBlob | string
}

export type ClientPart = TextPart | ClientMedia | Omit<BlobPart, 'bytes'>

/** An input as a program has it. */
export type ClientInput =
  | Input
  | {
      readonly text?: string
      readonly parts: readonly ClientPart[]
      readonly [field: string]: unknown
    }

/** All bytes of a message that travel in it. */
const INLINE_BYTES_MAX = 393_216

type EncodedPart = { readonly [field: string]: unknown }

/** Makes inputs ready to be sent, in their order. */
export class PartSender {
  readonly #upload: (data: Uint8Array) => Promise<string>
  #last: Promise<void> | null = null

  /** `upload` stores bytes with the session, and returns their digest. */
  constructor(upload: (data: Uint8Array) => Promise<string>) {
    this.#upload = upload
  }

  /** At once, if the input has no bytes and none before it is being made ready. */
  send(
    input: ClientInput,
    send: (ready: Input) => void,
    fail: (error: HoldfastClientError) => void,
  ): void {
    const media = mediaOf(input)
    if (media.length === 0 && this.#last === null) return send(input as Input)
    const before = this.#last
    const ready = this.#encode(input, media)
    const sent = Promise.allSettled([ready, before]).then(([made]) => {
      if (this.#last === sent) this.#last = null
      if (made.status === 'fulfilled') send(made.value)
      else fail(asClientError(made.reason))
    })
    this.#last = sent
  }

  async #encode(input: ClientInput, media: readonly ClientMedia[]): Promise<Input> {
    if (media.length === 0) return input as Input
    const data = await Promise.all(media.map(bytesOf))
    const isSmall = data.reduce((sum, { length }) => sum + length, 0) <= INLINE_BYTES_MAX
    const encoded = new Map<unknown, EncodedPart>()
    for (const [index, part] of media.entries()) {
      const bytes = data[index]!
      const where = isSmall ? { data: toBase64(bytes) } : { digest: await this.#upload(bytes) }
      encoded.set(part, { ...namesOf(part), ...where })
    }
    const { parts = [], ...rest } = input as Exclude<ClientInput, string>
    return { ...rest, parts: parts.map((part) => encoded.get(part) ?? part) } as unknown as Input
  }
}

/** Stores bytes with a session. */
export function blobUploader(
  url: string,
  token: string | undefined,
  session: () => Promise<string>,
) {
  const api = new HttpApi(url.replace(/^ws/, 'http').replace(/\/v1\/connect$/, ''))
  return async (data: Uint8Array): Promise<string> => {
    const id = await session()
    const headers = {
      'content-type': 'application/octet-stream',
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    }
    const init = { method: 'POST', headers, body: data as Uint8Array<ArrayBuffer> }
    const answer = await api.call(`/v1/sessions/${encodeURIComponent(id)}/blobs`, init)
    return ((await answer.json()) as { readonly digest: string }).digest
  }
}

function mediaOf(input: ClientInput): readonly ClientMedia[] {
  const parts = typeof input === 'string' ? undefined : input.parts
  if (!Array.isArray(parts)) return []
  return parts.filter((part: Partial<ClientMedia> | null): part is ClientMedia => {
    return part?.data !== undefined
  })
}

async function bytesOf({ data }: ClientMedia): Promise<Uint8Array> {
  if (data instanceof Uint8Array) return data
  if (typeof data !== 'string') return new Uint8Array(await data.arrayBuffer())
  try {
    return Uint8Array.from(atob(data), (character) => character.charCodeAt(0))
  } catch {
    throw new HoldfastClientError('invalid_field', 'the data of a part must be base64, or bytes')
  }
}

/** A browser adds the character set of a text file to its type. */
function namesOf({ type, name, mediaType, data }: ClientMedia): EncodedPart {
  const blob: Partial<ClientBlob> = typeof data === 'object' && 'arrayBuffer' in data ? data : {}
  const given = mediaType ?? blob.type?.split(';')[0]
  const called = name ?? blob.name
  return {
    type,
    mediaType: given === undefined || given === '' ? 'application/octet-stream' : given,
    ...(called === undefined ? {} : { name: called }),
  }
}

const CHUNK = 32_768

function toBase64(bytes: Uint8Array): string {
  let text = ''
  for (let from = 0; from < bytes.length; from += CHUNK) {
    text += String.fromCharCode(...bytes.subarray(from, from + CHUNK))
  }
  return btoa(text)
}

function asClientError(thrown: unknown): HoldfastClientError {
  if (thrown instanceof HoldfastClientError) return thrown
  return new HoldfastClientError('internal', String(thrown))
}
