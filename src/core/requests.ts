/** What callers may ask for, checked: every door and the library come through here. */
import { principalOfKey, type Access, type Caller } from './access.ts'
import type { Digest } from './clock.ts'
import { HoldfastError, invalid } from './errors.ts'
import type { SettingsChange } from './commands.ts'
import { STATE_LIMITS, type Limits } from './limits.ts'
import { readParts, type GivenInput, type RequestBlobs } from './parts.ts'
import { changedSettings, checkSettings } from './settings.ts'
import {
  type Principal,
  LINK_SCOPES,
  PRINCIPAL_KINDS,
  RECONNECT_POLICIES,
  type Input,
  type LinkScope,
  type ReconnectPolicy,
  type RequestKey,
  type SessionOptions,
  type Settings,
  type Share,
} from './state.ts'
import type { CopiedBlobs } from './store.ts'

/** How to find or create a session. All but `key` and `id` count only when it is created. */
export type ResolveOptions = {
  /** The caller's own name for the session: any text. */
  readonly key?: string
  /** An id of the caller's own; without one it is minted. */
  readonly id?: string
  readonly agent?: string
  readonly reconnect?: ReconnectPolicy
  /** At most one attachment drives it at a time; others may watch. */
  readonly exclusive?: boolean
  readonly graceMs?: number
  /** How long it may be idle; null: without limit. */
  readonly ttlMs?: number | null
  /** Never listed, and not found by its key. */
  readonly internal?: boolean
  readonly labels?: Readonly<Record<string, string>>
  /** How its agent is to work; can be changed later. */
  readonly settings?: Settings
}

/** What to find or create. An id is the caller's own and decides; null: a new one is made. */
export type ResolveRequest = Omit<SessionOptions, 'id'> & {
  readonly id: string | null
  /** Whom it belongs to, or will. */
  readonly principal: string
  readonly by: Principal
  readonly access: Access | null
  /** What a new session begins with. */
  readonly blobs?: CopiedBlobs
  /** The turn that it is to be created for, if any; null: it is not known yet. */
  readonly turn?: TurnRequest | null
}

declare global {
  /** Named by the types of the client, which are also used without those of a browser or Node. */
  interface AbortSignal {
    readonly aborted: boolean
  }
}

export const BUSY_POLICIES = ['queue', 'reject', 'interrupt', 'collect', 'steer'] as const

/** What a request does when a turn runs or waits. */
export type BusyPolicy = (typeof BUSY_POLICIES)[number]

export type TurnOptions = {
  readonly busy?: BusyPolicy
  /** How long to wait for the lane. */
  readonly waitMs?: number
  /** The same key and input join the same turn; the same key with another input is refused. */
  readonly idempotencyKey?: string
  /** The caller went away: a request that has not been admitted leaves the lane. */
  readonly signal?: AbortSignal
  /** What the caller's going away does to an admitted turn; nothing, unless asked for. */
  readonly onDisconnect?: 'continue' | 'cancel'
  /** For this turn only, on top of the session's. */
  readonly settings?: Settings
  /** The setting `onNobody`, if neither the session nor `settings` has it. For doors. */
  readonly onNobody?: 'wait' | 'deny'
}

/** What one caller asks for. */
export type TurnRequest = {
  readonly input: Input
  /** To be stored before it is recorded; null: nothing. */
  readonly blobs: RequestBlobs | null
  /** The length of the input as JSON. */
  readonly chars: number
  readonly key: RequestKey | null
  readonly busy: BusyPolicy
  /** How long it may wait; null: the default, or no limit for one that is submitted. */
  readonly waitMs: number | null
  /** Aborted when the caller goes away: a request that only waits here leaves the queue. */
  readonly caller: { readonly signal?: AbortSignal }
  readonly by: Principal
  /** What its caller was granted: looked at again when its turn is to start. Null: everything. */
  readonly access: Access | null
  /** Of this turn alone; null: those of the session. */
  readonly settings: Settings | null
  /** One more setting of this turn, unless the session has it. */
  readonly onNobody?: 'wait' | 'deny'
}

export function resolveRequest(
  options: ResolveOptions,
  caller: Caller,
  { agent, limits }: { agent: string; limits: Limits },
): ResolveRequest {
  const reconnect = oneOf('reconnect', options.reconnect ?? 'reopen', RECONNECT_POLICIES)
  const graceMs = reconnect === 'reopen' ? limits.reopenGraceMs : limits.graceMs
  const ttlMs = Math.min(limits.ttlMs, limits.ttlMsMax)
  const internal = options.internal ?? false
  const key = options.key === undefined ? null : checkKey(options.key)
  return {
    id: options.id === undefined ? null : checkSessionId(options.id),
    principal: principalOfKey(caller, key),
    key: internal ? null : key,
    agent: options.agent ?? agent,
    internal,
    reconnect,
    exclusive: options.exclusive ?? false,
    graceMs:
      options.graceMs === undefined
        ? Math.min(graceMs, limits.graceMsMax)
        : milliseconds('graceMs', options.graceMs, limits.graceMsMax),
    ttlMs: options.ttlMs === null ? null : timeToLive(options.ttlMs ?? ttlMs, limits),
    labels: checkLabels(options.labels ?? {}),
    ...(options.settings === undefined ? {} : { settings: readSettings(options.settings) }),
    by: caller.by,
    access: caller.access,
  }
}

export function turnRequest(
  given: GivenInput,
  options: TurnOptions,
  { by, access }: Caller,
  { limits, digest }: { limits: Limits; digest: Digest },
): TurnRequest {
  const { input, blobs } = readParts(given, { limits, digest })
  const json = checkInput(input, limits)
  const { idempotencyKey, waitMs } = options
  const settings = options.settings === undefined ? null : readSettings(options.settings)
  oneOf('onDisconnect', options.onDisconnect ?? 'continue', ['continue', 'cancel'])
  return {
    input,
    blobs,
    chars: json.length,
    key:
      idempotencyKey === undefined
        ? null
        : requestKey(idempotencyKey, digest(digested(json, settings))),
    busy: oneOf('busy', options.busy ?? 'queue', BUSY_POLICIES),
    waitMs: waitMs === undefined ? null : milliseconds('waitMs', waitMs, limits.waitMsMax),
    caller: options,
    by,
    access,
    settings,
    ...(options.onNobody === undefined ? {} : { onNobody: options.onNobody }),
  }
}

/** What a request with the same key must have in common with this one, as `RequestKey` has it. */
export function inputDigest(
  given: GivenInput,
  options: Pick<TurnOptions, 'settings'>,
  context: { limits: Limits; digest: Digest },
): string {
  const json = JSON.stringify(readParts(given, context).input)
  const settings = options.settings === undefined ? null : readSettings(options.settings)
  return context.digest(digested(json, settings))
}

function digested(input: string, settings: Settings | null): string {
  return settings === null ? input : `${input}\n${JSON.stringify(settings)}`
}

/** Null takes a setting back, and is nothing where there is none yet. */
function readSettings(given: SettingsChange): Settings {
  return changedSettings({}, checkSettings(given))
}

function requestKey(key: string, digest: string): { key: string; digest: string } {
  const { idempotencyKeyCharsMax } = STATE_LIMITS
  if (key !== '' && key.length <= idempotencyKeyCharsMax) return { key, digest }
  throw invalid('idempotencyKey', `must have 1 to ${idempotencyKeyCharsMax} characters`)
}

function checkInput(input: Input, limits: Limits): string {
  const text = typeof input === 'object' && input !== null ? input.text : input
  if (typeof text !== 'string')
    throw invalid('input', 'must be a text, or an object with a text or parts')
  const json = JSON.stringify(input)
  if (json.length <= limits.inputBytesMax) return json
  throw new HoldfastError('body_too_large', `input is over ${limits.inputBytesMax} bytes`)
}

const PRINCIPAL_CHARS_MAX = 256

/** Only the three fields, checked: a program may hand over anything. */
export function checkPrincipal({ kind, issuer, id }: Principal): Principal {
  if (!PRINCIPAL_KINDS.includes(kind)) {
    throw invalid('by.kind', `must be one of ${PRINCIPAL_KINDS.join(', ')}`)
  }
  for (const [name, text] of Object.entries({ issuer, id })) {
    if (typeof text === 'string' && text !== '' && text.length <= PRINCIPAL_CHARS_MAX) continue
    throw invalid(`by.${name}`, `must be a text of 1 to ${PRINCIPAL_CHARS_MAX} characters`)
  }
  return { kind, issuer, id }
}

/** The id of a principal or a group, as sessions name them. */
function checkPrincipalId(field: string, id: string): void {
  if (typeof id === 'string' && /^[^\p{Cc}]{1,513}$/u.test(id)) return
  throw invalid(field, 'must be the id of a principal, or @ and the name of a group')
}

export function checkKey(key: string): string {
  if (typeof key !== 'string' || key === '')
    throw invalid('key', 'must be a text that is not empty')
  if (!key.isWellFormed()) throw invalid('key', 'must be well-formed Unicode')
  if (utf8Length(key) <= STATE_LIMITS.keyBytesMax) return key
  throw invalid('key', `must have at most ${STATE_LIMITS.keyBytesMax} bytes of UTF-8`)
}

/** Also for a session from an archive. */
export function checkSessionId(id: string): string {
  if (
    typeof id === 'string' &&
    id.length <= STATE_LIMITS.idCharsMax &&
    /^[\w.:~-]+$/.test(id) &&
    !/^\.\.?$/.test(id)
  ) {
    return id
  }
  throw invalid(
    'id',
    `must have 1 to ${STATE_LIMITS.idCharsMax} of these characters: letters, digits, _ . : ~ -` +
      ', and be neither . nor ..',
  )
}

function checkLabels(labels: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  if (typeof labels !== 'object' || labels === null || Array.isArray(labels)) {
    throw invalid('labels', 'must be an object of texts')
  }
  const entries = Object.entries(labels)
  const { labelsMax, labelCharsMax } = STATE_LIMITS
  if (entries.length > labelsMax) throw invalid('labels', `must be at most ${labelsMax}`)
  for (const [name, value] of entries) {
    if (name !== '' && name.length <= labelCharsMax && isLabelValue(value)) continue
    throw invalid('labels', `must be texts of at most ${labelCharsMax} characters`)
  }
  return labels
}

function isLabelValue(value: unknown): boolean {
  return typeof value === 'string' && value.length <= STATE_LIMITS.labelCharsMax
}

export type LinkOptions = {
  readonly scopes: readonly LinkScope[]
  /** Milliseconds since 1970. */
  readonly expiresAt?: number | null
  readonly uses?: number | null
}

/** At least one scope, an end in the future or none, a count of uses or none. */
export function checkLink(options: LinkOptions): LinkOptions {
  const { scopes, expiresAt = null, uses = null } = options
  checkScopes(scopes)
  if (expiresAt !== null) milliseconds('expiresAt', expiresAt, Number.MAX_SAFE_INTEGER)
  if (uses !== null && (!Number.isInteger(uses) || uses < 1)) {
    throw invalid('uses', 'must be a whole number from 1 on, or null')
  }
  return options
}

/** At least one scope, and the id of a principal or a group. */
export function checkShare({ with: principal, scopes }: Share): Share {
  checkPrincipalId('with', principal)
  checkScopes(scopes)
  return { with: principal, scopes: [...new Set(scopes)] }
}

function checkScopes(scopes: readonly LinkScope[]): void {
  if (!Array.isArray(scopes) || scopes.length === 0) throw invalid('scopes', 'must not be empty')
  for (const scope of scopes) oneOf('scopes', scope, LINK_SCOPES)
}

function timeToLive(ttlMs: number, limits: Limits): number {
  if (ttlMs === 0) throw invalid('ttlMs', 'must be at least 1, or null for no end')
  return milliseconds('ttlMs', ttlMs, limits.ttlMsMax)
}

function milliseconds(field: string, value: number, max: number): number {
  if (Number.isInteger(value) && value >= 0 && value <= max) return value
  throw invalid(field, `must be a whole number from 0 to ${max}`)
}

function oneOf<Value extends string>(
  field: string,
  value: string,
  values: readonly Value[],
): Value {
  const found = values.find((candidate) => candidate === value)
  if (found !== undefined) return found
  throw invalid(field, `must be one of ${values.join(', ')}`)
}

function utf8Length(text: string): number {
  let bytes = 0
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0
    bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4
  }
  return bytes
}
