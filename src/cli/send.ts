/** `holdfast send`: runs one turn and streams its answer. */
import { text as readAll } from 'node:stream/consumers'
import { WebSocket } from 'ws'
import { connect, type ClientSocketClass } from '../client/index.ts'
import { BUSY_POLICIES, LIMITS } from '../core/index.ts'
import { defineCommand } from './command.ts'
import { choice, number, text, toggle, UsageError } from './flags.ts'
import { Remote, REMOTE_FLAGS } from './remote.ts'
import { TerminalTurn } from './terminal-turn.ts'

/** The kinds of ask that a person at a terminal can answer. */
const ANSWERS = ['permission', 'choice', 'question', 'confirm', 'text']

export const send = defineCommand({
  name: 'send',
  operands: { usage: 'KEY "TEXT"', takes: 'a KEY and a "TEXT"', min: 1, max: 2 },
  summary:
    'Runs a turn in the session of KEY and streams the answer. Ctrl-C cancels the turn, a second ' +
    'Ctrl-C exits. If TEXT is missing or -, it is read from stdin.',
  flags: {
    agent: text('NAME', 'the agent, if this command creates the session').showing('the first one'),
    answer: text('ANSWER', 'give this answer to every ask, instead of prompting'),
    busy: choice('HOW', `if another turn runs: ${BUSY_POLICIES.join(', ')}`, BUSY_POLICIES).showing(
      'queue',
    ),
    'wait-ms': number('N', 'how long to wait for the start')
      .between(0, LIMITS.waitMsMax)
      .showing(LIMITS.waitMs),
    json: toggle('print the events of the turn, and the parts of its answer, as JSON lines'),
    ...REMOTE_FLAGS,
  },
  async run(values, [key = '', given = '-']) {
    const { agent, answer, busy, 'wait-ms': waitMs, json: isJson } = values
    const remote = new Remote(values)
    // A token may allow turns but no answers; then asks are only printed.
    const isInteractive =
      process.stdin.isTTY && process.stderr.isTTY && !isJson && (await remote.mayAnswer())
    const input = given === '-' ? await readInput() : given
    const known = await remote.sessionOfKey(key)
    const client = connect({
      url: remote.url,
      webSocket: WebSocket as unknown as ClientSocketClass,
      token: remote.token ?? undefined,
    })
    const session = client.session({
      key,
      answers: answer !== null || isInteractive ? ANSWERS : [],
      agent: agent ?? undefined,
      // Earlier events are not needed.
      after: known === null ? undefined : { seq: known.seq, delta: 0 },
    })
    const turn = { busy: busy ?? undefined, waitMs: waitMs ?? undefined }
    return new TerminalTurn(session, { remote, turn, answer, isJson, isInteractive }).run(input)
  },
})

async function readInput(): Promise<string> {
  if (process.stdin.isTTY) throw new UsageError('send needs a "TEXT", or one on stdin')
  const input = (await readAll(process.stdin)).replace(/\r?\n$/, '')
  if (input !== '') return input
  throw new UsageError('send needs a "TEXT": stdin is empty')
}
