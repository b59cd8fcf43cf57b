/** `holdfast send`: runs one turn and streams its answer. */
import { text as readAll } from 'node:stream/consumers'
import {
  type Ask,
  type ClientInput,
  type ClientSession,
  type ClientTurnOptions,
  type Delta,
  type SessionEvent,
} from '../client/index.ts'
import { BUSY_POLICIES, LIMITS } from '../core/index.ts'
import { ANSWERED_KINDS } from '../wire/answers.ts'
import { AnswerText } from '../wire/answer-text.ts'
import { sessionPath } from '../wire/views.ts'
import { AGENT_FLAGS, settingsOf } from './agent-flags.ts'
import { readPart } from './attached-files.ts'
import { choice, defineCommand, number, repeated, text, toggle, UsageError } from './command.ts'
import { connectTo } from './connecting.ts'
import { note, printableLines, printJson, quoted } from './output.ts'
import { askName, askPerson, describeAsk, readTypedAnswer } from './prompt.ts'
import { Remote, REMOTE_FLAGS } from './remote.ts'

export const send = defineCommand({
  name: 'send',
  operands: { usage: 'KEY "TEXT"', takes: 'a KEY and a "TEXT"', min: 1, max: 2 },
  summary:
    'Runs a turn in the session of KEY and streams the answer. Ctrl-C cancels the turn, a second ' +
    'Ctrl-C exits. If TEXT is missing or -, it is read from stdin, unless files are attached.',
  flags: {
    agent: text('NAME', 'the agent, if this command creates the session').showing('the first one'),
    attach: repeated('FILE', 'send this image or file along'),
    ...AGENT_FLAGS,
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
  async run(values, [key = '', given]) {
    const { agent, answer, attach, busy, 'wait-ms': waitMs, json: isJson } = values
    const parts = attach.map(readPart)
    const remote = new Remote(values)
    // A token may allow turns but no answers; then asks are only printed.
    const isInteractive =
      process.stdin.isTTY && process.stderr.isTTY && !isJson && (await remote.mayAnswer())
    const text = await readText(given, parts.length > 0)
    const input = parts.length === 0 ? text : { text, parts }
    const [known] = await remote.sessions({ key, state: 'open' }, 1)
    const session = connectTo(remote).session({
      key,
      answers: answer !== null || isInteractive ? ANSWERED_KINDS : [],
      agent: agent ?? undefined,
      // Earlier events are not needed.
      after: known === undefined ? undefined : { seq: known.seq, delta: 0 },
    })
    const settings = settingsOf(values)
    const turn = { busy: busy ?? undefined, waitMs: waitMs ?? undefined, settings }
    return new TerminalTurn(session, { remote, turn, answer, isJson, isInteractive }).run(input)
  },
})

/** A file that is attached needs no text. */
async function readText(given: string | undefined, hasParts: boolean): Promise<string> {
  if (given === undefined && hasParts) return ''
  return given === undefined || given === '-' ? readInput() : given
}

async function readInput(): Promise<string> {
  if (process.stdin.isTTY) throw new UsageError('send needs a "TEXT", or one on stdin')
  const input = (await readAll(process.stdin)).replace(/\r?\n$/, '')
  if (input !== '') return input
  throw new UsageError('send needs a "TEXT": stdin is empty')
}

type TerminalTurnOptions = {
  readonly remote: Remote
  readonly turn: ClientTurnOptions
  /** The answer to every ask; null to prompt. */
  readonly answer: string | null
  readonly isJson: boolean
  readonly isInteractive: boolean
}

/** A turn that starts sooner than this did not wait. */
const WAIT_SHOWN_MS = 1_000

/** The exit code that a shell reports after Ctrl-C. */
const INTERRUPTED = 130

/**
 * One turn at the terminal: the answer goes to stdout, everything else to stderr. It ends with the
 * turn, with the session, or by a second Ctrl-C, which lets the turn continue (I10).
 */
class TerminalTurn {
  readonly #session: ClientSession
  readonly #options: TerminalTurnOptions
  /** Events that arrived before the id of this turn. */
  readonly #early: (SessionEvent | Delta)[] = []
  #turn: string | null = null
  readonly #text = new AnswerText()
  /** Whether the last line that was printed is unfinished. */
  #isOpenLine = false
  /** Each ends the prompt of an ask, when the ask is settled. */
  readonly #prompts = new Map<string, AbortController>()
  #asking: Promise<void> = Promise.resolve()
  #isCancelled = false
  /** The turn has not started for a while. */
  #isWaiting = false
  #leave: (code: number) => void = () => undefined

  constructor(session: ClientSession, options: TerminalTurnOptions) {
    this.#session = session
    this.#options = options
  }

  async run(input: ClientInput): Promise<number> {
    this.#session.on('event', (event) => this.#receive(event))
    this.#session.on('delta', (delta) => this.#receive(delta))
    const interrupted = new Promise<number>((resolve) => {
      this.#leave = resolve
    })
    process.on('SIGINT', this.#interrupt)
    try {
      return await Promise.race([this.#take(input), interrupted])
    } finally {
      process.off('SIGINT', this.#interrupt)
      for (const prompt of this.#prompts.values()) prompt.abort()
      this.#session.dispose()
    }
  }

  /** Resolves with the exit code. */
  async #take(input: ClientInput): Promise<number> {
    await this.#session.ready
    const turn = this.#session.turn(input, this.#options.turn)
    const shown = setTimeout(() => void this.#showWaits(), WAIT_SHOWN_MS)
    this.#turn = await turn.started.finally(() => clearTimeout(shown))
    for (const item of this.#early) this.#receive(item)
    const { state, error, reason } = await turn
    this.#finishLine()
    if (state === 'done') return 0
    const because = reason === null || reason === state ? '' : `: ${reason}`
    const failed = error === null ? '' : `the turn failed: ${error.code}: ${error.message}`
    note(failed || `the turn was ${state}${because}`)
    return this.#isCancelled ? INTERRUPTED : 1
  }

  /** The turn has not started yet: perhaps since one before it waits for an answer. */
  async #showWaits(): Promise<void> {
    this.#isWaiting = true
    const path = `${sessionPath(this.#session.info?.id ?? '')}/asks`
    // Without a connection there is nothing to tell.
    const found = await this.#options.remote
      .json<{ readonly asks: readonly Ask[] }>(path)
      .catch(() => null)
    if (this.#turn === null) for (const { question } of found?.asks ?? []) this.#waitsFor(question)
  }

  #waitsFor(question: string): void {
    this.#note(`waiting for an answer to ${JSON.stringify(question)} (see holdfast asks)`)
  }

  #receive(item: SessionEvent | Delta): void {
    if (this.#turn === null) {
      if (this.#isWaiting && item.type === 'ask.opened') this.#waitsFor(item.question)
      return void this.#early.push(item)
    }
    if (!('turn' in item) || item.turn !== this.#turn) return
    if (this.#options.isJson) printJson([item])
    switch (item.type) {
      case 'delta':
        return this.#print(this.#text.delta(item.text))
      case 'message.added':
        this.#print(this.#text.message(item.text))
        return this.#finishLine()
      case 'ask.opened': {
        const prompt = new AbortController()
        this.#prompts.set(item.ask, prompt)
        // One prompt at a time, in the order of the asks.
        const answer = () => this.#answer({ ...item, id: item.ask }, prompt.signal)
        this.#asking = this.#asking.then(answer)
        return
      }
      case 'ask.settled':
        return this.#prompts.get(item.ask)?.abort()
      default:
    }
  }

  #print(text: string): void {
    if (text === '' || this.#options.isJson) return
    this.#isOpenLine = !text.endsWith('\n')
    process.stdout.write(process.stdout.isTTY ? printableLines(text) : text)
  }

  #finishLine(): void {
    if (this.#isOpenLine) process.stdout.write('\n')
    this.#isOpenLine = false
  }

  #note(text: string): void {
    this.#finishLine()
    note(text)
  }

  async #answer(ask: Ask, settled: AbortSignal): Promise<void> {
    if (settled.aborted) return
    const answer = await this.#answerOf(ask, settled)
    if (answer === undefined || settled.aborted) return
    // If another client was faster, its answer counts.
    await this.#session.answer(ask.id, answer).catch((error: Error) => {
      if (!settled.aborted) this.#note(`the answer was refused: ${error.message}`)
    })
  }

  async #answerOf(ask: Ask, settled: AbortSignal): Promise<unknown> {
    const { answer, isInteractive } = this.#options
    if (answer !== null) {
      const valid = readTypedAnswer(ask, answer)
      if (valid === undefined) {
        this.#note(`${describeAsk(ask)}\n${answer} is not one of the options`)
      }
      return valid
    }
    if (!isInteractive) return this.#note(this.#howToAnswer(ask))
    this.#finishLine()
    const { stdin: input, stderr: output } = process
    const mayEdit = this.#session.scopes?.includes('edit') === true
    return askPerson({ input, output, onInterrupt: this.#interrupt, mayEdit }, ask, settled)
  }

  #howToAnswer(ask: Ask): string {
    const { id = '', key = null } = this.#session.info ?? {}
    const name = askName({ id: ask.id, session: { id, key } })
    const { options } = ask
    // Not the first one: it may allow more than what is asked.
    const once = options?.find((one) => one.means === 'allow' || one.id === 'allow')
    const option = once ?? options?.[0]
    const answer = option === undefined ? '--text TEXT' : quoted(option.id)
    // A token is never printed: it is expected where this command has it from.
    const line = `holdfast answer ${name} ${answer} --url ${this.#options.remote.url}`
    return `waiting for an answer to:\n${describeAsk(ask)}\nanswer with: ${line}`
  }

  readonly #interrupt = (): void => {
    if (this.#isCancelled || this.#turn === null) return this.#leave(INTERRUPTED)
    this.#isCancelled = true
    this.#note('cancelling; a second Ctrl-C exits')
    // Fails if the turn has ended meanwhile, which is shown.
    this.#session.cancel(this.#turn).catch(() => undefined)
  }
}
