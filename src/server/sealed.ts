/**
 * Texts that only this server, or one with the same key, can have made and can read: what they
 * stand for needs no memory here. AES-256-GCM, so that a changed or foreign one cannot be read.
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto'

const ALGORITHM = 'aes-256-gcm'
const [NONCE_BYTES, TAG_BYTES] = [12, 16]
const CHARS_MAX = 16_384

/** `prefix` says what it is. `key`: 32 bytes. */
export function sealedText(prefix: string, key: Buffer, content: object): string {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv(ALGORITHM, key, nonce)
  const sealed = [cipher.update(JSON.stringify(content)), cipher.final()]
  const bytes = Buffer.concat([nonce, cipher.getAuthTag(), ...sealed])
  return `${prefix}${bytes.toString('base64url')}`
}

/** Null: it was not made with this key, or has been changed since. */
export function openSealed(prefix: string, key: Buffer, text: string): unknown {
  if (!text.startsWith(prefix) || text.length > CHARS_MAX) return null
  const bytes = Buffer.from(text.slice(prefix.length), 'base64url')
  const [nonce, tag] = [bytes.subarray(0, NONCE_BYTES), bytes.subarray(NONCE_BYTES)]
  if (tag.length < TAG_BYTES) return null
  try {
    const decipher = createDecipheriv(ALGORITHM, key, nonce)
    decipher.setAuthTag(tag.subarray(0, TAG_BYTES))
    const plain = [decipher.update(tag.subarray(TAG_BYTES)), decipher.final()]
    return JSON.parse(Buffer.concat(plain).toString()) as unknown
  } catch {
    // Not made with this key, or changed since.
    return null
  }
}
