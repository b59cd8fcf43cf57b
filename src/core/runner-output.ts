/** A runner may be anybody's code: what it says is looked at before it is believed. */
import { STATE_LIMITS } from './limits.ts'
import type { RunnerOutput } from './runner.ts'

export function checkOutput(output: RunnerOutput): void {
  if (output?.type === 'activity') return
  if (output?.type !== 'delta' && output?.type !== 'message') {
    throw new TypeError('an agent may yield texts, deltas, messages and activities')
  }
  checkReply(output)
}

export function checkReply<Said extends { readonly text: string }>(said: Said): Said {
  if (typeof said?.text === 'string') return said
  throw new TypeError('what an agent says must be a text, or an object with a text')
}

/** Throws if it cannot be written as JSON. */
export function dataChars(data: unknown): number {
  return data === undefined ? 0 : (JSON.stringify(data)?.length ?? 0)
}

export function checkBackend(backend: string): void {
  const { backendCharsMax } = STATE_LIMITS
  if (typeof backend === 'string' && backend !== '' && backend.length <= backendCharsMax) return
  throw new TypeError(`a backend's session id must have 1 to ${backendCharsMax} characters`)
}
