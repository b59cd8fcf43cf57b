/** The data of CDP messages that the files of this door pass to each other. */
export type { CdpError, CdpEvent, CdpReply, Params, ReadReply } from '../../browsers/index.ts'

/** As Chrome words them. */
export const CDP_ERRORS = {
  parse: { code: -32700, message: 'JSON: syntax error' },
  values: { code: -32600, message: 'Message has too many values in it' },
  odd: { code: -32600, message: 'Message is malformed, and too large to tell how' },
  session: { code: -32001, message: 'Session with given id not found.' },
  child: { code: -32602, message: 'No session with given id' },
  target: { code: -32602, message: 'No target with given id found' },
  context: { code: -32602, message: 'Failed to find browser context with given id' },
} as const

/** The command that starts a target that waits for a debugger. */
export const RUN = 'Runtime.runIfWaitingForDebugger'

/** A message as text, in a session; '' is the connection itself. */
export function messageText(message: object, session: string): Buffer {
  return Buffer.from(JSON.stringify(session === '' ? message : { ...message, sessionId: session }))
}
