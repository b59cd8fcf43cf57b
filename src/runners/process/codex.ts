/** Codex: `codex exec --json`, one JSON object per line. It chooses its session ids. */
import {
  jsonLines,
  asObject,
  asText,
  type JsonObject,
  type OutputFormat,
  type ProgramOutput,
} from './output-format.ts'

export const codex: OutputFormat = {
  hasSession: true,

  async *read(output) {
    for await (const line of jsonLines(output)) yield* outputs(line)
  },

  refusal(message, backend) {
    // `no rollout found for thread id ID`
    return /no (rollout|recorded session|thread) found/i.test(message) && message.includes(backend)
      ? 'unknown'
      : null
  },
}

function* outputs(line: JsonObject): Generator<ProgramOutput> {
  switch (line['type']) {
    case 'thread.started':
      yield { type: 'session', id: asText(line['thread_id']) }
      break
    case 'item.started':
      yield* started(asObject(line['item']))
      break
    case 'item.completed':
      yield* completed(asObject(line['item']))
      break
    case 'turn.completed':
      yield { type: 'activity', kind: 'usage', data: { usage: line['usage'] } }
      break
    case 'turn.failed':
      yield { type: 'failure', message: asText(asObject(line['error'])['message']) }
  }
}

/** Items that are not tool calls. */
const NO_TOOLS = new Set(['agent_message', 'reasoning', 'error'])

function* started(item: JsonObject): Generator<ProgramOutput> {
  if (NO_TOOLS.has(asText(item['type']))) return
  yield { type: 'activity', kind: 'tool_use', data: item }
}

function* completed(item: JsonObject): Generator<ProgramOutput> {
  const kind = asText(item['type'])
  if (kind === 'agent_message') yield { type: 'message', text: asText(item['text']) }
  else if (kind === 'error') yield { type: 'activity', kind: 'diagnosis', data: item }
  else if (!NO_TOOLS.has(kind)) yield { type: 'activity', kind: 'tool_result', data: item }
}
