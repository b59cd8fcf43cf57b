/** `holdfast chat`: a conversation at the terminal. */
import { readPart } from './attached-files.ts'
import { connectTo } from './connecting.ts'
import { readHistory } from './chat-history.ts'
import { Conversation } from './conversation.ts'
import { defineCommand, number, repeated, text } from './command.ts'
import { ANSWERED_KINDS } from '../wire/answers.ts'
import { Remote, REMOTE_FLAGS } from './remote.ts'
import { AGENT_FLAGS, settingsOf } from './agent-flags.ts'

const HISTORY_TURNS = 5

export const chat = defineCommand({
  name: 'chat',
  operands: { usage: 'KEY', takes: 'one KEY', min: 1, max: 1 },
  summary:
    'Talks with the agent of a session: streams its answers, shows its tool calls, and prompts ' +
    'for what it asks. /help lists the commands. Ctrl-C cancels the running turn, a second one ' +
    'leaves. Without a terminal it reads one message per line from stdin.',
  flags: {
    agent: text('NAME', 'the agent, if this command creates the session').showing('the first one'),
    attach: repeated('FILE', 'send this image or file along with the first message'),
    history: number('N', 'how many of the earlier turns to show, at a terminal')
      .between(0, 1_000)
      .showing(String(HISTORY_TURNS)),
    ...AGENT_FLAGS,
    ...REMOTE_FLAGS,
  },
  async run(values, [key = '']) {
    const remote = new Remote(values)
    // A token may allow turns but no answers; then asks are only shown.
    const answers = (await remote.mayAnswer()) ? ANSWERED_KINDS : []
    const [known] = await remote.sessions({ key, state: 'open' }, 1)
    const isShown = process.stdin.isTTY && process.stdout.isTTY && known !== undefined
    const history = isShown
      ? await readHistory(remote, known, values.history ?? HISTORY_TURNS)
      : null
    const client = connectTo(remote)
    const conversation = new Conversation(
      // By its id once that is known: a session that was closed meanwhile is not replaced.
      (id, seen) =>
        client.session({
          ...(id === null ? { key, agent: values.agent ?? undefined } : { id }),
          answers,
          // Earlier events are the history.
          after: seen ?? (known === undefined ? undefined : { seq: known.seq, delta: 0 }),
        }),
      { key, answers, settings: settingsOf(values), parts: values.attach.map(readPart), history },
    )
    return conversation.run()
  },
})
