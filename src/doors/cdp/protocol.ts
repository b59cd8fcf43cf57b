/**
 * CDP messages as the files of this door pass them to each other. Messages of a browser are read
 * and changed without parsing them: Chromium's replies begin with their id, and all messages of a
 * session end with its id, which is as long as ours. Both are replaced in place, so that a
 * screenshot of 5 MB is neither parsed nor copied.
 */
export * from '../../browsers/connection.ts'

/** The command that starts a target that waits for a debugger. */
export const RUN = 'Runtime.runIfWaitingForDebugger'

/** Ids that we send to the browser have ten digits, so that a client's id fits in their place. */
export const FIRST_ID = 1_000_000_000
export const LAST_ID = 2_147_483_647

const REPLY = Buffer.from('{"id":')
const EVENT = Buffer.from('{"method":"')
const ID_DIGITS = 10
const SESSION_CHARS = 32
const SESSION = Buffer.from(',"sessionId":"')
const TAIL = SESSION.length + SESSION_CHARS + 2
const [COMMA, CLOSE, QUOTE] = [0x2c, 0x7d, 0x22]

/** The id of a reply; null if this is none, or looks unlike Chromium's. */
export function replyId(message: Buffer): number | null {
  if (!hasAt(message, 0, REPLY) || message[REPLY.length + ID_DIGITS] !== COMMA) return null
  let id = 0
  for (let at = REPLY.length; at < REPLY.length + ID_DIGITS; at += 1) {
    const digit = (message[at] ?? 0) - 0x30
    if (digit < 0 || digit > 9) return null
    id = id * 10 + digit
  }
  return id
}

/** The method of an event; null if this is none, or looks unlike Chromium's. */
export function eventMethod(message: Buffer): string | null {
  if (!hasAt(message, 0, EVENT)) return null
  const end = message.indexOf(QUOTE, EVENT.length)
  return end === -1 ? null : message.toString('latin1', EVENT.length, end)
}

/** The id of the session that it belongs to; null if it ends otherwise. */
export function sessionOf(message: Buffer): string | null {
  const at = message.length - TAIL
  if (message[message.length - 1] !== CLOSE || !hasAt(message, at, SESSION)) return null
  return message.toString('latin1', at + SESSION.length, message.length - 2)
}

/** The same message in another session; '' is the connection itself. Changes it in place. */
export function inSession(message: Buffer, session: string): Buffer {
  const at = message.length - TAIL
  if (session === '') {
    message[at] = CLOSE
    return message.subarray(0, at + 1)
  }
  message.write(session, at + SESSION.length, 'latin1')
  return message
}

/** The same reply under another id. Changes it in place, unless the id is longer than ours. */
export function underId(message: Buffer, id: number): Buffer {
  const text = String(id)
  const end = REPLY.length + ID_DIGITS
  const start = end - text.length - REPLY.length
  if (start < 0) {
    return Buffer.concat([REPLY, Buffer.from(text), message.subarray(end)])
  }
  REPLY.copy(message, start)
  message.write(text, start + REPLY.length, 'latin1')
  return message.subarray(start)
}

/** Whether these bytes are in a message at a position. */
export function hasAt(message: Buffer, at: number, part: Buffer): boolean {
  for (let offset = 0; offset < part.length; offset += 1) {
    if (message[at + offset] !== part[offset]) return false
  }
  return true
}
