/** The native door's answers, for the OpenAPI document. The tests compare real ones with them. */
import { COUNT_MAX } from '../../core/store.ts'
import { Type } from '../../schema/typebox.ts'
import {
  ANSWERED_BY,
  ANSWER_FORMS,
  LINK_SCOPES,
  RECONNECT_POLICIES,
  ROLES,
  SETTING_NAMES,
  type Input,
  type TurnState,
} from '../../core/index.ts'
import { anything, input, oneOf, orNull } from '../../schema/contract.ts'
import { SETTINGS } from '../../wire/bodies.ts'

const TURN_STATES: readonly TurnState[] = [
  'queued',
  'running',
  'done',
  'failed',
  'cancelled',
  'interrupted',
  'expired',
]

const text = Type.String()
const textOrNull = orNull(text)
const whole = Type.Integer({ minimum: 0 })
const time = Type.Integer({ description: 'Milliseconds since 1970.' })
const timeOrNull = orNull(time)
const labels = Type.Record(text, text)

const row = {
  id: text,
  principal: Type.String({ description: 'The principal or group that it belongs to.' }),
  key: textOrNull,
  agent: text,
  state: oneOf(['open', 'closed']),
  labels,
  seq: Type.Integer({ minimum: 0, description: 'The number of the last event.' }),
  createdAt: time,
  updatedAt: time,
}

const Principal = orNull(
  Type.Object({ kind: oneOf(['token', 'jwt', 'link', 'local']), issuer: text, id: text }),
  { description: 'On whose behalf; null: not recorded.' },
)

const USAGE = {
  ...{ inputTokens: whole, outputTokens: whole, cachedTokens: whole },
  costUsd: Type.Number(),
}

export const Turn = Type.Object({
  id: text,
  state: oneOf(TURN_STATES),
  input: input<Input>(),
  reply: orNull(Type.Object({ text, data: Type.Optional(anything()) }), {
    description: 'The last message, once there is one.',
  }),
  error: orNull(Type.Object({ code: text, message: text })),
  reason: orNull(text, { description: 'Why it was cancelled or interrupted.' }),
  by: Principal,
  queuedAt: timeOrNull,
  startedAt: timeOrNull,
  endedAt: timeOrNull,
  usage: orNull(Type.Object(USAGE), { description: 'As the agent reported it, if it did.' }),
})

const QueueRow = Type.Object({
  turn: Type.Optional(Type.String({ description: 'The id of a turn that is queued.' })),
  request: Type.Optional(
    Type.String({ description: 'The id of a request that waits to be admitted.' }),
  ),
  state: oneOf(['waiting', 'queued']),
  position: Type.Integer({ minimum: 1 }),
  since: timeOrNull,
  by: Principal,
  busy: oneOf(['queue', 'interrupt', 'collect']),
  mayMove: Type.Boolean({ description: 'Whether the caller may move it among its own.' }),
})

const Attachment = Type.Object({
  role: oneOf(ROLES),
  answers: Type.Array(text, { description: 'The kinds of ask it answers.' }),
  state: oneOf(['live', 'detached']),
  graceUntil: orNull(time, { description: 'Until when a detached one may come back.' }),
  epoch: Type.Integer({ minimum: 1, description: 'How often it has connected.' }),
  cursor: orNull(whole, {
    description: 'The event up to which it has the log; null: it does not follow it now.',
  }),
})

const link = {
  id: text,
  scopes: Type.Array(oneOf(LINK_SCOPES)),
  expiresAt: timeOrNull,
  uses: orNull(whole, {
    description: 'How many more clients may attach by it; null: any number.',
  }),
}

export const Session = Type.Object({
  ...row,
  internal: Type.Boolean(),
  reconnect: oneOf(RECONNECT_POLICIES),
  exclusive: Type.Boolean(),
  graceMs: whole,
  ttlMs: orNull(whole),
  turns: Type.Integer({ minimum: 0, description: 'How many have started.' }),
  running: orNull(text, { description: 'The id of the turn that runs.' }),
  queued: Type.Array(QueueRow, { description: 'What waits for its turn, in order.' }),
  asks: Type.Integer({ minimum: 0, description: 'How many questions wait for an answer.' }),
  attachments: Type.Array(Attachment, { description: 'The clients that hold it.' }),
  watchers: orNull(whole, { description: 'How many clients only read.' }),
  closed: orNull(Type.Object({ at: time, reason: text })),
  backend: orNull(text, { description: "The backend's own session id." }),
  settings: Type.Object(SETTINGS, { description: 'How the agent is to work.' }),
  grants: Type.Array(Type.Object({ label: text, data: anything() }), {
    description: 'What people have allowed the agent until the session is closed.',
  }),
  plan: orNull(Type.Array(anything()), { description: "The agent's plan, as it told it last." }),
  commands: orNull(Type.Array(anything()), { description: 'Slash commands of the agent.' }),
  usage: Type.Object(USAGE, { description: 'Of all its turns, as the agent reports it.' }),
  origin: orNull(Type.Object({ session: textOrNull, turn: textOrNull, backend: textOrNull }), {
    description: 'Where its conversation began, if not here: forked at a turn, or adopted.',
  }),
})
export const GrantList = Type.Object({
  grants: Type.Array(Type.Object({ id: text, label: text, data: anything() })),
})
export const ChangedSession = Type.Object({
  id: text,
  settings: Type.Object(SETTINGS, { description: 'All of them, as they are now.' }),
})
export const AgentList = Type.Object({
  agents: Type.Array(
    Type.Object({
      name: text,
      isDefault: Type.Boolean(),
      capabilities: Type.Object({
        asks: Type.Boolean({ description: 'It asks for permissions, or asks questions.' }),
        images: Type.Boolean(),
        files: Type.Boolean(),
        steering: Type.Boolean({ description: 'A running turn takes another message.' }),
        settings: Type.Array(oneOf(SETTING_NAMES), { description: 'Those that it can honour.' }),
        modes: Type.Array(text, { description: 'Known before it runs.' }),
        models: Type.Array(text, { description: 'Known before it runs.' }),
        mcpServers: Type.Array(text, { description: 'Those that the operator has configured.' }),
        fork: orNull(oneOf(['any', 'head']), { description: 'At which turns; null: at none.' }),
        load: Type.Boolean({ description: 'It continues sessions after it was stopped.' }),
        plans: Type.Boolean(),
        commands: Type.Boolean(),
        clientTools: Type.Boolean({
          description: 'It may call tools that clients register, by asks of the kind tool:NAME.',
        }),
      }),
    }),
  ),
})
export const TerminalCommand = Type.Object({
  command: Type.Array(text, { description: 'The program and its arguments.' }),
  cwd: Type.String({ description: 'The working folder of the conversation.' }),
  host: Type.String({ description: 'The name of the machine that has both.' }),
  writtenOutside: orNull(Type.Integer({ minimum: 0 }), {
    description:
      'How many messages that program has written since the last turn; null: not known, as while ' +
      'a turn runs.',
  }),
})
export const ResolvedSession = Type.Intersect([Session, Type.Object({ isNew: Type.Boolean() })])
const listed = {
  ...row,
  status: oneOf(['idle', 'failed', 'queued', 'running', 'waiting', 'closed'], {
    description: 'waiting: for an answer to an ask; failed: the last turn, and none runs.',
  }),
  queuedTurns: Type.Integer({ minimum: 0, description: 'Admitted turns that wait.' }),
  attached: Type.Integer({
    minimum: 0,
    description: 'Clients that are attached and connected, without those that only watch.',
  }),
}
export const SessionPage = Type.Object({
  sessions: Type.Array(Type.Object(listed)),
  nextCursor: textOrNull,
  count: Type.Optional(
    Type.Object({
      atLeast: Type.Integer({ minimum: 0, maximum: COUNT_MAX }),
      isExact: Type.Boolean({ description: 'Otherwise there may be more.' }),
    }),
  ),
})
export const ChangesPage = Type.Object({
  changes: Type.Array(
    Type.Object({
      after: Type.Integer({ minimum: 0, description: 'The events after this one are new …' }),
      seq: Type.Integer({ minimum: 0, description: '… up to this one.' }),
      session: Type.Object({ ...listed, state: oneOf(['open', 'closed', 'erased']) }),
    }),
  ),
  position: Type.Integer({ minimum: 0, description: 'Where the next page begins.' }),
  hasMore: Type.Boolean(),
})
export const ClosedSession = Type.Object({
  id: text,
  state: Type.Literal('closed'),
  erased: Type.Boolean(),
  left: Type.Array(text, {
    description: 'What the agent wrote that could not be removed with an erased session.',
  }),
})
export const TurnOfSession = Type.Object({
  session: text,
  turn: Turn,
  steered: Type.Optional(
    Type.Boolean({
      description: 'With busy steer: whether a turn that ran already has taken the message.',
    }),
  ),
})
export const MovedTurn = Type.Object({ session: text, queued: Type.Array(QueueRow) })
export const CancelledRequest = Type.Object({
  session: text,
  request: Type.Object({ id: text, state: Type.Literal('cancelled') }),
})
export const Event = Type.Object(
  { type: text, seq: Type.Integer({ minimum: 1 }), at: time },
  { additionalProperties: true },
)
export const EventPage = Type.Object({
  events: Type.Array(Event),
  nextAfter: whole,
  nextBefore: Type.Optional(
    Type.Integer({ minimum: 1, description: 'Of a page by before: where the one before it ends.' }),
  ),
  hasMore: Type.Boolean(),
})
export const Message = Type.Object({
  seq: whole,
  turn: text,
  role: oneOf(['user', 'assistant']),
  text,
  at: time,
  data: Type.Optional(anything()),
  partial: Type.Optional(Type.Literal(true, { description: 'The turn ended before its end.' })),
})
export const Ask = Type.Object({
  id: text,
  turn: text,
  kind: text,
  question: text,
  options: orNull(Type.Array(Type.Object({ id: text, label: text }))),
  deadline: time,
  onNobody: oneOf(['wait', 'deny']),
  data: Type.Optional(anything()),
  detail: Type.Optional(anything({ description: 'What it is about, for a person to decide.' })),
  accepts: Type.Optional(
    Type.Array(oneOf(ANSWER_FORMS), { description: 'More forms of answers.' }),
  ),
  rule: Type.Optional(Type.String({ description: 'By which people are asked.' })),
  answeredBy: Type.Optional(oneOf(ANSWERED_BY, { description: 'Whose answers are taken.' })),
  people: Type.Optional(Type.Integer({ description: 'How many have to allow it.' })),
  approvals: Type.Optional(
    Type.Array(Type.Object({ by: anything(), answer: anything() }), {
      description: 'Of those who have, where that is not enough yet.',
    }),
  ),
})
export const OpenAskPage = Type.Object({
  asks: Type.Array(
    Type.Intersect([
      Ask,
      Type.Object({
        openedAt: time,
        session: Type.Object({ id: text, key: textOrNull, agent: text, labels, principal: text }),
      }),
    ]),
  ),
  nextCursor: textOrNull,
})
export const AskList = Type.Object({ asks: Type.Array(Ask) })
export const AnsweredAsk = Type.Object({
  session: text,
  ask: Type.Object({
    id: text,
    outcome: oneOf(['answered', 'approved'], { description: '`approved`: more people have to.' }),
    missing: Type.Optional(Type.Integer({ description: 'How many more.' })),
    answer: anything(),
  }),
})
export const Link = Type.Object(link)
export const CreatedLink = Type.Object({
  ...link,
  token: Type.String({ description: 'Told only now.' }),
  url: Type.String({ description: 'The token is in its fragment, which is never sent.' }),
})
export const LinkList = Type.Object({ links: Type.Array(Link) })
export const Revoked = Type.Object({ id: text, state: Type.Literal('revoked') })

export const Share = Type.Object({ with: text, scopes: Type.Array(oneOf(LINK_SCOPES)) })
export const ShareList = Type.Object({ shares: Type.Array(Share) })
export const RemovedShare = Type.Object({ with: text, state: Type.Literal('removed') })
