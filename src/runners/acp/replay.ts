/**
 * What an agent says again while it loads a session; it is in our log already. It should be over
 * when the agent says that the session is loaded, but some (Gemini CLI 0.61) go on after that, and
 * would mix it into the next answer. So we wait until the last answer in our log was said again; if
 * it never is (the agent may have shortened its memory), until the agent is quiet.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Update } from './narration.ts'
import { REPLAY_CHARS_MAX, REPLAY_QUIET_MS, REPLAY_REST_MS } from './options.ts'

export class Replay {
  #text = ''
  #heardAt = performance.now()

  update(update: Update): void {
    this.#heardAt = performance.now()
    if (update.sessionUpdate !== 'agent_message_chunk') return
    const { text } = (update['content'] ?? {}) as { text?: unknown }
    if (typeof text === 'string') this.#text = (this.#text + bare(text)).slice(-REPLAY_CHARS_MAX)
  }

  /** Resolves when it is over, and after `limitMs` in any case. */
  async over(lastAnswer: string, limitMs: number): Promise<void> {
    const end = bare(lastAnswer).slice(-REPLAY_CHARS_MAX)
    const giveUpAt = performance.now() + limitMs
    for (;;) {
      const isSaid = end !== '' && this.#text.endsWith(end)
      const overAt = this.#heardAt + (isSaid ? REPLAY_REST_MS : REPLAY_QUIET_MS)
      const left = Math.min(overAt, giveUpAt) - performance.now()
      if (left <= 0) return
      await sleep(Math.min(left, REPLAY_REST_MS))
    }
  }
}

/** Agents differ in the white space around messages. */
function bare(text: string): string {
  return text.replace(/\s+/g, '')
}
