/** The native door's JSON, described for the OpenAPI document. */
import {
  BUSY_POLICIES,
  LIMITS,
  LINK_SCOPES,
  RECONNECT_POLICIES,
  ROLES,
  STATE_LIMITS,
  type TurnState,
} from '../../core/index.ts'
import { reference, type Schema } from '../route.ts'

const TURN_STATES: readonly TurnState[] = [
  'queued',
  'running',
  'done',
  'failed',
  'cancelled',
  'interrupted',
  'expired',
]

const text: Schema = { type: 'string' }
const textOrNull: Schema = { type: ['string', 'null'] }
const whole: Schema = { type: 'integer', minimum: 0 }
const time: Schema = { type: 'integer', description: 'Milliseconds since 1970.' }
const timeOrNull: Schema = { type: ['integer', 'null'], description: 'Milliseconds since 1970.' }
const labels: Schema = { type: 'object', additionalProperties: text }

/** An object with exactly these fields, all of them there. */
function exactly(properties: Readonly<Record<string, Schema>>): Schema {
  return { type: 'object', required: Object.keys(properties), properties }
}

/** An object with these fields and no others, of which only some must be there. */
function atMost(properties: Readonly<Record<string, Schema>>, required: string[] = []): Schema {
  return { type: 'object', properties, required, additionalProperties: false }
}

const creation: Readonly<Record<string, Schema>> = {
  agent: { type: 'string', description: 'One that the server has; its first is the default.' },
  reconnect: { enum: RECONNECT_POLICIES, default: 'reopen' },
  exclusive: { type: 'boolean', default: false, description: 'At most one client drives it.' },
  graceMs: { type: 'integer', minimum: 0, maximum: LIMITS.graceMsMax },
  ttlMs: {
    type: ['integer', 'null'],
    minimum: 1,
    maximum: LIMITS.ttlMsMax,
    description: 'How long it may be idle; null: for ever.',
  },
  internal: { type: 'boolean', default: false, description: 'Never listed, and without a key.' },
  labels,
}

const work: Readonly<Record<string, Schema>> = {
  input: {
    oneOf: [text, { type: 'object', required: ['text'], properties: { text } }],
  },
  busy: { enum: BUSY_POLICIES, default: 'queue' },
  waitMs: { type: 'integer', minimum: 0, maximum: LIMITS.waitMsMax, default: LIMITS.waitMs },
  onDisconnect: { enum: ['continue', 'cancel'], default: 'continue' },
}

const row: Readonly<Record<string, Schema>> = {
  id: text,
  key: textOrNull,
  agent: text,
  state: { enum: ['open', 'closed'] },
  labels,
  seq: { ...whole, description: 'The number of the last event.' },
  createdAt: time,
  updatedAt: time,
}

const principal: Schema = {
  type: ['object', 'null'],
  properties: { kind: { enum: ['token', 'jwt', 'link', 'local'] }, issuer: text, id: text },
  description: 'On whose behalf; null: not recorded.',
}

const turn: Schema = exactly({
  id: text,
  state: { enum: TURN_STATES },
  input: work['input'] ?? {},
  reply: {
    type: ['object', 'null'],
    properties: { text, data: {} },
    description: 'The last message, once there is one.',
  },
  error: { type: ['object', 'null'], properties: { code: text, message: text } },
  reason: { ...textOrNull, description: 'Why it was cancelled or interrupted.' },
  by: principal,
  queuedAt: timeOrNull,
  startedAt: timeOrNull,
  endedAt: timeOrNull,
})

const queueRow: Schema = {
  type: 'object',
  required: ['state', 'position', 'since', 'by', 'busy'],
  properties: {
    turn: { type: 'string', description: 'The id of a turn that is queued.' },
    request: { type: 'string', description: 'The id of a request that waits to be admitted.' },
    state: { enum: ['waiting', 'queued'] },
    position: { type: 'integer', minimum: 1 },
    since: timeOrNull,
    by: principal,
    busy: { enum: ['queue', 'interrupt', 'collect'] },
  },
}

const attachment: Schema = exactly({
  role: { enum: ROLES },
  answers: { type: 'array', items: text, description: 'The kinds of ask it answers.' },
  state: { enum: ['live', 'detached'] },
  graceUntil: { ...timeOrNull, description: 'Until when a detached one may come back.' },
  epoch: { type: 'integer', minimum: 1, description: 'How often it has connected.' },
})

const scopes: Schema = { type: 'array', items: { enum: LINK_SCOPES }, minItems: 1 }
const uses: Schema = {
  type: ['integer', 'null'],
  description: 'How many more clients may attach by it; null: any number.',
}
const link: Readonly<Record<string, Schema>> = { id: text, scopes, expiresAt: timeOrNull, uses }

export const NATIVE_SCHEMAS: Readonly<Record<string, Schema>> = {
  SessionRequest: atMost({
    key: { type: 'string', description: `At most ${STATE_LIMITS.keyBytesMax} bytes of UTF-8.` },
    id: { type: 'string', pattern: '^[A-Za-z0-9_.:~-]+$', maxLength: STATE_LIMITS.idCharsMax },
    ...creation,
  }),
  Session: exactly({
    ...row,
    internal: { type: 'boolean' },
    reconnect: { enum: RECONNECT_POLICIES },
    exclusive: { type: 'boolean' },
    graceMs: whole,
    ttlMs: { type: ['integer', 'null'] },
    turns: { ...whole, description: 'How many have started.' },
    running: { ...textOrNull, description: 'The id of the turn that runs.' },
    queued: { type: 'array', items: queueRow, description: 'What waits for its turn, in order.' },
    asks: { ...whole, description: 'How many questions wait for an answer.' },
    attachments: { type: 'array', items: attachment, description: 'The clients that hold it.' },
    closed: { type: ['object', 'null'], properties: { at: time, reason: text } },
    backend: { ...textOrNull, description: "The backend's own session id." },
  }),
  ResolvedSession: {
    allOf: [reference('Session'), exactly({ isNew: { type: 'boolean' } })],
  },
  SessionPage: exactly({
    sessions: { type: 'array', items: exactly(row) },
    nextCursor: textOrNull,
  }),
  ClosedSession: exactly({ id: text, state: { const: 'closed' }, erased: { type: 'boolean' } }),
  TurnRequest: atMost(work, ['input']),
  KeyTurnRequest: atMost({ ...work, ...creation }, ['input']),
  Turn: turn,
  CancelledRequest: exactly({
    session: text,
    request: exactly({ id: text, state: { const: 'cancelled' } }),
  }),
  TurnOfSession: exactly({ session: text, turn: reference('Turn') }),
  Event: {
    ...exactly({ type: text, seq: { type: 'integer', minimum: 1 }, at: time }),
    additionalProperties: true,
  },
  EventPage: exactly({
    events: { type: 'array', items: reference('Event') },
    nextAfter: whole,
    hasMore: { type: 'boolean' },
  }),
  Message: exactly({
    seq: whole,
    turn: text,
    role: { enum: ['user', 'assistant'] },
    text,
    at: time,
  }),
  Ask: exactly({
    id: text,
    turn: text,
    kind: text,
    question: text,
    options: { type: ['array', 'null'], items: exactly({ id: text, label: text }) },
    deadline: time,
    onNobody: { enum: ['wait', 'deny'] },
  }),
  AskList: exactly({ asks: { type: 'array', items: reference('Ask') } }),
  AnswerRequest: atMost({ answer: {} }, ['answer']),
  AnsweredAsk: exactly({
    session: text,
    ask: exactly({ id: text, outcome: { const: 'answered' }, answer: {} }),
  }),
  LinkRequest: atMost(
    {
      scopes,
      expiresInMs: { type: 'integer', minimum: 1 },
      expiresAt: timeOrNull,
      uses: { ...uses, minimum: 1 },
    },
    ['scopes'],
  ),
  Link: exactly(link),
  CreatedLink: exactly({
    ...link,
    token: { type: 'string', description: 'Told only now.' },
    url: { type: 'string', description: 'The token is in its fragment, which is never sent.' },
  }),
  LinkList: exactly({ links: { type: 'array', items: reference('Link') } }),
  RevokedLink: exactly({ id: text, state: { const: 'revoked' } }),
}
