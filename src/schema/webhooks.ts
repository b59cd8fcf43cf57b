/** The webhooks of the operator as a schema, and the check of what the schema cannot say. */
import { invalid } from '../core/errors.ts'
import { EXACT, list, optional, PROBLEM } from './contract.ts'
import { isSafeUrl } from './jwt.ts'
import { Type, type Static } from './typebox.ts'

/** The events that a webhook can be told, by their names in the log. */
export const WEBHOOK_EVENTS = [
  ...(['session.created', 'session.closed', 'turn.queued', 'turn.started', 'turn.done'] as const),
  ...(['turn.failed', 'turn.cancelled', 'turn.interrupted', 'turn.expired'] as const),
  ...(['ask.opened', 'ask.settled'] as const),
] as const
export type WebhookEvent = (typeof WEBHOOK_EVENTS)[number]

const DEFAULT_EVENTS = [
  ...(['ask.opened', 'ask.settled', 'turn.done', 'turn.failed', 'session.closed'] as const),
] as const

/** What a body may have besides ids, names and codes. */
export const WEBHOOK_INCLUDES = ['text', 'diff', 'link'] as const
export type WebhookInclude = (typeof WEBHOOK_INCLUDES)[number]

export const WEBHOOK_DEFAULTS = {
  /** An endpoint that has failed for so long is paused. */
  pauseAfterMs: 86_400_000,
  /** Events that could not be delivered for so long are left out. */
  keepMs: 3 * 86_400_000,
} as const

const texts = (description: string) => list({ minItems: 1, description })

const COMMON_FIELDS = {
  name: Type.String({
    pattern: '^[A-Za-z0-9_-]{1,64}$',
    description: 'its name: where it stands is kept under it',
    [PROBLEM]: 'must have 1 to 64 letters, digits, _ and -',
  }),
  url: Type.String({
    minLength: 1,
    description: 'where to send: `https://…`, or `http://…` to an address that `allow` names',
  }),
  ...optional({
    events: list({
      values: WEBHOOK_EVENTS,
      minItems: 1,
      default: DEFAULT_EVENTS,
      description: `what it is told: ${WEBHOOK_EVENTS.map((name) => `\`${name}\``).join(', ')}`,
    }),
    labels: Type.Record(Type.String(), Type.String(), {
      description: 'only sessions with all of these labels',
    }),
    agents: texts('only sessions of these agents'),
    owners: texts('only sessions that belong to these principals, by their ids'),
    include: list({
      values: WEBHOOK_INCLUDES,
      default: [],
      description:
        'what a body has besides ids, names and codes: `text` (what is asked, answered and ' +
        'said), `diff` (changes of files and arguments of tools), `link` (a link to answer the ' +
        'ask). Texts are bounded, and what looks like a secret is left out',
    }),
    linkUrl: Type.String({
      description: 'with `link`: where people reach this server, like `https://holdfast.example`',
    }),
    answers: texts(
      'kinds of ask that its receiver answers, as `permission`: while it is delivered it counts ' +
        'as a client to ask',
    ),
    allow: list({
      default: [],
      description: 'hosts and ranges that may be reached although they are not public',
    }),
    pauseAfterMs: Type.Integer({
      minimum: 1_000,
      default: WEBHOOK_DEFAULTS.pauseAfterMs,
      description: 'an endpoint that has failed for so long is paused',
    }),
    keepMs: Type.Integer({
      minimum: 1_000,
      default: WEBHOOK_DEFAULTS.keepMs,
      description: 'events that could not be delivered for so long are left out',
    }),
  }),
}

const SecretSource = Type.Union([
  Type.Object({ env: Type.String({ minLength: 1 }) }, EXACT),
  Type.Object({ file: Type.String({ minLength: 1 }) }, EXACT),
])

/** A webhook of the configuration file, which names its secrets and does not hold them. */
export const WebhookEntry = Type.Object(
  {
    ...COMMON_FIELDS,
    secrets: Type.Array(SecretSource, {
      minItems: 1,
      maxItems: 8,
      description:
        'where its secrets are, `{"env": "NAME"}` or `{"file": "PATH"}`: each is `whsec_` and ' +
        'base64 of 24 to 64 bytes, and each signs, so that one can be replaced',
      [PROBLEM]: 'must be a list of {"env": "NAME"} or {"file": "PATH"}',
    }),
  },
  EXACT,
)
export type WebhookEntry = Static<typeof WebhookEntry>

/** A webhook as a server takes it. */
export type WebhookOptions = Omit<WebhookEntry, 'secrets' | 'labels'> & {
  readonly labels?: Readonly<Record<string, string>>
  /** Each `whsec_` and base64 of 24 to 64 bytes. */
  readonly secrets: readonly string[]
}

export function eventsOf({ events = DEFAULT_EVENTS }: Pick<WebhookEntry, 'events'>) {
  return events
}

const WEBHOOKS_MAX = 64

/** Throws `invalid_field` for what no single field says. */
export function checkWebhooks<Entry extends Omit<WebhookEntry, 'secrets'>>(
  webhooks: readonly Entry[],
  field = 'webhooks',
): readonly Entry[] {
  if (webhooks.length > WEBHOOKS_MAX) throw invalid(field, `must be at most ${WEBHOOKS_MAX}`)
  const names = new Set<string>()
  for (const [index, webhook] of webhooks.entries()) {
    const { name, url, answers = [], allow = [] } = webhook
    const refuse = (of: string, problem: string) => invalid(`${field}.${index}.${of}`, problem)
    if (names.has(name)) throw refuse('name', 'is the name of two webhooks')
    names.add(name)
    const problem = urlProblem(url, allow)
    if (problem !== null) throw refuse('url', problem)
    if (webhook.include?.includes('link') === true && !isSafeUrl(webhook.linkUrl ?? '')) {
      throw refuse('linkUrl', 'must be an address with https://, or with http:// on loopback')
    }
    if (answers.length > 0 && !eventsOf(webhook).includes('ask.opened')) {
      throw refuse('answers', 'need the event ask.opened')
    }
  }
  return webhooks
}

function urlProblem(text: string, allow: readonly string[]): string | null {
  const url = URL.canParse(text) && !/\s/.test(text) ? new URL(text) : null
  if (url === null || !/^https?:$/.test(url.protocol)) return 'must be an address with https://'
  if (url.username !== '' || url.password !== '') return 'must be without a user and a password'
  if (url.protocol === 'http:' && allow.length === 0) {
    return 'must begin with https://, unless allow names where it leads'
  }
  return null
}
