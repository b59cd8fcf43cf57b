/**
 * `holdfast send`: one turn, its answer in the terminal as it comes, its questions at the prompt.
 */
import { text as readAll } from 'node:stream/consumers'
import { WebSocket } from 'ws'
import { connect, type ClientSocketClass } from '../client/index.ts'
import { BUSY_POLICIES, LIMITS } from '../core/index.ts'
import { numberFlag, textFlag, UsageError, type Command, type Values } from './command.ts'
import { Conversation, type Wish } from './conversation.ts'
import { Remote, REMOTE_FLAGS, REMOTE_HELP } from './remote.ts'

/** The kinds of question that a person at a terminal can answer. */
const ANSWERS = ['permission', 'choice', 'question', 'confirm', 'text']

export const send: Command = {
  name: 'send',
  usage: 'send KEY "TEXT" [flags]',
  summary: [
    'Runs a turn in the session of KEY and prints the answer as it comes. Ctrl-C cancels the',
    'turn, once more leaves. TEXT is read from stdin if it is not there, or -.',
  ].join('\n'),
  flags: {
    ...REMOTE_FLAGS,
    agent: { type: 'string' },
    answer: { type: 'string' },
    busy: { type: 'string' },
    'wait-ms': { type: 'string' },
    json: { type: 'boolean' },
  },
  help: [
    ['--agent NAME', 'who answers, if this makes the session (the first of the server)'],
    ['--answer ANSWER', 'answer every question so, instead of asking at the prompt'],
    ['--busy HOW', `if another turn runs: ${BUSY_POLICIES.join(', ')} (queue)`],
    ['--wait-ms N', 'how long to wait for it (30000)'],
    ['--json', 'print the events of the turn as JSON lines, for programs'],
    ...REMOTE_HELP,
  ],
  run: sendTurn,
}

async function sendTurn(values: Values, words: readonly string[]): Promise<number> {
  const [key, given, ...more] = words
  if (key === undefined || key === '' || more.length > 0) {
    throw new UsageError('send takes a KEY and a "TEXT" (see holdfast send --help)')
  }
  const remote = new Remote(values)
  const wanted = readWish(values)
  // A token may be good for talking and not for answering: questions are only told then.
  const isInteractive = wanted.isInteractive && (await remote.mayAnswer())
  const wish = { ...wanted, isInteractive }
  const input = given === undefined || given === '-' ? await readInput() : given
  // What was said before need not come again.
  const known = await remote.sessionOfKey(key)
  const agent = textFlag(values, 'agent')
  const client = connect({
    url: remote.url,
    webSocket: WebSocket as unknown as ClientSocketClass,
    ...(remote.token === undefined ? {} : { token: remote.token }),
  })
  const session = client.session({
    key,
    answers: wish.answer !== null || wish.isInteractive ? ANSWERS : [],
    ...(agent === null ? {} : { agent }),
    ...(known === null ? {} : { after: { seq: known.seq, delta: 0 } }),
  })
  const { url, token } = remote
  return new Conversation(session, { ...wish, url, hasToken: token !== undefined }).run(input)
}

function readWish(values: Values): Omit<Wish, 'url' | 'hasToken'> {
  const busy = textFlag(values, 'busy')
  const policy = BUSY_POLICIES.find((name) => name === busy)
  if (busy !== null && policy === undefined) {
    throw new UsageError(`--busy must be one of ${BUSY_POLICIES.join(', ')}, not ${busy}`)
  }
  const bounds = { fallback: LIMITS.waitMs, min: 0, max: LIMITS.waitMsMax }
  return {
    turn: {
      ...(policy === undefined ? {} : { busy: policy }),
      ...(values['wait-ms'] === undefined ? {} : { waitMs: numberFlag(values, 'wait-ms', bounds) }),
    },
    answer: textFlag(values, 'answer'),
    isJson: values['json'] === true,
    isInteractive: process.stdin.isTTY && process.stderr.isTTY && values['json'] !== true,
  }
}

async function readInput(): Promise<string> {
  if (process.stdin.isTTY) throw new UsageError('send needs a "TEXT", or one on stdin')
  const input = (await readAll(process.stdin)).replace(/\r?\n$/, '')
  if (input !== '') return input
  throw new UsageError('send needs a "TEXT": stdin is empty')
}
