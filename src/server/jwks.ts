/**
 * The public keys of one issuer of JSON Web Tokens.
 *
 * 1. One request for them at a time, and none within the cool-down of the one before: neither many
 *    tokens nor tokens with invented key ids make more.
 * 2. Keys that were read stay while the issuer cannot be reached, for a day.
 * 3. They are read again every ten minutes, so that a key that the issuer gave up ends its tokens.
 */
import { calculateJwkThumbprint, createLocalJWKSet, errors, type CryptoKey } from 'jose'
import type { CompactJWSHeaderParameters, FlattenedJWSInput, JSONWebKeySet } from 'jose'
import { HoldfastError, type Diagnose } from '../core/index.ts'
import { isRecord } from '../schema/contract.ts'
import { isSafeUrl, type JwtIssuer } from '../schema/jwt.ts'
import type { JwtLimits } from './limits.ts'

type FindKey = ReturnType<typeof createLocalJWKSet>

export class IssuerKeys {
  /** How often the keys were replaced by others. */
  changes = 0
  readonly #issuer: JwtIssuer
  readonly #limits: JwtLimits
  readonly #diagnose: Diagnose
  readonly #closing = new AbortController()
  readonly #timer: NodeJS.Timeout
  #find: FindKey | null = null
  #thumbprints: ReadonlySet<string> = new Set()
  #reading: Promise<void> | null = null
  /** By `performance.now()`: the end of the last attempt, and the last that succeeded. */
  #triedAt = -Infinity
  #readAt = -Infinity
  /** Of the last attempt: each is reported once. */
  #problem: string | null = null

  constructor(issuer: JwtIssuer, limits: JwtLimits, diagnose: Diagnose) {
    this.#issuer = issuer
    this.#limits = limits
    this.#diagnose = diagnose
    this.#timer = setInterval(() => void this.#refresh(), limits.keysCheckMs).unref()
    // So that the first caller does not wait for them.
    void this.#refresh()
  }

  /** Whether a key of this thumbprint is still one of the issuer's. */
  has(thumbprint: string): boolean {
    return this.#thumbprints.has(thumbprint)
  }

  /** The key of a token. Throws `auth_unavailable` without any keys, jose's error without this. */
  async keyOf(header: CompactJWSHeaderParameters, token: FlattenedJWSInput): Promise<CryptoKey> {
    if (this.#find === null) await this.#read()
    if (this.#find === null) throw this.#unavailable()
    try {
      return await this.#find(header, token)
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey)) throw error
      // Perhaps a new key.
      await this.#read()
      if (this.#find === null) throw this.#unavailable()
      return this.#find(header, token)
    }
  }

  close(): void {
    clearInterval(this.#timer)
    this.#closing.abort()
  }

  #unavailable(): HoldfastError {
    const message = 'the keys of the issuer of this token cannot be read: try again later'
    const passedMs = performance.now() - this.#triedAt
    const retryAfterMs = Math.max(1, Math.ceil(this.#limits.cooldownMs - passedMs))
    return new HoldfastError('auth_unavailable', message, { retryAfterMs })
  }

  async #refresh(): Promise<void> {
    await this.#read()
    if (this.#find === null || performance.now() - this.#readAt < this.#limits.keptMs) return
    this.#find = null
    this.#thumbprints = new Set()
    this.changes += 1
  }

  /** Reads the keys, unless that was tried just now. Never throws: a problem is reported. */
  #read(): Promise<void> {
    if (this.#reading !== null) return this.#reading
    const isCooling = performance.now() - this.#triedAt < this.#limits.cooldownMs
    if (isCooling || this.#closing.signal.aborted) return Promise.resolve()
    this.#reading = this.#readNow()
      .catch((error: unknown) => this.#failed(problemOf(error)))
      .finally(() => {
        this.#triedAt = performance.now()
        this.#reading = null
      })
    return this.#reading
  }

  async #readNow(): Promise<void> {
    const keys = (await this.#fetchJson(await this.#address())) as JSONWebKeySet
    // Throws if these are no keys.
    const find = createLocalJWKSet(keys)
    const thumbprints = new Set(await Promise.all(keys.keys.map(thumbprintOf)))
    const isSame =
      thumbprints.size === this.#thumbprints.size &&
      [...thumbprints].every((thumbprint) => this.#thumbprints.has(thumbprint))
    this.#find = find
    this.#thumbprints = thumbprints
    this.#readAt = performance.now()
    const wasGood = this.#problem === null
    this.#problem = null
    if (isSame && wasGood) return
    this.changes += 1
    const facts = { issuer: this.#issuer.issuer, keys: keys.keys.length }
    this.#diagnose('jwks_read', 'the keys of an issuer were read', facts)
  }

  /** Where the keys are: as configured, or as the issuer says (OpenID Connect Discovery 1.0). */
  async #address(): Promise<string> {
    const { issuer, jwks } = this.#issuer
    if (jwks !== undefined) return jwks
    const path = '/.well-known/openid-configuration'
    return discoveredKeys(issuer, await this.#fetchJson(`${issuer.replace(/\/$/, '')}${path}`))
  }

  async #fetchJson(url: string): Promise<unknown> {
    const { fetchMs, keysBytesMax } = this.#limits
    const signal = AbortSignal.any([this.#closing.signal, AbortSignal.timeout(fetchMs)])
    const headers = { accept: 'application/json' }
    // A redirect could lead anywhere.
    const response = await fetch(url, { headers, signal, redirect: 'error' })
    const chunks: Uint8Array[] = []
    let bytes = 0
    for await (const chunk of response.body ?? []) {
      chunks.push(chunk)
      if ((bytes += chunk.length) > keysBytesMax) throw new Error('its answer is too large')
    }
    if (response.status !== 200) throw new Error(`it answered with status ${response.status}`)
    return JSON.parse(Buffer.concat(chunks).toString()) as unknown
  }

  #failed(problem: string): void {
    if (problem === this.#problem || this.#closing.signal.aborted) return
    this.#problem = problem
    const kept = this.#find === null ? 'its tokens are refused' : 'the keys before stay for now'
    const message = `the keys of an issuer cannot be read: ${kept}`
    this.#diagnose('jwks_unavailable', message, { issuer: this.#issuer.issuer, problem })
  }
}

/** Where the keys are, by the document of this issuer. Throws if that cannot be used. */
export function discoveredKeys(issuer: string, document: unknown): string {
  const { issuer: named, jwks_uri: address } = isRecord(document) ? document : {}
  if (named !== issuer) throw new Error('its discovery document is of another issuer')
  const isText = typeof address === 'string' && isSafeUrl(address)
  // An issuer elsewhere may not make this server ask programs of this machine.
  if (isText && (address.startsWith('https:') || issuer.startsWith('http:'))) return address
  throw new Error('its discovery document has no jwks_uri that can be used')
}

/** One that cannot be computed is of a key that cannot be used either. */
function thumbprintOf(key: JSONWebKeySet['keys'][number]): Promise<string> {
  return calculateJwkThumbprint(key).catch(() => '')
}

/** Of an error of `fetch` the cause says more. */
function problemOf(error: unknown): string {
  const { name, message, cause } = error as Error & { cause?: NodeJS.ErrnoException }
  if (name === 'TimeoutError') return 'it does not answer'
  if (error instanceof SyntaxError) return 'its answer is no JSON'
  return cause?.code ?? cause?.message ?? message
}
