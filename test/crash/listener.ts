/**
 * A client that watches long answers come until the server is killed, and meanwhile looks at what the
 * log has of them. What it saw there is recorded, and must be in the log for ever.
 */
import type { LoggedEvent } from '../support/log.ts'

export const LISTENER_KEY = 'listener'

/** An answer that was cut off, as far as the client knows it. */
export type Heard = {
  readonly session: string
  readonly turn: string
  /** All that the agent would have said. */
  readonly whole: string
  /** What came over the stream. */
  readonly shown: string
  /** What the log had of it when the client looked last. */
  readonly recorded: string
}

const WORDS = 4_000
/** One word every few milliseconds: longer than any server lives. */
const ANSWER_MS = 20_000

export class Listener {
  readonly heard: Heard[] = []
  #turns = 0
  #recorded = 0
  #looks: (() => void)[] = []

  /** Listens to one answer of this server, until either is over. */
  async listenTo(url: string): Promise<void> {
    this.#turns += 1
    const number = this.#turns
    const whole = Array.from({ length: WORDS }, (_, n) => `${number}-${n} `).join('')
    let heard: Heard = { session: '', turn: '', whole, shown: '', recorded: '' }
    try {
      const response = await fetch(`${url}/v1/keys/${LISTENER_KEY}/turns`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
        body: JSON.stringify({ agent: 'slow', input: { text: whole, ms: ANSWER_MS } }),
      })
      const [, session = '', turn = ''] =
        /sessions\/([^/]+)\/turns\/(t\d+)/.exec(response.headers.get('content-location') ?? '') ??
        []
      heard = { ...heard, session, turn }
      for await (const text of deltas(response)) {
        heard = { ...heard, shown: heard.shown + text }
        heard = { ...heard, recorded: await recordedOf(url, heard) }
        if (heard.recorded !== '') this.#saw()
      }
    } catch {
      // The server is gone: that is what it waits for.
    }
    if (heard.turn !== '') this.heard.push(heard)
  }

  /** When it has seen once more that something is recorded. */
  async sawMore(): Promise<void> {
    const before = this.#recorded
    while (this.#recorded === before) await new Promise<void>((look) => this.#looks.push(look))
  }

  #saw(): void {
    this.#recorded += 1
    for (const look of this.#looks.splice(0)) look()
  }
}

async function* deltas(response: Response): AsyncGenerator<string> {
  let text = ''
  for await (const bytes of response.body!.pipeThrough(new TextDecoderStream())) {
    text += bytes
    const events = text.split('\n\n')
    text = events.pop() ?? ''
    const data = events.flatMap((event) => /^data: (.*)$/m.exec(event)?.[1] ?? [])
    const parts = data.map((json) => JSON.parse(json) as LoggedEvent)
    yield parts.flatMap((part) => (part.type === 'delta' ? (part.text ?? '') : [])).join('')
  }
}

async function recordedOf(url: string, { session, turn }: Heard): Promise<string> {
  const after = Number(turn.slice(1)) - 1
  const response = await fetch(`${url}/v1/sessions/${session}/events?after=${after}`)
  return outputOf(((await response.json()) as { events: LoggedEvent[] }).events, turn)
}

function outputOf(events: readonly LoggedEvent[], turn: string): string {
  const outputs = events.filter((event) => event.type === 'turn.output' && event.turn === turn)
  return outputs.map(({ text }) => text).join('')
}

/**
 * Of an answer that was cut off the log keeps what it had recorded, all of that and no more, and it is
 * what the agent said.
 */
export function lostOf(heard: Heard, log: readonly LoggedEvent[]): string[] {
  const { turn, whole, shown, recorded } = heard
  const own = log.filter((event) => event.turn === turn)
  const output = outputOf(own, turn)
  const kept = own.find(({ type }) => type === 'message.added')?.text ?? ''
  const broken: string[] = []
  const check = (holds: boolean, problem: string): void => {
    if (!holds) broken.push(`I4: ${turn} of the listener: ${problem}`)
  }
  check(whole.startsWith(shown), 'what was shown is not what the agent said')
  check(whole.startsWith(kept), 'what is kept is not what the agent said')
  check(output.startsWith(recorded), 'what was seen in the log is not there any more')
  check(kept === output, `${output.length} characters are recorded, but ${kept.length} are kept`)
  check(own.at(-1)?.type === 'turn.interrupted', `it ended with ${own.at(-1)?.type}`)
  return broken
}
