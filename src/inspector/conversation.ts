/** The conversation as bubbles: the log folded into turns, and the deltas of the running turn. */
import type { Delta, Input, Part, SessionEvent } from '../client/index.ts'
import { turnOutcome, type TurnOutcome } from '../wire/answer-text.ts'
import { foldToolCall, type ToolCall } from '../wire/tool-calls.ts'
import { toolTitle } from '../wire/tool-title.ts'
import { shownText } from './ask-detail.ts'
import { element, fill, setText } from './element.ts'
import { closedSentence } from './ending.ts'
import { partsView, type LoadBlob } from './parts.ts'

export function conversationView(load: LoadBlob) {
  const empty = element('p.empty', 'No messages yet.')
  const view = element('div.conversation', { role: 'log' }, empty)
  const turns = new Map<string, ReturnType<typeof turnBubbles>>()
  const questions = new Map<string, HTMLElement>()
  let running: string | null = null

  function turnOf(id: string) {
    const known = turns.get(id)
    if (known !== undefined) return known
    const turn = turnBubbles(id, load)
    turns.set(id, turn)
    empty.remove()
    // Texts that are not in the log yet come last.
    view.insertBefore(turn.element, view.querySelector('[data-state=sending]'))
    return turn
  }

  function ended(id: string, { state, error, reason }: TurnOutcome): void {
    if (running === id) running = null
    const why = state === 'expired' ? 'it waited too long' : (error?.message ?? reason)
    turnOf(id).ended(state, why === null ? '' : `${state}: ${why}`)
  }

  function event(event: SessionEvent): void {
    switch (event.type) {
      case 'turn.queued':
        return turnOf(event.turn).asked(event.input, 'waits')
      case 'turn.joined':
        return turnOf(event.turn).joined(event.input)
      case 'turn.started':
        running = event.turn
        return turnOf(event.turn).asked(event.input, 'running')
      case 'message.added':
        return turnOf(event.turn).said(event.text, event.partial === true)
      case 'turn.activity': {
        if (event.kind === 'conversation_changed') {
          return void turnOf(event.turn).add(elsewhere(event.data))
        }
        const call = foldToolCall(turnOf(event.turn).calls, event)
        return call === null ? undefined : turnOf(event.turn).tool(call)
      }
      case 'ask.opened': {
        const question = turnOf(event.turn).add(element('p.note', {}, event.question))
        return void questions.set(event.ask, question)
      }
      case 'ask.settled': {
        const { outcome } = event
        const words = outcome === 'answered' ? textOf(event.answer) : outcome.replaceAll('_', ' ')
        return questions.get(event.ask)?.append(` → ${words}`)
      }
      case 'session.closed':
        empty.remove()
        return view.append(element('p.note', closedSentence(event.reason)))
      default: {
        const outcome = turnOutcome(event)
        if (outcome !== null && 'turn' in event) ended(event.turn, outcome)
      }
    }
  }

  return {
    element: view,
    event,
    running: () => running,
    delta: ({ turn, text }: Delta): void => turnOf(turn).says(text),
    clear(): void {
      turns.clear()
      questions.clear()
      running = null
      view.replaceChildren(empty)
    },
    /** Shows a text that was sent and is not in the log yet; the result removes it. */
    sending(text: string): () => void {
      const parts = [element('div.bubble.user', text), element('p.state', 'waits for its turn')]
      const waiting = element('article.turn', { 'data-state': 'sending' }, ...parts)
      empty.remove()
      view.append(waiting)
      return () => waiting.remove()
    },
  }
}

function turnBubbles(id: string, load: LoadBlob) {
  const question = element('div.bubble.user')
  const state = element('p.state')
  const names = { 'data-turn': id, 'aria-label': `Turn ${id}` }
  const view = element('article.turn', names, question, state)
  const tools = new Map<string, HTMLElement>()
  /** The deltas of a message, until the message replaces them. */
  let live: HTMLElement | null = null
  let asked = ''

  function show(name: string, words: string): void {
    view.dataset['state'] = name
    setText(state, words)
    state.hidden = words === ''
  }

  function add(part: HTMLElement): HTMLElement {
    state.before(part)
    return part
  }

  return {
    element: view,
    add,
    calls: new Map<string, ToolCall>(),
    /** One line for each tool call, as it is now. */
    tool(call: ToolCall): void {
      const line = tools.get(call.id) ?? add(element('p.note.tool'))
      tools.set(call.id, line)
      const { kind = 'other', status = 'pending' } = call
      line.dataset['status'] = status
      setText(line, shownText(`${kind}: ${toolTitle(call)} (${status})`))
    },
    asked(input: Input, name: string): void {
      // What waited is told again when it starts, with all that was collected in it.
      if (name !== asked) fill(question, inputText(input), ...partsView(partsIn(input), load))
      asked = name
      show(name, name === 'waits' ? 'waits for its turn' : '')
    },
    joined: (input: Input): void =>
      question.append(`\n\n${inputText(input)}`, ...partsView(partsIn(input), load)),
    says(text: string): void {
      live ??= add(element('div.bubble.assistant', { 'data-live': true }))
      live.append(text)
    },
    said(text: string, isPartial: boolean): void {
      const bubble = live ?? add(element('div.bubble.assistant'))
      live = null
      delete bubble.dataset['live']
      if (isPartial) bubble.dataset['partial'] = ''
      setText(bubble, text)
    },
    ended(name: string, words: string): void {
      // Deltas without a message are not part of the conversation.
      live?.remove()
      live = null
      show(name, words)
    },
  }
}

const partsIn = (input: Input): readonly Part[] =>
  typeof input === 'object' && Array.isArray(input.parts) ? input.parts : []

const inputText = (input: Input): string => (typeof input === 'string' ? input : input.text)

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}

/** What was said in the agent's own program. */
function elsewhere(data: unknown): HTMLElement {
  type Said = { readonly role: string; readonly text: string }
  const { messages = [] } = data as { readonly messages?: readonly Said[] }
  const lines = messages.map(({ role, text }) => `${role}: ${shownText(text)}`)
  return element(
    'p.note.elsewhere',
    {},
    ["In the agent's own program meanwhile:", ...lines].join('\n'),
  )
}
