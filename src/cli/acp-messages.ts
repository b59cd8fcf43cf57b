/** Messages between an editor and `holdfast acp`, and what the server refuses a connection with. */
import type { IncomingMessage } from 'node:http'
import { ERRORS, HoldfastError, type ErrorCode } from '../core/index.ts'

export type Fields = Readonly<Record<string, unknown>>
export type EditorMessage = {
  readonly id?: string | number | null
  readonly method?: string
  readonly params?: Fields
  readonly result?: Fields
  readonly error?: { readonly code: number; readonly message: string; readonly data?: Fields }
}

export function isPrompt({ method, params }: EditorMessage, session: unknown): boolean {
  return method === 'session/prompt' && params?.['sessionId'] === session
}

export function cancelText({ id: requestId }: EditorMessage): string {
  return JSON.stringify({ jsonrpc: '2.0', method: '$/cancel_request', params: { requestId } })
}

/** Null if it is none. */
export function messageIn(line: string): EditorMessage | null {
  try {
    const message = JSON.parse(line) as EditorMessage | null
    return typeof message !== 'object' || Array.isArray(message) ? null : message
  } catch {
    return null
  }
}

export function metaOf(fields: Fields | undefined): Fields {
  const { _meta: meta } = (fields ?? {}) as {
    readonly _meta?: { readonly holdfast?: Fields } | null
  }
  return meta?.holdfast ?? {}
}

/** The message with more of our own under `_meta.holdfast`. */
export function withMeta(message: EditorMessage, more: Fields): EditorMessage {
  const { params = {} } = message
  const meta = (params['_meta'] ?? {}) as Fields
  const holdfast = { ...metaOf(params), ...more }
  return { ...message, params: { ...params, _meta: { ...meta, holdfast } } }
}

/** Why the server did not open the socket. */
export async function refusalIn(response: IncomingMessage): Promise<HoldfastError> {
  const { statusCode: status = 0 } = response
  const { code, detail } = await problemIn(response)
  const reason = typeof detail === 'string' ? detail : `status ${status}`
  const hint = status === 401 ? 'pass a good token with --token-file or HOLDFAST_TOKEN' : reason
  const known = typeof code === 'string' && Object.hasOwn(ERRORS, code) ? code : 'bad_request'
  return new HoldfastError(known as ErrorCode, `the server refuses the connection: ${hint}`)
}

/** Empty for an answer that is no problem document, as of a proxy. */
async function problemIn(response: IncomingMessage): Promise<Fields> {
  let text = ''
  try {
    for await (const chunk of response) {
      text += String(chunk)
      if (text.length > PROBLEM_CHARS_MAX) return {}
    }
    const problem = JSON.parse(text) as Fields | null
    return problem ?? {}
  } catch {
    // The status says enough.
    return {}
  }
}

const PROBLEM_CHARS_MAX = 65_536
