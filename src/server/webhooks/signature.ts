/** Signatures of webhooks by the Standard Webhooks specification, version 1: HMAC with SHA-256. */
import { createHmac } from 'node:crypto'
import { invalid } from '../../core/index.ts'

const PREFIX = 'whsec_'
const [BYTES_MIN, BYTES_MAX] = [24, 64]

/** The key of a secret. Throws `invalid_field`, without the secret, if it is none. */
export function keyOf(secret: unknown, field: string): Buffer {
  const text = typeof secret === 'string' && secret.startsWith(PREFIX) ? secret : ''
  const base64 = text.slice(PREFIX.length)
  const key = Buffer.from(base64, 'base64')
  const isWhole = /^[A-Za-z\d+/]+={0,2}$/.test(base64)
  if (isWhole && key.length >= BYTES_MIN && key.length <= BYTES_MAX) return key
  const problem = `must be ${PREFIX} and base64 of ${BYTES_MIN} to ${BYTES_MAX} bytes`
  throw invalid(field, problem)
}

export type SignedMessage = {
  readonly id: string
  /** Seconds since 1970. */
  readonly timestamp: number
  readonly body: string
}

/** The headers that a receiver checks: one signature for each key. */
export function signedHeaders({ id, timestamp, body }: SignedMessage, keys: readonly Buffer[]) {
  const signatures = keys.map((key) => {
    const signed = createHmac('sha256', key).update(`${id}.${timestamp}.${body}`)
    return `v1,${signed.digest('base64')}`
  })
  return {
    'webhook-id': id,
    'webhook-timestamp': String(timestamp),
    'webhook-signature': signatures.join(' '),
  }
}
