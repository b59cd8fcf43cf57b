/**
 * The replay of a conversation while an agent loads a session. It should be complete when the agent
 * reports that the session is loaded, but some agents (Gemini CLI 0.61) continue after that, and
 * would mix it into the next answer. So we wait until the last answer in our log was repeated; if
 * that does not happen (the agent may have compacted its context), until the agent is silent.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { EarlierMessage } from '../../core/index.ts'
import { textOf, type AcpUpdate } from './updates.ts'

/** How much of a replay is compared with the log, in characters. */
const REPLAY_CHARS_MAX = 4_096
/** The silence after which a replay is complete; and after its expected end was seen. */
const REPLAY_QUIET_MS = 1_000
const REPLAY_REST_MS = 20

export class Replay {
  #text = ''
  #updatedAt = performance.now()
  readonly #conversation: Conversation | null

  /** With a `conversation` its messages are kept. */
  constructor(conversation: Conversation | null = null) {
    this.#conversation = conversation
  }

  update(update: AcpUpdate): void {
    this.#updatedAt = performance.now()
    this.#conversation?.add(update)
    if (update.sessionUpdate !== 'agent_message_chunk') return
    this.#text = (this.#text + withoutSpace(textOf(update))).slice(-REPLAY_CHARS_MAX)
  }

  /** Resolves when the replay is complete, and after `limitMs` in any case. */
  async complete(lastAnswer: string, limitMs: number): Promise<void> {
    const end = withoutSpace(lastAnswer).slice(-REPLAY_CHARS_MAX)
    const giveUpAt = performance.now() + limitMs
    for (;;) {
      const isRepeated = end !== '' && this.#text.endsWith(end)
      const overAt = this.#updatedAt + (isRepeated ? REPLAY_REST_MS : REPLAY_QUIET_MS)
      const left = Math.min(overAt, giveUpAt) - performance.now()
      if (left <= 0) return
      await sleep(Math.min(left, REPLAY_REST_MS))
    }
  }
}

/** Agents differ in the white space around messages. */
function withoutSpace(text: string): string {
  return text.replace(/\s+/g, '')
}

const ROLES: Readonly<Record<string, EarlierMessage['role']>> = {
  user_message_chunk: 'user',
  agent_message_chunk: 'assistant',
}

/** The messages that a replay repeats. Agents do not say when they were said. */
export class Conversation {
  readonly messages: EarlierMessage[] = []
  #last: unknown = null
  readonly #at: number

  constructor(at: number) {
    this.#at = at
  }

  /** The chunks of a message have its id; without ids, a role has one message after the other. */
  add(update: AcpUpdate): void {
    const role = ROLES[update.sessionUpdate]
    const message = `${role} ${String(update['messageId'])}`
    const before = this.messages.at(-1)
    const isMore = message === this.#last && before !== undefined
    this.#last = message
    if (role === undefined) return
    const text = (isMore ? before.text : '') + textOf(update)
    if (isMore) this.messages.pop()
    if (text !== '') this.messages.push({ role, text, at: this.#at })
  }
}
