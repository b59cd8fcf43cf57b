/**
 * JSON Web Tokens of other issuers as bearer tokens (RFC 7519, OpenID Connect).
 *
 * 1. A token is verified once, in `prepare`: its signature by a key of its issuer, its issuer, its
 *    audience and its time. What it says is then known by its digest, so that all checks of
 *    requests stay synchronous. The token itself is not kept.
 * 2. It is good until it expires, its key is given up, or many others were used since.
 * 3. Only signatures with a public key are accepted, never `none` or one with a shared secret.
 * 4. Of an issuer that is not configured, and with anything else, the other tokens decide.
 */
import { isDeepStrictEqual } from 'node:util'
import { calculateJwkThumbprint, decodeJwt, errors, jwtVerify, type JWTPayload } from 'jose'
import {
  diagnoseTo,
  HoldfastError,
  limitsFrom,
  type Diagnose,
  type DiagnosticListener,
  type Principal,
} from '../core/index.ts'
import { groupId, SCOPES, withIncluded, type Access, type Scope } from '../core/access.ts'
import { checkJwtIssuers, CLOCK_SKEW_MS, JWT_ALGORITHMS, type JwtIssuer } from '../schema/jwt.ts'
import { IssuerKeys } from './jwks.ts'
import { JWT_LIMITS, type JwtLimits } from './limits.ts'
import { hasSeveralPrincipals, tokenSha256, type TokenAccess, type TokenSource } from './tokens.ts'

export type JwtOptions = {
  /** Tokens besides those of the issuers, for example of a file. They are closed with these. */
  readonly tokens?: TokenSource | undefined
  readonly onDiagnostic?: DiagnosticListener
  readonly limits?: Partial<JwtLimits>
}

/** An issuer, with its keys. */
type Issuer = { readonly options: JwtIssuer; readonly keys: IssuerKeys }

/** What a token that was verified says. */
type VerifiedToken = {
  readonly keys: IssuerKeys
  /** Of the key that it is signed with. */
  readonly thumbprint: string
  /** Milliseconds since 1970, with the clock skew. */
  readonly expiresAt: number
  readonly payload: JWTPayload
  readonly access: JwtAccess
}

type JwtAccess = TokenAccess & Pick<Access, 'scopes'> & { readonly by: Principal }

/** Accepts tokens of these issuers, until it is closed. Throws if the issuers cannot be used. */
export function openJwtTokens(
  issuers: readonly JwtIssuer[],
  { tokens, onDiagnostic = () => undefined, limits = {} }: JwtOptions = {},
): JwtTokens {
  const all = limitsFrom(JWT_LIMITS, limits, 'limits')
  return new JwtTokens(checkJwtIssuers(issuers), tokens ?? null, all, diagnoseTo(onDiagnostic))
}

export class JwtTokens implements TokenSource {
  #issuers: ReadonlyMap<string, Issuer> = new Map()
  readonly #others: TokenSource | null
  readonly #limits: JwtLimits
  readonly #diagnose: Diagnose
  /** By the token's digest; the one that was not used for longest is first. */
  readonly #verified = new Map<string, VerifiedToken>()
  #revision = 0
  /** What the revision was made from at the last look. */
  #seen = ''

  constructor(
    issuers: readonly JwtIssuer[],
    others: TokenSource | null,
    limits: JwtLimits,
    diagnose: Diagnose,
  ) {
    this.#others = others
    this.#limits = limits
    this.#diagnose = diagnose
    this.replaceIssuers(issuers)
  }

  /**
   * From now on these count. Keys that were read stay, and so do tokens that were verified as far
   * as they are good under the new options; those of an issuer that is gone end.
   */
  replaceIssuers(issuers: readonly JwtIssuer[]): void {
    const before = this.#issuers
    this.#issuers = new Map(
      issuers.map((options) => {
        const known = before.get(options.issuer)
        const isSame = known?.options.jwks === options.jwks
        const keys = isSame ? known?.keys : undefined
        return [
          options.issuer,
          { options, keys: keys ?? new IssuerKeys(options, this.#limits, this.#diagnose) },
        ]
      }),
    )
    const now = new Set([...this.#issuers.values()].map(({ keys }) => keys))
    for (const { keys } of before.values()) if (!now.has(keys)) keys.close()
    for (const [digest, verified] of this.#verified) {
      const { issuer } = verified.access.by
      const kept = keptUnder(verified, before.get(issuer), this.#issuers.get(issuer))
      if (kept === null) this.#verified.delete(digest)
      else this.#verified.set(digest, kept)
    }
    this.#revision += 1
  }

  prepare(token: string, now: number): Promise<void> | null {
    const issuer = this.#known(token) === null ? this.#issuerOf(token) : null
    if (issuer !== null) return this.#verify(token, issuer, now)
    return this.#others?.prepare?.(token, now) ?? null
  }

  scopesOf(token: string, now: number): readonly Scope[] | null {
    const known = this.#known(token)
    if (known === null) return this.#others?.scopesOf(token, now) ?? null
    return now < known.expiresAt ? known.access.scopes : null
  }

  principalOf(token: string): Principal | null {
    return this.#known(token)?.access.by ?? this.#others?.principalOf?.(token) ?? null
  }

  accessOf(token: string, now: number): TokenAccess | null {
    const known = this.#known(token)
    if (known === null) return this.#others?.accessOf?.(token, now) ?? null
    return now < known.expiresAt ? known.access : null
  }

  /** Forgets what has expired. */
  revision(now: number): number {
    for (const [digest, { expiresAt }] of this.#verified) {
      if (now < expiresAt) continue
      this.#verified.delete(digest)
      this.#revision += 1
    }
    const changes = [...this.#issuers.values()].map(({ keys }) => keys.changes)
    const seen = [...changes, this.#others?.revision?.(now)].join(' ')
    // Other tokens that cannot say whether they have changed may have.
    const isBlind = this.#others !== null && this.#others.revision === undefined
    if (seen !== this.#seen || isBlind) this.#revision += 1
    this.#seen = seen
    return this.#revision
  }

  reportTo(listener: DiagnosticListener): void {
    this.#others?.reportTo?.(listener)
  }

  /** Those of an issuer may be any number. */
  hasSeveralPrincipals(): boolean {
    return this.#issuers.size > 0 || hasSeveralPrincipals(this.#others)
  }

  close(): void {
    for (const { keys } of this.#issuers.values()) keys.close()
    this.#others?.close()
  }

  /** Null: it is no such token, or was not verified, or is not good any more. */
  #known(token: string): VerifiedToken | null {
    // Most other tokens have no parts: they cost nothing here.
    if (!token.includes('.')) return null
    const digest = tokenSha256(token)
    const known = this.#verified.get(digest)
    if (known === undefined) return null
    this.#verified.delete(digest)
    if (!known.keys.has(known.thumbprint)) return null
    this.#verified.set(digest, known)
    return known
  }

  /** Of a token whose signature is not checked yet; null: it has none that is configured. */
  #issuerOf(token: string): Issuer | null {
    if (!/^[\w-]+\.[\w-]+\.[\w-]*$/.test(token)) return null
    try {
      return this.#issuers.get(decodeJwt(token).iss ?? '') ?? null
    } catch {
      // Three parts, but no JWT.
      return null
    }
  }

  /** Throws only if it cannot be verified now. One that is not good stays unknown. */
  async #verify(token: string, { options, keys }: Issuer, now: number): Promise<void> {
    const { issuer, audience, algorithms = JWT_ALGORITHMS, clockSkewMs = CLOCK_SKEW_MS } = options
    try {
      const { payload, key } = await jwtVerify(token, (...parts) => keys.keyOf(...parts), {
        ...{ issuer, audience, algorithms: [...algorithms], requiredClaims: ['exp'] },
        ...{ clockTolerance: clockSkewMs / 1_000, currentDate: new Date(now) },
      })
      const { exp = 0 } = payload
      this.#add(tokenSha256(token), {
        keys,
        thumbprint: await calculateJwkThumbprint(key),
        expiresAt: exp * 1_000 + clockSkewMs,
        payload,
        access: accessFrom(payload, options),
      })
    } catch (error) {
      if (error instanceof HoldfastError && error.code === 'auth_unavailable') throw error
      const message = 'a token of an issuer is not good'
      this.#diagnose('jwt_refused', message, { reason: reasonOf(error), issuer })
    }
  }

  #add(digest: string, verified: VerifiedToken): void {
    this.#verified.set(digest, verified)
    if (this.#verified.size <= this.#limits.verifiedMax) return
    const [oldest = ''] = this.#verified.keys()
    this.#verified.delete(oldest)
  }
}

/** The same token under new options of its issuer; null: it has to be verified again. */
function keptUnder(
  verified: VerifiedToken,
  before: Issuer | undefined,
  now: Issuer | undefined,
): VerifiedToken | null {
  if (before === undefined || now === undefined || now.keys !== verified.keys) return null
  if (isDeepStrictEqual(before.options, now.options)) return verified
  const signed = ({ audience, algorithms, clockSkewMs }: JwtIssuer) => {
    return { audience, algorithms, clockSkewMs }
  }
  if (!isDeepStrictEqual(signed(before.options), signed(now.options))) return null
  try {
    return { ...verified, access: accessFrom(verified.payload, now.options) }
  } catch {
    // A claim that cannot be used: verifying it again reports that.
    return null
  }
}

/** A claim that cannot be used. */
class ClaimError extends Error {
  readonly claim: string

  constructor(claim: string) {
    super(`the claim ${claim} cannot be used`)
    this.claim = claim
  }
}

/** Whose token it is, and what it may do. */
function accessFrom(payload: JWTPayload, options: JwtIssuer): JwtAccess {
  const { issuer, claims = {}, scopes = [], scopeMap } = options
  const { id: idClaim = 'sub' } = claims
  const id = payload[idClaim]
  if (!isName(id)) throw new ClaimError('id')
  const groups = claims.groups === undefined ? [] : namesIn(payload[claims.groups])
  if (!groups.every(isName) || groups.length > NAMES_MAX) throw new ClaimError('groups')
  const words = claims.scopes === undefined ? [] : wordsIn(payload[claims.scopes])
  const named = words.flatMap((word) => scopesOfWord(word, scopeMap))
  const granted = SCOPES.filter((scope) => scopes.includes(scope) || named.includes(scope))
  return {
    by: { kind: 'jwt', issuer, id },
    principal: `${issuer} ${id}`,
    groups: groups.map(groupId),
    scopes: withIncluded(granted),
    ...boundsOf(payload, options),
  }
}

/** What limits a token fails closed: a claim that cannot be read makes it no good. */
function boundsOf(
  payload: JWTPayload,
  options: JwtIssuer,
): Pick<Access, 'agents' | 'browsers' | 'quotas'> {
  const agents = listOf('agents', payload, options)
  const browsers = listOf('browsers', payload, options)
  const { limits } = options
  return {
    ...(agents === undefined ? {} : { agents }),
    ...(browsers === undefined ? {} : { browsers }),
    ...(limits === undefined ? {} : { quotas: limits }),
  }
}

/** What the claim names, and the issuer's own list too if there is one; undefined: no limit. */
function listOf(
  name: 'agents' | 'browsers',
  payload: JWTPayload,
  { claims = {}, [name]: allowed }: JwtIssuer,
): readonly string[] | undefined {
  const claim = claims[name]
  if (claim === undefined) return allowed
  const value = payload[claim] ?? []
  const names: readonly unknown[] = Array.isArray(value) ? value : [value]
  if (!names.every(isName) || names.length > NAMES_MAX) throw new ClaimError(name)
  return allowed === undefined ? names : names.filter((one) => allowed.includes(one))
}

function scopesOfWord(word: string, scopeMap: JwtIssuer['scopeMap']): readonly Scope[] {
  if (scopeMap === undefined) return SCOPES.filter((scope) => scope === word)
  return Object.hasOwn(scopeMap, word) ? (scopeMap[word] ?? []) : []
}

/** In one claim. */
const NAMES_MAX = 256

/** Not empty, not long, and on one line wherever it is shown. */
function isName(value: unknown): value is string {
  return typeof value === 'string' && /^[^\p{C}\p{Zl}\p{Zp}]{1,256}$/u.test(value)
}

/** What a claim says that may have several values, as far as they are texts. */
function namesIn(claim: unknown): readonly string[] {
  const values: readonly unknown[] = Array.isArray(claim) ? claim : [claim]
  return values.filter((value) => typeof value === 'string')
}

function wordsIn(claim: unknown): readonly string[] {
  return namesIn(claim).flatMap((text) => text.split(/\s+/))
}

/** Why a token is refused, by a word that its sender does not choose. */
function reasonOf(error: unknown): string {
  if (error instanceof ClaimError) return error.claim
  if (error instanceof errors.JWTExpired) return 'expired'
  if (error instanceof errors.JWTClaimValidationFailed) return error.claim
  return error instanceof errors.JOSEError ? error.code : 'unforeseen'
}
