/**
 * Claude Code: `claude -p --output-format stream-json --verbose`, one JSON object per line. The
 * texts of sub-agents are not part of the answer; their tool calls are recorded.
 */
import {
  jsonLines,
  asList,
  asObject,
  asText,
  type JsonObject,
  type OutputFormat,
  type ProgramOutput,
} from './output-format.ts'

export const claude: OutputFormat = {
  hasSession: true,

  async *read(output) {
    for await (const line of jsonLines(output)) yield* outputs(line)
  },

  refusal(message, backend) {
    if (message.includes(`Session ID ${backend} is already in use`)) return 'in_use'
    if (message.includes(`No conversation found with session ID: ${backend}`)) return 'unknown'
    return null
  },
}

function* outputs(line: JsonObject): Generator<ProgramOutput> {
  switch (line['type']) {
    case 'system':
      if (line['subtype'] === 'init') yield { type: 'session', id: asText(line['session_id']) }
      break
    case 'stream_event':
      yield* delta(line)
      break
    case 'assistant':
      yield* assistant(line)
      break
    case 'user':
      yield* toolResults(line)
      break
    case 'result':
      yield* result(line)
  }
}

function* delta(line: JsonObject): Generator<ProgramOutput> {
  const event = asObject(line['event'])
  const part = asObject(event['delta'])
  if (line['parent_tool_use_id'] !== null || event['type'] !== 'content_block_delta') return
  if (part['type'] === 'text_delta') yield { type: 'delta', text: asText(part['text']) }
}

function* assistant(line: JsonObject): Generator<ProgramOutput> {
  const parent = line['parent_tool_use_id'] ?? null
  const message = asObject(line['message'])
  // A text that replaces the answer of a failed model is reported again as the failure.
  const isSynthetic = message['model'] === '<synthetic>' || 'error' in line
  for (const block of asList(message['content']).map(asObject)) {
    if (block['type'] === 'tool_use') {
      const { id, name, input } = block
      yield { type: 'activity', kind: 'tool_use', data: { id, name, input, parent } }
    } else if (block['type'] === 'text' && parent === null && !isSynthetic) {
      yield { type: 'message', text: asText(block['text']) }
    }
  }
}

function* toolResults(line: JsonObject): Generator<ProgramOutput> {
  for (const block of asList(asObject(line['message'])['content']).map(asObject)) {
    if (block['type'] !== 'tool_result') continue
    const { tool_use_id: id, content } = block
    const data = { id, isError: block['is_error'] === true, content }
    yield { type: 'activity', kind: 'tool_result', data }
  }
}

function* result(line: JsonObject): Generator<ProgramOutput> {
  const { usage, total_cost_usd: costUsd, num_turns: steps, duration_ms: durationMs } = line
  // A run that did not start has used nothing.
  if (line['is_error'] !== true || Number(steps) > 0) {
    yield { type: 'activity', kind: 'usage', data: { usage, costUsd, steps, durationMs } }
  }
  const denials = asList(line['permission_denials'])
  if (denials.length > 0) yield { type: 'activity', kind: 'permission_denied', data: denials }
  if (line['is_error'] !== true) return yield { type: 'result', text: asText(line['result']) }
  const errors = asList(line['errors']).map(asText).join('; ')
  const message = asText(line['result']) || errors || asText(line['subtype'])
  yield { type: 'failure', message }
}
