/** The events of the Copilot SDK that clients are sent, and what each of them is here. */

export type EventFacts = {
  /** It is not in a session's history (`session.getMessages`). */
  readonly isEphemeral: boolean
  readonly meaning: string
}

const kept = (meaning: string): EventFacts => ({ isEphemeral: false, meaning })
const live = (meaning: string): EventFacts => ({ isEphemeral: true, meaning })

/** `docs/reference/copilot.md` has this table; a test compares it with the SDK's own types. */
export const COPILOT_EVENTS = {
  'session.start': kept('the session was created'),
  'session.resume': live('this client has come to it'),
  'session.model_change': kept('the setting `model` has changed'),
  'session.mode_changed': kept('the setting `mode` has changed'),
  'session.shutdown': kept('the session is closed for good'),
  'session.error': live("the client's own message has failed, or a turn that it only follows"),
  'session.idle': live("the client's own message is over, or a turn that it only follows"),
  'session.warning': live('a turn of another client has failed'),
  'user.message': kept('a turn has started: its input'),
  'assistant.turn_start': kept('a turn has started'),
  'assistant.message_delta': live('a part of the answer, with `streaming: true`'),
  'assistant.message': kept('a whole message of the answer'),
  'assistant.reasoning': kept('what the agent has thought'),
  'assistant.turn_end': kept('a turn has ended'),
  'assistant.idle': live('a turn has ended, of whichever client'),
  'tool.execution_start': kept('the agent has called one of its tools'),
  'tool.execution_complete': kept('the call of a tool has ended'),
  'pending_messages.modified': live('a message waits for its turn'),
  abort: kept('a turn was cancelled'),
  'permission.requested': live('an ask of the kind `permission` waits for its answer'),
  'permission.completed': live('it is settled'),
  'user_input.requested': live('an ask of the kind `question` or `choice` waits for its answer'),
  'user_input.completed': live('it is settled'),
  'external_tool.requested': live('the agent calls a tool that the client has registered'),
  'external_tool.completed': live('that call is settled'),
} as const satisfies Readonly<Record<string, EventFacts>>

export type CopilotEventType = keyof typeof COPILOT_EVENTS
