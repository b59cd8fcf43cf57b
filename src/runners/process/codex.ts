/** Codex: `codex exec --json`, one JSON object per line. It makes its session's id itself. */
import { jsonLines, object, text, type Dialect, type Said } from './dialect.ts'

type Line = Readonly<Record<string, unknown>>

export const codex: Dialect = {
  tellsSession: true,

  async *read(output) {
    for await (const line of jsonLines(output)) yield* said(line)
  },

  refusal(words, backend) {
    // `no rollout found for thread id ID`
    return /no (rollout|recorded session|thread) found/i.test(words) && words.includes(backend)
      ? 'unknown'
      : null
  },
}

function* said(line: Line): Generator<Said> {
  switch (line['type']) {
    case 'thread.started':
      yield { type: 'session', id: text(line['thread_id']) }
      break
    case 'item.started':
      yield* begun(object(line['item']))
      break
    case 'item.completed':
      yield* completed(object(line['item']))
      break
    case 'turn.completed':
      yield { type: 'activity', kind: 'usage', data: { usage: line['usage'] } }
      break
    case 'turn.failed':
      yield { type: 'failure', message: text(object(line['error'])['message']) }
  }
}

/** What is told in messages of their own, or not at all. */
const NO_TOOLS = new Set(['agent_message', 'reasoning', 'error'])

function* begun(item: Line): Generator<Said> {
  if (NO_TOOLS.has(text(item['type']))) return
  yield { type: 'activity', kind: 'tool_use', data: item }
}

function* completed(item: Line): Generator<Said> {
  const kind = text(item['type'])
  if (kind === 'agent_message') yield { type: 'message', text: text(item['text']) }
  else if (kind === 'error') yield { type: 'activity', kind: 'diagnosis', data: item }
  else if (!NO_TOOLS.has(kind)) yield { type: 'activity', kind: 'tool_result', data: item }
}
