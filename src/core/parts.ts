/**
 * Parts of an input: texts, images and files.
 *
 * The log has no bytes: a part of the log names them by their digest. They are stored once per
 * session, in a durable step before the turn is recorded, so that no event names what is not there.
 * If the request is refused after that step, they go again (`loose-blobs.ts`).
 */
import type { Access } from './access.ts'
import { closedError } from './closing.ts'
import type { Digest } from './clock.ts'
import type { CoreContext } from './context.ts'
import { HoldfastError, invalid } from './errors.ts'
import { STATE_LIMITS, type Limits } from './limits.ts'
import type { LooseBlobs } from './loose-blobs.ts'
import type { Runner, RunnerPart, RunnerTurn } from './runner.ts'
import type { BlobPart, Input, Part, Session, SessionOptions } from './state.ts'
import type { GivenBlob, Store } from './store.ts'
import { asFields, partsOf } from './turns.ts'

/** The bytes of an image or a file, or the digest of some that the session has. */
type GivenBytes = { readonly data: Uint8Array } | { readonly digest: string }

export type GivenPart =
  | Part
  | ({ readonly type: 'image'; readonly mediaType: string; readonly name?: string } & GivenBytes)
  | ({ readonly type: 'file'; readonly mediaType: string; readonly name: string } & GivenBytes)

/** An input as callers give it: with parts, the text may be left to them. */
export type GivenInput =
  | Input
  | {
      readonly text?: string
      readonly parts: readonly GivenPart[]
      readonly [field: string]: unknown
    }

/** The bytes of a request; null once they are stored, so that a request that waits has none. */
export type RequestBlobs = { given: readonly GivenBlob[] | null }

const DIGEST = /^sha256:[0-9a-f]{64}$/
const MEDIA_TYPE = /^[a-z0-9][a-z0-9!#$&^_.+-]*\/[a-z0-9][a-z0-9!#$&^_.+-]*$/i

function isBlobPart(part: Part): part is BlobPart {
  return part.type !== 'text'
}

type PartContext = { readonly limits: Limits; readonly digest: Digest }

/**
 * The input as the log will have it, but for the lengths, which the store tells; and the bytes.
 * Throws `invalid_field` or `body_too_large`.
 */
export function readParts(
  given: GivenInput,
  context: PartContext,
): { readonly input: Input; readonly blobs: RequestBlobs | null } {
  if (typeof given !== 'object' || given === null || given.parts === undefined) {
    return { input: given as Input, blobs: null }
  }
  const { partsMax, partsBytesMax } = context.limits
  const list: unknown = given.parts
  if (!Array.isArray(list) || list.length === 0) throw invalid('input.parts', 'must be a list')
  if (list.length > partsMax) throw invalid('input.parts', `must be at most ${partsMax}`)
  const blobs = new Map<string, GivenBlob>()
  const read = list.map((part, index) => readPart(part, `input.parts.${index}`, context, blobs))
  const bytes = [...blobs.values()].reduce((sum, { data }) => sum + (data?.length ?? 0), 0)
  if (bytes > partsBytesMax) throw tooLarge('the parts of an input', partsBytesMax)
  const input = { ...given, ...withText(given.text, read) }
  return { input, blobs: blobs.size === 0 ? null : { given: [...blobs.values()] } }
}

/** A text beside the parts is their first; or it is what their texts say, as in the log. */
function withText(text: unknown, parts: readonly Part[]): { text: string; parts: readonly Part[] } {
  const texts = parts.flatMap((part) => (part.type === 'text' ? [part.text] : []))
  const joined = texts.join('\n')
  if (text === undefined || text === joined) return { text: joined, parts }
  if (typeof text !== 'string') throw invalid('input.text', 'must be a text')
  if (texts.length === 0) return { text, parts: [{ type: 'text', text }, ...parts] }
  throw invalid('input.text', 'must be left out, or be the texts of the parts, one per line')
}

function readPart(
  part: unknown,
  field: string,
  context: PartContext,
  blobs: Map<string, GivenBlob>,
): Part {
  const { type, text, name, mediaType, ...rest } = asFields(part)
  if (type === 'text') {
    if (typeof text === 'string') return { type, text }
    throw invalid(`${field}.text`, 'must be a text')
  }
  if (type !== 'image' && type !== 'file') {
    throw invalid(`${field}.type`, 'must be one of text, image, file')
  }
  const blob = readBytes(rest, field, context)
  const known = blobs.get(blob.digest)
  blobs.set(blob.digest, known?.data === undefined || known.data === null ? blob : known)
  return {
    type,
    ...(name === undefined && type === 'image' ? {} : { name: checkName(name, `${field}.name`) }),
    mediaType: checkMediaType(type, mediaType, `${field}.mediaType`),
    digest: blob.digest,
  } as BlobPart
}

function readBytes(
  { data, digest }: Readonly<Record<string, unknown>>,
  field: string,
  context: PartContext,
): GivenBlob {
  if (data === undefined) {
    if (typeof digest === 'string' && DIGEST.test(digest)) return { digest, data: null }
    throw invalid(`${field}.data`, 'is missing, and so is a digest like sha256:…')
  }
  const blob = blobOf(data, `${field}.data`, context)
  if (digest === undefined || digest === blob.digest) return blob
  throw invalid(`${field}.digest`, 'is not the digest of the data')
}

/** Throws unless these are bytes, not too many of them. */
function blobOf(data: unknown, field: string, { limits, digest }: PartContext): GivenBlob {
  if (!(data instanceof Uint8Array)) throw invalid(field, 'must be bytes')
  if (data.length === 0) throw invalid(field, 'must not be empty')
  if (data.length > limits.partBytesMax) throw tooLarge('an image or a file', limits.partBytesMax)
  return { digest: `sha256:${digest(data, 'hex')}`, data }
}

function tooLarge(what: string, bytesMax: number): HoldfastError {
  const message = `${what} may have at most ${bytesMax} bytes`
  return new HoldfastError('body_too_large', message, { bytesMax })
}

/** Agents may write files by their names: a name is never a path. */
function checkName(name: unknown, field: string): string {
  const { partNameCharsMax } = STATE_LIMITS
  const isName = typeof name === 'string' && /^[^\p{Cc}\p{Cs}/\\]+$/u.test(name)
  if (isName && name.length <= partNameCharsMax && !/^\.\.?$/.test(name)) return name
  const words = `must be a file's name of 1 to ${partNameCharsMax} characters, without a folder`
  throw invalid(field, words)
}

function checkMediaType(type: 'image' | 'file', given: unknown, field: string): string {
  const isType = typeof given === 'string' && MEDIA_TYPE.test(given)
  if (!isType || given.length > STATE_LIMITS.mediaTypeCharsMax) {
    throw invalid(field, 'must be a media type like image/png')
  }
  const lower = given.toLowerCase()
  if (type === 'file' || lower.startsWith('image/')) return lower
  throw invalid(field, 'of an image must begin with image/')
}

/** Throws unless the agent takes such parts. */
export function assertTakes(agent: string, runner: Runner | null, input: Input): void {
  if (runner === null) return
  const { images = false, files = false } = runner.capabilities ?? {}
  for (const { type } of partsOf(input) ?? []) {
    if (type === 'text' || (type === 'image' ? images : files)) continue
    const message = `agent ${agent} takes no ${type}s`
    throw new HoldfastError('input_unsupported', message, { part: type })
  }
}

const NONE: readonly string[] = []

/** The digests of the bytes that an event names. */
export function blobsNamedBy(event: object): readonly string[] {
  const { input, origin } = event as { readonly input?: Input } & Pick<SessionOptions, 'origin'>
  // Most events name none, and every append looks.
  if (origin === undefined && (input === undefined || typeof input === 'string')) return NONE
  const before = origin?.messages.flatMap(({ parts = [] }) => parts) ?? []
  return digestsOf([...before, ...(input === undefined ? [] : (partsOf(input) ?? []))])
}

export function digestsOf(parts: readonly Part[]): readonly string[] {
  return [...new Set(parts.filter(isBlobPart).map(({ digest }) => digest))]
}

/** The bytes of the images and files among these, each counted once. */
export function bytesOf(parts: readonly Part[]): number {
  const bytes = new Map(parts.filter(isBlobPart).map((part) => [part.digest, part.bytes]))
  return [...bytes.values()].reduce((sum, one) => sum + one, 0)
}

/** Whether these inputs may be one. */
export function partsFit(inputs: readonly Input[], { partsMax, partsBytesMax }: Limits): boolean {
  const blobs = inputs.flatMap((input) => (partsOf(input) ?? []).filter(isBlobPart))
  const bytes = blobs.reduce((sum, part) => sum + part.bytes, 0)
  return blobs.length <= partsMax && bytes <= partsBytesMax
}

type BlobContext = Pick<CoreContext, 'store' | 'limits' | 'usage'>
type BlobRequest = {
  readonly session: Session
  readonly access: Access | null
  readonly blobs: readonly GivenBlob[]
  /** They go again unless an event names them. */
  readonly isLoose: boolean
}
type Where = Pick<BlobRequest, 'session' | 'access'>

/** Stores bytes until the session is erased, and returns their digest. */
export async function storeBlob(
  context: BlobContext & PartContext,
  { session, looseBlobs }: { readonly session: Session; readonly looseBlobs: LooseBlobs },
  { access, data }: Pick<Where, 'access'> & { readonly data: Uint8Array },
): Promise<string> {
  const blobs = [blobOf(data, 'data', context)]
  const leave = looseBlobs.need(blobs)
  try {
    await looseBlobs.ready()
    await storeBlobs(context, { session, access, blobs, isLoose: false })
    return blobs[0]?.digest ?? ''
  } finally {
    leave(true)
  }
}

/** Stores bytes, and returns the length of each. */
async function storeBlobs(
  { store, limits, usage }: BlobContext,
  { session, access, blobs, isLoose }: BlobRequest,
): Promise<readonly number[]> {
  const { storedPartsBytesMax } = limits
  const length = blobs.reduce((sum, { data }) => sum + (data?.length ?? 0), 0)
  if (length > 0) usage.ofOwner(access, session.principal)?.assertRoom(length)
  const put = await store.putBlobs(session.id, blobs, storedPartsBytesMax, isLoose)
  switch (put.type) {
    case 'stored':
      usage.stored(session, put.added)
      return put.bytes
    case 'missing':
      throw missing(put.digest)
    case 'full':
      throw tooMany(limits)
    case 'closed':
      throw closedError(session)
  }
}

function missing(digest: string): HoldfastError {
  return invalid('input.parts', `names ${digest}, which this session does not have`)
}

function tooMany({ storedPartsBytesMax }: Limits): HoldfastError {
  return tooLarge('all images and files of a session', storedPartsBytesMax)
}

/** How many bytes these are. Throws if a session that has none yet could not have them. */
export function firstBytes({ given }: RequestBlobs, limits: Limits): number {
  const unknown = given?.find(({ data }) => data === null)
  if (unknown !== undefined) throw missing(unknown.digest)
  const bytes = given?.reduce((sum, { data }) => sum + (data?.length ?? 0), 0) ?? 0
  if (bytes > limits.storedPartsBytesMax) throw tooMany(limits)
  return bytes
}

/** The input with the length of each of its parts, once these are stored. */
export async function storeParts(
  context: BlobContext,
  { input, blobs, ...where }: Where & { input: Input; blobs: RequestBlobs },
): Promise<Input> {
  const { given } = blobs
  // Stored in a session that has ended meanwhile: the caller has to send them again.
  if (given === null) throw closedError(where.session)
  const lengths = await storeBlobs(context, { ...where, blobs: given, isLoose: true })
  blobs.given = null
  const bytes = new Map(given.map(({ digest }, index) => [digest, lengths[index] ?? 0]))
  const parts = (partsOf(input) ?? []).map((part) =>
    isBlobPart(part) ? { ...part, bytes: bytes.get(part.digest) ?? 0 } : part,
  )
  return { ...(input as Exclude<Input, string>), parts }
}

/** A turn with the bytes of its parts, as a runner gets it. */
export async function withParts(
  turn: RunnerTurn,
  { session, holder }: { readonly session: Session; readonly holder: { readonly store: Store } },
  runner: Runner,
): Promise<RunnerTurn> {
  // It may have been recorded for an agent that was configured otherwise.
  assertTakes(session.agent, runner, turn.input)
  const parts: RunnerPart[] = []
  for (const part of partsOf(turn.input) ?? []) {
    parts.push(isBlobPart(part) ? await loadPart(part, session.id, holder.store) : part)
  }
  return { ...turn, parts }
}

async function loadPart(part: BlobPart, session: string, store: Store): Promise<RunnerPart> {
  const { type, mediaType, name = 'file', digest } = part
  const data = await readBlob(store, session, digest)
  return type === 'file' ? { type, name, mediaType, data } : { type, mediaType, data }
}

/** Throws `blob_unknown` if the session has none of that digest. */
export async function readBlob(
  store: Pick<Store, 'readBlob'>,
  session: string,
  digest: string,
): Promise<Uint8Array> {
  const data = await store.readBlob(session, digest)
  if (data !== null) return data
  throw new HoldfastError('blob_unknown', `session ${session} has no bytes ${digest}`)
}
