/** Asks the session's clients whether an agent may use a tool. */
import type { RequestPermissionOutcome, RequestPermissionRequest } from '@agentclientprotocol/sdk'
import type { AskOutcome, Question, RunnerContext } from '../core/index.ts'

/** A permission request as the Agent Client Protocol defines it, without its session. */
export type PermissionRequest = Omit<RequestPermissionRequest, 'sessionId'>

type PermissionSettings = { readonly askMs?: number; readonly onNobody?: 'wait' | 'deny' }

/** A tool call as it is shown with a permission request, as JSON text. */
export const ASK_DATA_CHARS_MAX = 16_384
/** A permission request's question, and the label of an option, in characters. */
export const ASK_TEXT_CHARS_MAX = 2_000
/** How many options of it are passed on. */
const ASK_OPTIONS_MAX = 16

export async function askPermission(
  context: RunnerContext,
  request: PermissionRequest,
  settings: PermissionSettings,
): Promise<RequestPermissionOutcome> {
  try {
    return permissionAnswer(await context.ask(permissionQuestion(request, settings)))
  } catch {
    // The turn has ended, or too many asks are open: the request was not allowed.
    return { outcome: 'cancelled' }
  }
}

export function permissionQuestion(
  { toolCall, options: offered }: PermissionRequest,
  { askMs, onNobody }: PermissionSettings,
): Question {
  const options = offered.slice(0, ASK_OPTIONS_MAX)
  return {
    kind: 'permission',
    question: shortened(toolCall.title ?? 'May the agent continue?'),
    options: options.map(({ optionId: id, name }) => ({ id, label: shortened(name) })),
    data: {
      tool: shownTool(toolCall),
      kinds: Object.fromEntries(options.map(({ optionId, kind }) => [optionId, kind])),
    },
    ...(askMs === undefined ? {} : { timeoutMs: askMs }),
    ...(onNobody === undefined ? {} : { onNobody }),
  }
}

/** The tool call as it is shown with the ask; of a large one, the beginning. */
function shownTool(call: PermissionRequest['toolCall']): object {
  const { toolCallId: id, kind, rawInput: input, content, locations } = call
  const title = call.title?.slice(0, ASK_TEXT_CHARS_MAX)
  const shown = { id, title, kind, input, locations, content }
  const json = JSON.stringify(shown)
  if (json.length <= ASK_DATA_CHARS_MAX) return shown
  const head = (JSON.stringify(input) ?? '').slice(0, ASK_TEXT_CHARS_MAX).toWellFormed()
  return { id, title, kind, truncated: true, chars: json.length, head }
}

/**
 * Only a person's answer selects an option. Without one the request is cancelled: if a reject
 * option is selected, some agents tell their model that "the user" refused, which is not true.
 */
export function permissionAnswer(outcome: AskOutcome): RequestPermissionOutcome {
  return outcome.outcome === 'answered'
    ? { outcome: 'selected', optionId: String(outcome.answer) }
    : { outcome: 'cancelled' }
}

function shortened(text: string): string {
  return text.slice(0, ASK_TEXT_CHARS_MAX)
}
