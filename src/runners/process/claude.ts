/**
 * Claude Code: `claude -p --output-format stream-json --verbose`, one JSON object per line. What
 * its sub-agents say is no part of the answer; the tools they use are told.
 */
import { jsonLines, list, object, text, type Dialect, type Said } from './dialect.ts'

type Line = Readonly<Record<string, unknown>>

export const claude: Dialect = {
  tellsSession: true,

  async *read(output) {
    for await (const line of jsonLines(output)) yield* said(line)
  },

  refusal(words, backend) {
    if (words.includes(`Session ID ${backend} is already in use`)) return 'in_use'
    if (words.includes(`No conversation found with session ID: ${backend}`)) return 'unknown'
    return null
  },
}

function* said(line: Line): Generator<Said> {
  switch (line['type']) {
    case 'system':
      if (line['subtype'] === 'init') yield { type: 'session', id: text(line['session_id']) }
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

function* delta(line: Line): Generator<Said> {
  const event = object(line['event'])
  const part = object(event['delta'])
  if (line['parent_tool_use_id'] !== null || event['type'] !== 'content_block_delta') return
  if (part['type'] === 'text_delta') yield { type: 'delta', text: text(part['text']) }
}

function* assistant(line: Line): Generator<Said> {
  const parent = line['parent_tool_use_id'] ?? null
  const message = object(line['message'])
  // What it says itself in place of a model that failed comes again, as the failure.
  const isSynthetic = message['model'] === '<synthetic>' || 'error' in line
  for (const block of list(message['content']).map(object)) {
    if (block['type'] === 'tool_use') {
      const { id, name, input } = block
      yield { type: 'activity', kind: 'tool_use', data: { id, name, input, parent } }
    } else if (block['type'] === 'text' && parent === null && !isSynthetic) {
      yield { type: 'message', text: text(block['text']) }
    }
  }
}

function* toolResults(line: Line): Generator<Said> {
  for (const block of list(object(line['message'])['content']).map(object)) {
    if (block['type'] !== 'tool_result') continue
    const { tool_use_id: id, content } = block
    const data = { id, isError: block['is_error'] === true, content }
    yield { type: 'activity', kind: 'tool_result', data }
  }
}

function* result(line: Line): Generator<Said> {
  const { usage, total_cost_usd: costUsd, num_turns: steps, duration_ms: durationMs } = line
  // One that would not even begin has used nothing.
  if (line['is_error'] !== true || Number(steps) > 0) {
    yield { type: 'activity', kind: 'usage', data: { usage, costUsd, steps, durationMs } }
  }
  const denials = list(line['permission_denials'])
  if (denials.length > 0) yield { type: 'activity', kind: 'permission_denied', data: denials }
  if (line['is_error'] !== true) return yield { type: 'result', text: text(line['result']) }
  const errors = list(line['errors']).map(text).join('; ')
  const message = text(line['result']) || errors || text(line['subtype'])
  yield { type: 'failure', message }
}
