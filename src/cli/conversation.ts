/**
 * One turn at the terminal: the answer goes to stdout, everything else to stderr.
 *
 * Whatever happens it ends: with the turn, with the session, or by a second Ctrl-C, which leaves
 * the turn running (I10).
 */
import type {
  Ask,
  ClientSession,
  ClientTurnOptions,
  ClientTurnResult,
  Delta,
  SessionEvent,
} from '../client/index.ts'
import { askPerson, describeAsk, readAnswer } from './prompt.ts'
import { sessionPath } from './remote.ts'

export type Wish = {
  readonly url: string
  /** The server wants one. */
  readonly hasToken: boolean
  readonly turn: ClientTurnOptions
  /** Given to every question. */
  readonly answer: string | null
  readonly isJson: boolean
  /** There is a person to ask. */
  readonly isInteractive: boolean
}

/** What a shell reports of a command that Ctrl-C ended. */
const INTERRUPTED = 130

export class Conversation {
  readonly #session: ClientSession
  readonly #wish: Wish
  /** What came before it was known which turn is ours. */
  #early: (SessionEvent | Delta)[] | null = []
  #turn: string | null = null
  /** What was said since the last message, and whether the line is unfinished. */
  #said = ''
  #isOpenLine = false
  /** Each ends the prompt of a question, when that is settled. */
  readonly #prompts = new Map<string, AbortController>()
  #asking: Promise<void> = Promise.resolve()
  #isCancelled = false
  #leave: (code: number) => void = () => undefined

  constructor(session: ClientSession, wish: Wish) {
    this.#session = session
    this.#wish = wish
  }

  /** Resolves with the exit code. */
  async run(input: string): Promise<number> {
    const session = this.#session
    session.on('event', (event) => this.#tell(event))
    session.on('delta', (delta) => this.#tell(delta))
    const interrupted = new Promise<number>((resolve) => {
      this.#leave = resolve
    })
    const onInterrupt = (): void => this.#interrupt()
    process.on('SIGINT', onInterrupt)
    try {
      return await Promise.race([this.#take(input), interrupted])
    } finally {
      process.off('SIGINT', onInterrupt)
      for (const prompt of this.#prompts.values()) prompt.abort()
      session.dispose()
    }
  }

  async #take(input: string): Promise<number> {
    await this.#session.ready
    const turn = this.#session.turn(input, this.#wish.turn)
    this.#turn = await turn.started
    const early = this.#early ?? []
    this.#early = null
    for (const item of early) this.#tell(item)
    return this.#end(await turn)
  }

  #end({ state, error, reason }: ClientTurnResult): number {
    this.#finishLine()
    if (state === 'done') return 0
    const because = reason === null || reason === state ? '' : `: ${reason}`
    const failed = error === null ? '' : `the turn failed: ${error.code}: ${error.message}`
    this.#note(failed || `the turn was ${state}${because}`)
    return this.#isCancelled ? INTERRUPTED : 1
  }

  #tell(item: SessionEvent | Delta): void {
    if (this.#early !== null) return void this.#early.push(item)
    if (!('turn' in item) || item.turn !== this.#turn) return
    if (this.#wish.isJson) process.stdout.write(`${JSON.stringify(item)}\n`)
    switch (item.type) {
      case 'delta':
        return this.#print(item.text)
      case 'message.added':
        return this.#message(item.text)
      case 'ask.opened':
        return this.#ask({ ...item, id: item.ask })
      case 'ask.settled':
        return this.#prompts.get(item.ask)?.abort()
      default:
    }
  }

  /** It has all that was said before it; where some was missed, the rest is news. */
  #message(text: string): void {
    if (text.startsWith(this.#said)) this.#print(text.slice(this.#said.length))
    this.#said = ''
    this.#finishLine()
  }

  #print(text: string): void {
    if (text === '' || this.#wish.isJson) return
    this.#said += text
    this.#isOpenLine = !text.endsWith('\n')
    process.stdout.write(process.stdout.isTTY ? harmless(text) : text)
  }

  #finishLine(): void {
    if (this.#isOpenLine) process.stdout.write('\n')
    this.#isOpenLine = false
  }

  #note(text: string): void {
    this.#finishLine()
    process.stderr.write(`holdfast: ${text}\n`)
  }

  /** One question after the other, in the order in which they were asked. */
  #ask(ask: Ask): void {
    const prompt = new AbortController()
    this.#prompts.set(ask.id, prompt)
    this.#asking = this.#asking.then(() => this.#answer(ask, prompt.signal))
  }

  async #answer(ask: Ask, settled: AbortSignal): Promise<void> {
    if (settled.aborted) return
    const answer = await this.#answerOf(ask, settled)
    if (answer === undefined || settled.aborted) return
    // If somebody was faster, theirs counts, and the agent goes on.
    await this.#session.answer(ask.id, answer).catch((error: Error) => {
      if (!settled.aborted) this.#note(`the answer was not taken: ${error.message}`)
    })
  }

  async #answerOf(ask: Ask, settled: AbortSignal): Promise<unknown> {
    const { answer, isInteractive } = this.#wish
    if (answer !== null) {
      const fitting = readAnswer(ask, answer)
      if (fitting === undefined) this.#note(`${describeAsk(ask)}\n${answer} is no answer to this`)
      return fitting
    }
    if (!isInteractive) return this.#note(this.#howToAnswer(ask))
    this.#finishLine()
    const onInterrupt = (): void => this.#interrupt()
    return askPerson({ input: process.stdin, output: process.stderr, onInterrupt }, ask, settled)
  }

  #howToAnswer(ask: Ask): string {
    const body = JSON.stringify({ answer: ask.options?.[0]?.id ?? 'ANSWER' })
    const path = `${this.#wish.url}${sessionPath(this.#session.info?.id ?? '')}/asks/${ask.id}`
    // The token itself is never printed.
    const auth = this.#wish.hasToken ? ' -H "authorization: Bearer $HOLDFAST_TOKEN"' : ''
    const line = `curl -s ${path}${auth} -H 'content-type: application/json' -d '${body}'`
    return `${describeAsk(ask)}\nanswer with: ${line}`
  }

  #interrupt(): void {
    if (this.#isCancelled || this.#turn === null) return this.#leave(INTERRUPTED)
    this.#isCancelled = true
    this.#note('cancelling; Ctrl-C once more leaves')
    // A turn that is over has ended by itself, which is shown.
    this.#session.cancel(this.#turn).catch(() => undefined)
  }
}

/** What an agent says must not steer the terminal; a program that reads it gets it as it is. */
function harmless(text: string): string {
  return text.replace(/[^\P{Cc}\n\t]/gu, '\uFFFD')
}
