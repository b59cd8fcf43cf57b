/**
 * The methods of ACP, and what becomes of each: the table of `docs/reference/acp.md` is made from
 * this one, and a test compares it with the protocol's own schema.
 */
import type { AcpMethod } from './schemas.ts'

type Support = {
  /** Which end calls it. */
  readonly caller: 'client' | 'agent' | 'either'
  readonly isSupported: boolean
  /** What it does here, or why it does not. */
  readonly meaning: string
}

const yes = (caller: Support['caller'], meaning: string) =>
  ({ caller, isSupported: true, meaning }) as const
const no = (caller: Support['caller'], meaning: string) =>
  ({ caller, isSupported: false, meaning }) as const

const FILES = 'for the agent, of the client whose prompt runs, if it offers that'

/** What an agent may request of the client whose prompt runs, by the client's capability. */
export const CLIENT_REQUESTS = {
  'fs/read_text_file': 'readTextFile',
  'fs/write_text_file': 'writeTextFile',
  'terminal/create': 'terminal',
  'terminal/output': 'terminal',
  'terminal/kill': 'terminal',
  'terminal/release': 'terminal',
  'terminal/wait_for_exit': 'terminal',
} as const

/** Of the stable schema of version 1, and our own, which begin with an underscore. */
export const ACP_METHODS = {
  initialize: yes('client', 'what the agent behind can do, and what the caller may'),
  authenticate: no('client', 'a token is shown when the connection is opened'),
  logout: no('client', 'as `authenticate`'),
  'session/new': yes('client', 'finds the session of a key or creates one, and attaches to it'),
  'session/load': yes('client', 'attaches, and tells all that the log has'),
  'session/resume': yes('client', 'attaches, and tells what comes, or came after a position'),
  'session/list': yes('client', 'the open sessions that the caller may see'),
  'session/prompt': yes('client', 'a turn; it waits for the turns before it'),
  'session/cancel': yes('client', 'cancels one’s own prompts, or the running turn if one has none'),
  'session/close': yes('client', 'cancels one’s own prompts and leaves; the session stays open'),
  'session/delete': yes('client', 'closes and erases the session, for all'),
  'session/set_mode': yes('client', 'the setting `mode` of the session'),
  'session/set_config_option': yes('client', 'the settings `mode` and `model` of the session'),
  '_holdfast/control': yes('client', 'takes control of a session, or gives it up'),
  '$/cancel_request': yes('either', 'cancels a prompt, or an ask that is settled'),
  'session/update': yes('agent', 'what the log and the running turn say'),
  'session/request_permission': yes('agent', 'asks, to the clients that may answer'),
  'elicitation/create': yes('agent', 'questions that need a form, where the client takes forms'),
  'elicitation/complete': no('agent', 'only forms are asked for, and no addresses'),
  'fs/read_text_file': yes('agent', FILES),
  'fs/write_text_file': yes('agent', FILES),
  'terminal/create': yes('agent', FILES),
  'terminal/output': yes('agent', FILES),
  'terminal/kill': yes('agent', FILES),
  'terminal/release': yes('agent', FILES),
  'terminal/wait_for_exit': yes('agent', FILES),
} as const satisfies Readonly<Record<string, Support>>

type Table = typeof ACP_METHODS

/** Those that a client may call, and that are answered. */
export type ServedMethod = {
  [Method in keyof Table & AcpMethod]: Table[Method]['isSupported'] extends true ? Method : never
}[keyof Table & AcpMethod]
