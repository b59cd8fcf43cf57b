/**
 * Bearer tokens, from a file that holds only their digests:
 * `{"version": 3, "tokens": [{"name", "id", "sha256", "scopes", "principal"?, "groups"?, "agents"?,
 * "browsers"?, "limits"?, "expiresAt"?}]}`. Version 1, which 0.1.0 has, knows neither `version` nor
 * `id`; version 2 has no `principal` and what follows it.
 *
 * 1. No message has a token or a digest in it: an error names the place in the file only.
 * 2. A token is looked up by its digest: the time that takes says nothing about any token. One that
 *    was good before is found by itself: of other texts only a random hash is compared.
 * 3. `principal` is whose token it is: several tokens may be one principal's. Logs know its holder
 *    by it, or without it by `id`, which is opaque and kept as long as the token is. The sessions
 *    of tokens without a principal belong to the default one.
 * 4. A new version of the file counts as a whole or not at all: the one before stays in force.
 */
import { hash, randomBytes } from 'node:crypto'
import { readFile, stat } from 'node:fs/promises'
import {
  checkQuotas,
  diagnoseToAll,
  HoldfastError,
  ISSUER,
  type DiagnosticListener,
  type Principal,
  type Quotas,
} from '../core/index.ts'
import {
  DEFAULT_PRINCIPAL,
  groupId,
  SCOPES,
  withIncluded,
  type Access,
  type Scope,
} from '../core/access.ts'
import { isRecord } from '../schema/contract.ts'
import { SERVER_LIMITS } from './limits.ts'

export type TokenEntry = {
  readonly name: string
  /** Derived from the digest where the file has none. */
  readonly id: string
  /** The digest of the whole token, in hexadecimal digits. */
  readonly sha256: string
  readonly scopes: readonly Scope[]
  readonly principal?: string
  /** The names of its groups. */
  readonly groups?: readonly string[]
  /** The agents and browsers that it may use; without it, all. */
  readonly agents?: readonly string[]
  readonly browsers?: readonly string[]
  /** How much its principal may use. */
  readonly limits?: Quotas
  /** Milliseconds since 1970. */
  readonly expiresAt?: number
}

/**
 * What a token says of its holder, with its scopes unless `scopesOf` says them. The object never
 * changes: what was made from it is used again.
 */
export type TokenAccess = Partial<Omit<Access, 'session'>> & {
  /** As `principalOf` says; a source that knows both looks the token up once. */
  readonly by?: Principal
}

export interface TokenSource {
  /**
   * Called before a token is checked: what has to be waited for so that the methods below know it;
   * null if nothing has. Rejects with `auth_unavailable` if it cannot be checked now.
   */
  prepare?(token: string, now: number): Promise<void> | null
  /**
   * All scopes of this token, included ones too; null if it is unknown or expired. Not asked for a
   * token whose `accessOf` has scopes.
   */
  scopesOf(token: string, now: number): readonly Scope[] | null
  /**
   * The holder that logs name; null if it is unknown. Without it, the holder of each token is
   * known by a digest of that token's digest.
   */
  principalOf?(token: string): Principal | null
  /**
   * Whose sessions it sees, and what it may do with them; null if it is unknown or expired. Without
   * this method, those of the default principal.
   */
  accessOf?(token: string, now: number): TokenAccess | null
  /** Called with a further listener for what it reports. */
  reportTo?(listener: DiagnosticListener): void
  /** See the function of this name. */
  hasSeveralPrincipals?(): boolean
  /**
   * Changes whenever a token may have lost what it was good for: what was let in by it then ends
   * within a second. Without it, that takes up to 15 s.
   */
  revision?(now: number): number
  close(): void
}

/**
 * Whether the server may have several principals, now: what they share is then kept apart, also
 * from the machine. A source that names principals, but cannot tell how many, counts as several.
 */
export function hasSeveralPrincipals(tokens: TokenSource | null | undefined): boolean {
  if (tokens === null || tokens === undefined) return false
  return tokens.hasSeveralPrincipals?.() ?? tokens.accessOf !== undefined
}

export const TOKENS_VERSION = 3

const LISTS = ['groups', 'agents', 'browsers'] as const
const FIELDS: readonly string[] = [
  ...['name', 'id', 'sha256', 'scopes', 'principal', ...LISTS, 'limits', 'expiresAt'],
]

/** A fresh token: 256 random bits, with a prefix that scanners for secrets find. */
export function mintToken(): string {
  return `hf_${randomBytes(32).toString('base64url')}`
}

export function mintTokenId(): string {
  return randomBytes(16).toString('base64url')
}

/** The id of a holder that has none: one-way, so that nothing of the token or its digest shows. */
function derivedId(digest: string): string {
  const text = `holdfast token id\n${digest.toLowerCase()}`
  return hash('sha256', text, 'buffer').toString('base64url', 0, 16)
}

/** The holder of a token whose source does not name one. */
export function principalOfToken(token: string): Principal {
  return { kind: 'token', issuer: ISSUER, id: derivedId(tokenSha256(token)) }
}

export function tokenSha256(token: string): string {
  return hash('sha256', token)
}

/** Reads the file's text; throws an `Error` that says what is wrong, and shows nothing of it. */
export function parseTokens(text: string): readonly TokenEntry[] {
  let file: unknown
  try {
    file = JSON.parse(text)
  } catch {
    // The error's own message quotes what it could not read.
    throw new Error('it is not JSON')
  }
  if (!isRecord(file)) throw new Error('it must be a JSON object')
  const { version = 1, tokens } = file
  if (!Number.isInteger(version) || Number(version) < 1 || Number(version) > TOKENS_VERSION) {
    throw new Error(`it is not of version 1 to ${TOKENS_VERSION}: a newer Holdfast reads it`)
  }
  if (!Array.isArray(tokens)) throw new Error('it must have a list "tokens"')
  const { tokensMax } = SERVER_LIMITS
  if (tokens.length > tokensMax) throw new Error(`it has more than ${tokensMax} tokens`)
  const entries = tokens.map((value: unknown, index) => entryOf(value, `tokens[${index}]`))
  const names = new Set(entries.map(({ name }) => name))
  if (names.size < entries.length) throw new Error('two of its tokens have the same name')
  return entries
}

function entryOf(value: unknown, place: string): TokenEntry {
  if (!isRecord(value)) throw new Error(`${place} must be an object`)
  if (Object.keys(value).some((field) => !FIELDS.includes(field))) {
    throw new Error(`${place} has an unknown field; there are: ${FIELDS.join(', ')}`)
  }
  const { name, id, sha256: digest, scopes, principal, limits, expiresAt } = value
  if (!isTokenName(name)) throw new Error(`${place}.name ${NAME_RULE}`)
  if (typeof digest !== 'string' || !/^[\da-f]{64}$/i.test(digest)) {
    throw new Error(`${place}.sha256 must be 64 hexadecimal digits`)
  }
  for (const [field, text] of Object.entries({ id, principal })) {
    if (text !== undefined && !isTokenId(text)) throw new Error(`${place}.${field} ${ID_RULE}`)
  }
  for (const field of LISTS) {
    const names = value[field]
    if (names === undefined || (Array.isArray(names) && names.every(isTokenName))) continue
    throw new Error(`${place}.${field} must be a list of names, each of which ${NAME_RULE}`)
  }
  if (!Array.isArray(scopes) || scopes.length === 0 || !scopes.every(isScope)) {
    throw new Error(`${place}.scopes must be a list of ${SCOPES.join(', ')}`)
  }
  if (limits !== undefined) checkQuotas(limits as Quotas, `${place}.limits`)
  if (expiresAt !== undefined && !Number.isSafeInteger(expiresAt)) {
    throw new Error(`${place}.expiresAt must be milliseconds since 1970`)
  }
  return { id: derivedId(digest), ...value } as TokenEntry
}

export const NAME_RULE = 'must have 1 to 64 of these characters: letters, digits, _ . @ : -'
export const ID_RULE = 'must have 1 to 128 of these characters: letters, digits, _ . : ~ -'

export function isTokenName(value: unknown): value is string {
  return typeof value === 'string' && /^[\w.@:-]{1,64}$/.test(value)
}

export function isTokenId(value: unknown): value is string {
  return typeof value === 'string' && /^[\w.:~-]{1,128}$/.test(value)
}

export function isScope(value: unknown): value is Scope {
  return SCOPES.some((scope) => scope === value)
}

/** What an entry grants, made once: every request with its token gets the same objects. */
type KnownToken = {
  readonly expiresAt: number
  readonly access: TokenAccess & Pick<Access, 'scopes'>
}

function knownToken(entry: TokenEntry): KnownToken {
  const { id, principal, groups = [], agents, browsers, limits, expiresAt = Infinity } = entry
  const access = {
    by: { kind: 'token', issuer: ISSUER, id: principal ?? id },
    principal: principal ?? DEFAULT_PRINCIPAL,
    groups: groups.map(groupId),
    scopes: withIncluded(entry.scopes),
    ...(agents === undefined ? {} : { agents }),
    ...(browsers === undefined ? {} : { browsers }),
    ...(limits === undefined ? {} : { quotas: limits }),
  } as const
  return { expiresAt, access }
}

export class TokenList {
  protected entries: readonly TokenEntry[] = []
  /**
   * By the token's digest, of which a client cannot choose any part: how long a search takes says
   * nothing about a token.
   */
  #tokens: ReadonlyMap<string, readonly KnownToken[]> = new Map()
  /** Those of them that were shown, by themselves: a digest costs more than all other checks. */
  readonly #shown = new Map<string, readonly KnownToken[]>()

  constructor(entries: readonly TokenEntry[]) {
    this.replace(entries)
  }

  protected replace(entries: readonly TokenEntry[]): void {
    this.entries = entries
    const tokens = new Map<string, KnownToken[]>()
    for (const entry of entries) {
      const digest = entry.sha256.toLowerCase()
      tokens.set(digest, [...(tokens.get(digest) ?? []), knownToken(entry)])
    }
    this.#tokens = tokens
    this.#shown.clear()
  }

  accessOf(token: string, now: number): TokenAccess | null {
    return this.#validOf(token, now)?.access ?? null
  }

  principalOf(token: string): Principal | null {
    return this.accessOf(token, Number.NEGATIVE_INFINITY)?.by ?? null
  }

  /** Expired tokens count too: what their principals left behind is still there. */
  hasSeveralPrincipals(): boolean {
    return new Set(this.entries.map(({ principal = DEFAULT_PRINCIPAL }) => principal)).size > 1
  }

  scopesOf(token: string, now: number): readonly Scope[] | null {
    return this.#validOf(token, now)?.access.scopes ?? null
  }

  #validOf(token: string, now: number): KnownToken | undefined {
    const known = this.#shown.get(token) ?? this.#show(token)
    return known?.findLast(({ expiresAt }) => now < expiresAt)
  }

  #show(token: string): readonly KnownToken[] | undefined {
    const known = this.#tokens.get(tokenSha256(token))
    if (known !== undefined) this.#shown.set(token, known)
    return known
  }

  protected expired(now: number): number {
    return this.entries.filter(({ expiresAt = Infinity }) => expiresAt <= now).length
  }
}

/** Opens a tokens file and follows its changes until it is closed. Throws if it cannot be used. */
export async function openTokenFile(
  path: string,
  onDiagnostic: DiagnosticListener = () => undefined,
): Promise<TokenFile> {
  const stamp = await stampOf(path)
  if (stamp === null) throw unusable(path, 'it is not there')
  try {
    return new TokenFile(path, onDiagnostic, stamp, await readTokens(path))
  } catch (error) {
    throw unusable(path, problemOf(error))
  }
}

function unusable(path: string, problem: string): HoldfastError {
  return new HoldfastError('invalid_field', `the tokens file ${path} cannot be used: ${problem}`)
}

export class TokenFile extends TokenList implements TokenSource {
  readonly #path: string
  readonly #listeners = new Set<DiagnosticListener>()
  readonly #diagnose = diagnoseToAll(this.#listeners)
  readonly #check: NodeJS.Timeout
  /** At the last look. */
  #seen: string | null = null
  /** Of the version that was read last, valid or not: each is reported once. */
  #stamp: string | null
  /** How often it was read again. */
  #versions = 0
  #isClosed = false

  constructor(
    path: string,
    listener: DiagnosticListener,
    stamp: string,
    entries: readonly TokenEntry[],
  ) {
    super(entries)
    this.#path = path
    this.#listeners.add(listener)
    this.#stamp = stamp
    // Not every file system reports changes.
    this.#check = setInterval(() => void this.#refresh(), SERVER_LIMITS.tokensCheckMs).unref()
  }

  revision(now: number): number {
    return this.#versions * (SERVER_LIMITS.tokensMax + 1) + this.expired(now)
  }

  reportTo(listener: DiagnosticListener): void {
    this.#listeners.add(listener)
  }

  close(): void {
    this.#isClosed = true
    clearInterval(this.#check)
  }

  /** Reads it now, if it has changed: its writer is done. */
  async readAgain(): Promise<void> {
    this.#seen = await stampOf(this.#path)
    await this.#refresh()
  }

  async #refresh(): Promise<void> {
    const stamp = await stampOf(this.#path)
    // Its writer may not be done with a version that was not there at the last look.
    const isSettled = stamp === this.#seen
    this.#seen = stamp
    if (this.#isClosed || !isSettled || stamp === this.#stamp) return
    this.#stamp = stamp
    try {
      if (stamp === null) throw new Error('it is not there')
      const entries = await readTokens(this.#path)
      // Another version came meanwhile: that one counts.
      if (this.#isClosed || stamp !== this.#stamp) return
      const facts = { file: this.#path, ...changesBetween(this.entries, entries) }
      this.replace(entries)
      this.#versions += 1
      this.#diagnose('tokens_read', 'the tokens file was read again', facts)
    } catch (error) {
      const message = 'the tokens file cannot be used, the tokens before stay'
      this.#diagnose('tokens_unusable', message, { file: this.#path, problem: problemOf(error) })
      // It could not be read, for want of a descriptor perhaps: the next look tries again.
      if (stamp !== null && (error as NodeJS.ErrnoException).code !== undefined) this.#stamp = null
    }
  }
}

/** The names of the tokens that were added, removed or changed. */
function changesBetween(before: readonly TokenEntry[], after: readonly TokenEntry[]) {
  const textIn = (entries: readonly TokenEntry[], name: string): string | undefined =>
    JSON.stringify(entries.find((entry) => entry.name === name))
  const namesOf = (entries: readonly TokenEntry[], isIt: (name: string) => boolean): string =>
    entries.flatMap(({ name }) => (isIt(name) ? [name] : [])).join(', ')
  return {
    added: namesOf(after, (name) => textIn(before, name) === undefined),
    removed: namesOf(before, (name) => textIn(after, name) === undefined),
    changed: namesOf(after, (name) => {
      const old = textIn(before, name)
      return old !== undefined && old !== textIn(after, name)
    }),
  }
}

/** Differs between any two versions of a file; null if there is none. */
export async function stampOf(path: string): Promise<string | null> {
  try {
    const { ino, size, mtimeNs, ctimeNs } = await stat(path, { bigint: true })
    return [ino, size, mtimeNs, ctimeNs].join(' ')
  } catch {
    return null
  }
}

async function readTokens(path: string): Promise<readonly TokenEntry[]> {
  const { mode, size } = await stat(path)
  if (process.platform !== 'win32' && (mode & 0o022) !== 0) {
    throw new Error('others may write to it (chmod 600 helps)')
  }
  if (size > SERVER_LIMITS.tokensBytesMax) throw new Error('it is too large')
  return parseTokens(await readFile(path, 'utf8'))
}

/** What the system says has a code, and a message with the path once more. */
function problemOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException
  return code ?? message
}
