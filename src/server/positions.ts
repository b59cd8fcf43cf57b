/**
 * Positions of the change feed and cursors of lists count the sessions of all principals. A caller
 * that does not see all of them gets them encrypted: they are good to go on from, and tell nothing.
 * A position stays a number of at most 15 digits (a Feistel network over 48 bits). One that was not
 * given out is, as good as always, beyond the feed's end.
 */
import { createCipheriv, createDecipheriv, createHmac, randomBytes } from 'node:crypto'
import { SCOPES } from '../core/access.ts'
import { HoldfastError, invalid, LOCAL, type Holdfast } from '../core/index.ts'
import type { HiddenPositions } from '../doors/exchange.ts'

const HALF_BITS = 24
const HALF = 2 ** HALF_BITS
const ROUNDS = [0, 1, 2, 3, 4, 5, 6, 7] as const
const ALGORITHM = 'aes-256-gcm'
const [NONCE_BYTES, TAG_BYTES] = [12, 16]
/** Cursors are as long as this, so that their length does not tell either. */
const CURSOR_CHARS = 24

export class PositionCipher implements HiddenPositions {
  readonly #readKey: () => Promise<Buffer>
  #key: Promise<Buffer> | null = null

  /** `readKey`: 32 bytes, the same on all nodes and after a restart; asked for when needed. */
  constructor(readKey: () => Promise<Buffer>) {
    this.#readKey = readKey
  }

  async hide(position: number): Promise<number> {
    if (position >= HALF * HALF) throw new HoldfastError('internal', 'the position is too large')
    return permuted(await this.#keyed(), position, ROUNDS)
  }

  async reveal(hidden: number): Promise<number> {
    if (hidden >= HALF * HALF) return Number.MAX_SAFE_INTEGER
    const swapped = (hidden % HALF) * HALF + Math.floor(hidden / HALF)
    const found = permuted(await this.#keyed(), swapped, ROUNDS.toReversed())
    return (found % HALF) * HALF + Math.floor(found / HALF)
  }

  async hideCursor(cursor: string): Promise<string> {
    const nonce = randomBytes(NONCE_BYTES)
    const cipher = createCipheriv(ALGORITHM, await this.#keyed(), nonce)
    const parts = [cipher.update(cursor.padEnd(CURSOR_CHARS)), cipher.final()]
    return Buffer.concat([nonce, ...parts, cipher.getAuthTag()]).toString('base64url')
  }

  async revealCursor(hidden: string): Promise<string> {
    const bytes = Buffer.from(hidden, 'base64url')
    const end = bytes.length - TAG_BYTES
    try {
      const nonce = bytes.subarray(0, NONCE_BYTES)
      const decipher = createDecipheriv(ALGORITHM, await this.#keyed(), nonce)
      decipher.setAuthTag(bytes.subarray(end))
      const parts = [decipher.update(bytes.subarray(NONCE_BYTES, end)), decipher.final()]
      return Buffer.concat(parts).toString().trimEnd()
    } catch {
      throw invalid('cursor', 'is not one that a list gave out')
    }
  }

  /** A key that could not be read is asked for again. */
  #keyed(): Promise<Buffer> {
    this.#key ??= this.#readKey().catch((error: unknown) => {
      this.#key = null
      throw error
    })
    return this.#key
  }
}

/** The two halves of a position, each mixed with the other in turn. */
function permuted(key: Buffer, position: number, rounds: readonly number[]): number {
  let [left, right] = [Math.floor(position / HALF), position % HALF]
  for (const round of rounds) {
    const mask = createHmac('sha256', key).update(`${round} ${right}`).digest()
    ;[left, right] = [right, left ^ mask.readUIntBE(0, HALF_BITS / 8)]
  }
  return left * HALF + right
}

const KEY_SESSION = 'holdfast:positions'
/** Its principal has no name, so that no caller is it; only administrators see the session. */
const SERVER_ACCESS = { principal: '', groups: [], scopes: SCOPES }

/**
 * The key of a server without a cluster's secret: a label of an internal session, so that the store
 * needs no place of its own for it. Of several that make it at once, one does (I1).
 */
export async function storedKey(holdfast: Holdfast): Promise<Buffer> {
  const { store } = holdfast.authority
  const read = async () => (await store.read(KEY_SESSION, 0, 0)).row?.labels['key']
  const known = await read()
  if (known !== undefined) return Buffer.from(known, 'base64url')
  const labels = { key: randomBytes(32).toString('base64url') }
  const options = { id: KEY_SESSION, internal: true, ttlMs: null, labels }
  // Another node may have made it meanwhile, and own it.
  const own = holdfast.as(LOCAL, SERVER_ACCESS)
  const made = await own.resolve(options).then(read, async (error: unknown) => {
    const found = await read()
    if (found === undefined) throw error
    return found
  })
  return Buffer.from(made ?? labels.key, 'base64url')
}
