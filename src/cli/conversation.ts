/**
 * A conversation with the agent of a session, at a terminal or through pipes. What other clients of
 * the session say is shown too.
 *
 * It ends by the person's decision or with the session; a lost or restarted server does not end it.
 * Through pipes a line waits until the turn before it has ended, unless it answers an ask.
 */
import type {
  Ask,
  ClientPart,
  ClientSession,
  ClientState,
  ClientTurn,
  Seen,
} from '../client/index.ts'
import type { SessionEvent, Settings } from '../core/index.ts'
import { LIMITS } from '../core/index.ts'
import { systemClock } from '../platform/clock.ts'
import { turnOutcome, type TurnOutcome } from '../wire/answer-text.ts'
import type { ChatHistory } from './chat-history.ts'
import { CHAT_COMMANDS, commandOf, type ChatControls } from './chat-commands.ts'
import { ConversationPrinter, outcomeWords } from './conversation-printer.ts'
import { durationText, linesOf } from './output.ts'
import { describeAsk, lineToEdit, readTypedAnswer } from './prompt.ts'
import { Screen } from './screen.ts'

type ConversationOptions = {
  readonly key: string
  /** The kinds of ask that are answered here. */
  readonly answers: readonly string[]
  readonly settings: Settings | undefined
  /** Sent along with the first message. */
  readonly parts: readonly ClientPart[]
  /** What was said before; null: it is not shown. */
  readonly history: ChatHistory | null
}

/** Attaches to the session, by its id once that is known, after the events that were seen. */
type Attach = (id: string | null, seen: Seen | undefined) => ClientSession

/** The exit code that a shell reports after Ctrl-C. */
const INTERRUPTED = 130
const TICK_MS = 1_000
/** A lost connection that is back sooner than this is not shown. */
const QUIET_MS = 2_000
/** Ends after which the session itself goes on: this client attaches again. */
const PASSING = ['connection_lost', 'unreachable', 'attachment_ended', 'attachment_unknown']

export class Conversation {
  readonly #attach: Attach
  readonly #options: ConversationOptions
  readonly #screen: Screen
  readonly #printer: ConversationPrinter
  #session: ClientSession
  /** Known after the first welcome. */
  #id: string | null = null
  #running: string | null = null
  #cancelled: string | null = null
  /** Messages on their way, and turns that have not ended. */
  #pending = 0
  #failed = 0
  #lines: string[] = []
  #parts: readonly ClientPart[]
  /** The session has the settings that the flags name: lines may be taken. */
  #hasBegun = false
  #isInputOver = false
  /** Shown once, although a new connection brings them again. */
  readonly #shown = new Set<string>()
  /** Answered here, and not refused. */
  readonly #answered = new Set<string>()
  #lostAt: number | null = null
  #isLossShown = false
  #leave: (code: number) => void = () => undefined

  constructor(attach: Attach, options: ConversationOptions) {
    this.#attach = attach
    this.#options = options
    this.#parts = options.parts
    this.#screen = new Screen({
      line: (text) => this.#typed(text),
      interrupt: () => this.#interrupt(),
      end: () => this.#inputEnded(),
    })
    this.#printer = new ConversationPrinter(this.#screen)
    this.#showHistory()
    this.#session = this.#open(attach(null, undefined))
  }

  /** Resolves with the exit code. */
  async run(): Promise<number> {
    const left = new Promise<number>((resolve) => {
      this.#leave = resolve
    })
    const ticker = setInterval(() => this.#tick(), TICK_MS)
    try {
      await Promise.race([this.#begin(), left])
      return await left
    } finally {
      clearInterval(ticker)
      this.#screen.close()
      this.#session.dispose()
    }
  }

  async #begin(): Promise<void> {
    await this.#session.ready
    const { settings, key } = this.#options
    if (settings !== undefined) await this.#session.configure(settings)
    const { info } = this.#session
    this.#hasBegun = true
    const turns = info?.turns === 0 ? 'new' : turnsText(info?.turns ?? 0)
    this.#note(`session ${key}, agent ${info?.agent}, ${turns}; /help lists the commands`)
    this.#pump()
  }

  #showHistory(): void {
    const { history, key } = this.#options
    if (history === null) return
    const { events, earlierTurns } = history
    if (earlierTurns !== 0) {
      const count = earlierTurns === null ? 'earlier turns' : turnsText(earlierTurns, 'earlier ')
      this.#note(`${count}: holdfast export ${key} --transcript, or --history N`)
    }
    this.#printer.past(events)
  }

  #open(session: ClientSession): ClientSession {
    session.on('event', (event) => this.#received(event))
    session.on('delta', (delta) => this.#printer.delta(delta))
    session.on('ask', (ask) => this.#asked(ask))
    session.on('asks', () => this.#pump())
    session.on('state', (state) => this.#changed(state))
    return session
  }

  #changed(state: ClientState): void {
    if (state.name === 'live') {
      if (this.#isLossShown) this.#note('the connection is back')
      this.#lostAt = null
      this.#isLossShown = false
      this.#id = this.#session.info?.id ?? null
      this.#running = this.#session.info?.running ?? null
      this.#printer.learn(this.#session.info)
      return this.#pump()
    }
    if (state.name !== 'ended') return void (this.#lostAt ??= performance.now())
    if (this.#id !== null && PASSING.includes(state.code)) return this.#attachAgain()
    // Before the first welcome `ready` has failed with it.
    if (this.#id === null) return
    this.#note(state.reason)
    this.#leave(state.code === 'session_closed' ? 0 : 1)
  }

  /** The client has given up on its attachment; the session may still be there, or come back. */
  #attachAgain(): void {
    const { seen } = this.#session
    this.#lostAt ??= performance.now()
    setTimeout(() => {
      this.#session.dispose()
      this.#session = this.#open(this.#attach(this.#id, seen))
    }, TICK_MS)
  }

  #received(event: SessionEvent): void {
    this.#printer.event(event)
    if (event.type === 'turn.started') {
      this.#running = event.turn
      this.#pump()
    }
    if (event.type === 'ask.opened' && !this.#options.answers.includes(event.kind)) {
      this.#say(describeAsk(event, this.#screen.paint))
      this.#note('another client has to answer this')
    }
    if (event.type === 'ask.settled') this.#settled(event)
    const outcome = turnOutcome(event)
    if (outcome !== null && 'turn' in event) this.#turnEnded(event.turn, outcome)
  }

  #turnEnded(turn: string, outcome: TurnOutcome): void {
    if (this.#running === turn) this.#running = null
    if (this.#cancelled === turn) this.#cancelled = null
    this.#screen.finishLine()
    const words = outcomeWords(outcome)
    if (words !== null) {
      this.#failed += 1
      this.#note(words)
    }
    this.#pump()
  }

  #asked(ask: Ask): void {
    if (this.#shown.has(ask.id)) return
    this.#shown.add(ask.id)
    this.#showAsk(ask)
    this.#pump()
  }

  #showAsk(ask: Ask): void {
    this.#say(describeAsk(ask, this.#screen.paint, this.#mayEdit))
    if (!this.#screen.isTerminal) this.#note(`${this.#left(ask)} to answer`)
  }

  #settled(event: SessionEvent & { type: 'ask.settled' }): void {
    if (this.#answered.delete(event.ask) || !this.#shown.has(event.ask)) return
    const answer = event.outcome === 'answered' ? `: ${JSON.stringify(event.answer)}` : ''
    this.#note(`no longer asked: ${event.outcome.replaceAll('_', ' ')}${answer}`)
  }

  /** A server of 0.1.0 does not tell, and has no such scope. */
  get #mayEdit(): boolean {
    return this.#session.scopes?.includes('edit') === true
  }

  /** The one that the next line answers. */
  get #ask(): Ask | null {
    return this.#session.asks.find(({ id }) => !this.#answered.has(id)) ?? null
  }

  #typed(line: string): void {
    this.#lines.push(line)
    this.#pump()
  }

  #inputEnded(): void {
    this.#isInputOver = true
    if (this.#screen.isTerminal) return this.#leave(0)
    this.#pump()
  }

  /** Takes the lines that may be taken now, and shows the prompt. */
  #pump(): void {
    while (this.#mayTake(this.#lines[0])) this.#take(this.#lines.shift() ?? '')
    this.#prompt()
    if (!this.#isInputOver || this.#lines.length > 0 || !this.#isAttached) return
    if (this.#ask !== null) {
      this.#note('stdin has ended: answer with holdfast answer, or any other client')
      this.#leave(1)
    } else if (!this.#isBusy) this.#leave(this.#failed === 0 ? 0 : 1)
  }

  get #isAttached(): boolean {
    return this.#hasBegun && this.#session.info !== null
  }

  get #isBusy(): boolean {
    return this.#pending > 0 || this.#running !== null
  }

  #mayTake(line: string | undefined): boolean {
    if (line === undefined || !this.#isAttached) return false
    if (this.#screen.isTerminal || !this.#isBusy || this.#ask !== null) return true
    return CHAT_COMMANDS.get(commandOf(line)?.name ?? '')?.isUrgent === true
  }

  #take(line: string): void {
    const command = commandOf(line)
    const own = CHAT_COMMANDS.get(command?.name ?? '')
    if (command !== null && own !== undefined) return own.run(this.#controls, command.rest)
    if (command !== null && !this.#printer.hasCommand(command.name)) {
      return this.#note(`there is no /${command.name}: see /help; //${command.name} sends it`)
    }
    if (line.trim() === '') return
    const ask = this.#ask
    if (ask !== null && command === null) this.#answer(ask, line)
    else this.#send(line.startsWith('//') ? line.slice(1) : line)
  }

  #answer(ask: Ask, line: string): void {
    const edited = this.#screen.isTerminal ? lineToEdit(ask, line) : null
    if (edited !== null) {
      this.#prompt()
      return this.#screen.type(edited)
    }
    const answer = readTypedAnswer(ask, line)
    if (answer === undefined) return this.#note('please answer with one of the above')
    this.#answered.add(ask.id)
    this.#session.answer(ask.id, answer).catch((error: Error) => {
      this.#answered.delete(ask.id)
      this.#note(`the answer was refused: ${error.message}`)
      this.#pump()
    })
  }

  #send(text: string): void {
    this.#printer.sent(text)
    this.#pending += 1
    const isBusy = this.#running !== null
    const parts = this.#parts
    this.#parts = []
    const input = parts.length === 0 ? text : { text, parts }
    const turn = this.#session.turn(input, { busy: 'steer', waitMs: LIMITS.waitMsMax })
    if (isBusy) void this.#tellWhere(turn)
    turn
      .catch((error: Error) => {
        this.#failed += 1
        this.#printer.unsent(text)
        this.#note(`not confirmed: ${error.message}`)
      })
      .finally(() => {
        this.#pending -= 1
        this.#pump()
      })
  }

  async #tellWhere(turn: ClientTurn): Promise<void> {
    // Why it was refused is told where the turn ends.
    const isSteered = await turn.steered.catch(() => false)
    if (isSteered) this.#note('the running turn has taken it')
  }

  #interrupt(): void {
    const turn = this.#running
    if (turn === null || this.#cancelled === turn) return this.#leave(INTERRUPTED)
    this.#cancel(turn)
    this.#note('cancelling; a second Ctrl-C leaves')
  }

  #cancel(turn: string): void {
    this.#cancelled = turn
    // Fails if the turn has ended meanwhile, which is shown.
    this.#session.cancel(turn).catch(() => undefined)
  }

  readonly #controls: ChatControls = {
    note: (words) => this.#note(words),
    leave: () => this.#leave(0),
    cancel: () => {
      if (this.#running === null) this.#note('no turn is running')
      else this.#cancel(this.#running)
    },
    asks: () => {
      const { asks } = this.#session
      if (asks.length === 0) this.#note('nothing waits for an answer')
      for (const ask of asks) this.#showAsk(ask)
    },
    setting: (name) => this.#printer.settings[name] ?? null,
    configure: (change) => {
      this.#pending += 1
      this.#session
        .configure(change)
        // The event may come after the confirmation, and the next line before the event.
        .then(() => this.#printer.configured(change))
        .catch((error: Error) => {
          this.#failed += 1
          this.#note(error.message)
        })
        .finally(() => {
          this.#pending -= 1
          this.#pump()
        })
    },
  }

  #prompt(): void {
    const ask = this.#ask
    if (ask !== null) return this.#screen.prompt(`answer (${this.#left(ask)})> `)
    this.#screen.prompt(this.#running !== null && !this.#isLossShown ? null : '> ')
  }

  #left({ deadline }: Ask): string {
    return `${durationText(deadline - systemClock.now())} left`
  }

  #tick(): void {
    if (this.#lostAt !== null && !this.#isLossShown) {
      this.#isLossShown = performance.now() - this.#lostAt > QUIET_MS
      if (this.#isLossShown) this.#note('the connection is lost; trying to come back')
    }
    if (this.#isAttached) this.#prompt()
  }

  #note(words: string): void {
    this.#say(
      linesOf(words)
        .map((line) => `(${line})`)
        .join('\n'),
    )
  }

  #say(lines: string): void {
    this.#screen.say(lines)
  }
}

function turnsText(count: number, which = ''): string {
  return `${count} ${which}${count === 1 ? 'turn' : 'turns'}`
}
