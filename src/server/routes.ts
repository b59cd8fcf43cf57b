/**
 * All routes of a server: the doors', and the few about the server itself. The OpenAPI 3.1 document
 * is made from the very table that routes requests.
 */
import { asHoldfastError, HoldfastError, SCOPES } from '../core/index.ts'
import { negotiate, type Exchange, type ServerContext } from '../doors/exchange.ts'
import { askRoutes } from '../doors/native/asks.ts'
import { logRoutes } from '../doors/native/log.ts'
import * as native from '../doors/native/schemas.ts'
import { sessionRoutes } from '../doors/native/sessions.ts'
import { blobRoutes } from '../doors/native/blobs.ts'
import { turnRoutes } from '../doors/native/turns.ts'
import { isOpenAiPath, openAiRefusal } from '../doors/openai/errors.ts'
import { openAiRoutes } from '../doors/openai/routes.ts'
import * as openai from '../doors/openai/schemas.ts'
import { problemRefusal, type Refusal } from '../doors/refusals.ts'
import {
  json,
  NO_QUERY,
  query,
  routes,
  type Query,
  type Route,
  type Schema,
} from '../doors/route.ts'
import { DEFAULT_PRINCIPAL, OPERATIONS } from '../core/access.ts'
import { BUDGETS, type BudgetName } from '../core/budgets.ts'
import { oneOf, orNull } from '../schema/contract.ts'
import { Kind, Type } from '../schema/typebox.ts'
import * as bodies from '../wire/bodies.ts'
import { PROBLEM_TYPE } from '../wire/problem.ts'
import { VERSION } from '../wire/version.ts'
import type { AcpHttp } from './acp-http.ts'
import { askLinkRoutes, type AskLinks } from './ask-links.ts'
import { acpRoutes } from './acp-routes.ts'
import { browserRoutes } from './browser-routes.ts'
import { drainingError } from './forwarding/forwarder.ts'
import { inspectorAsset, inspectorPage, PAGE_POLICY } from './inspector-page.ts'
import { SERVER_LIMITS, within } from './limits.ts'
import { METRICS_TYPE, renderMetrics } from './metrics.ts'
import type { Recorder } from './recorder.ts'
import { statsRoutes } from './stats.ts'
import { webhookRoutes } from './webhooks/routes.ts'
import type { Webhooks } from './webhooks/webhooks.ts'
import { storageRoutes } from './storage-routes.ts'

const text = Type.String()
const count = Type.Integer()
export const Problem = Type.Object({
  type: text,
  title: text,
  status: Type.Integer(),
  code: Type.String({ description: 'What programs branch on.' }),
  detail: Type.String({ description: 'One sentence for people.' }),
  position: Type.Optional(
    Type.Integer({ description: 'With session_busy: the place in the queue.' }),
  ),
  retryAfterMs: Type.Optional(Type.Integer()),
})

const Self = Type.Object({
  principal: Type.String({ description: 'Whose its sessions are.' }),
  scopes: Type.Array(oneOf(SCOPES), { description: 'With all that they include.' }),
  version: Type.String({ description: 'Of the server.' }),
  budgets: Type.Array(
    Type.Object({
      budget: oneOf(Object.keys(BUDGETS) as BudgetName[]),
      limit: Type.Number(),
      used: Type.Number({ description: 'On all nodes, since the day of UTC began.' }),
      resetsAt: Type.Number({ description: 'When the next day begins.' }),
    }),
    { description: 'What it may use in a day, and has used; empty: it has no budget.' },
  ),
})
const Status = Type.Object({ status: text })
const Readiness = Type.Object({ status: text, warnings: Type.Optional(Type.Array(text)) })
const notReady = {
  description: 'It does not; the problem says why.',
  content: { [PROBLEM_TYPE]: Problem },
}

/** How whatever is asked at this path is refused, also if nothing is there. */
export function refusalAt(target: string, error: HoldfastError): Refusal {
  return isOpenAiPath(target) ? openAiRefusal(error) : problemRefusal(error)
}

export const NATIVE_ROUTES = [
  ...sessionRoutes,
  ...askRoutes,
  ...turnRoutes,
  ...blobRoutes,
  ...logRoutes,
]

export type ServerParts = {
  readonly recorder: Recorder
  readonly acp: () => AcpHttp
  readonly webhooks: Webhooks
  readonly askLinks: AskLinks
}

export function serverRoutes(parts: ServerParts): readonly Route[] {
  const { recorder, acp, webhooks, askLinks } = parts
  let document = ''
  const all: readonly Route[] = [
    ...NATIVE_ROUTES,
    ...openAiRoutes(),
    ...statsRoutes(recorder),
    ...browserRoutes,
    ...acpRoutes(acp),
    ...webhookRoutes(webhooks),
    ...storageRoutes,
    ...askLinkRoutes(askLinks),
    ...routes({
      'GET /': {
        name: 'getInspector',
        query: null,
        summary: 'The inspector, a page for people',
        operation: 'server.look',
        answers: { 200: { description: 'HTML.', content: { 'text/html': { type: 'string' } } } },
        handle: (exchange) => {
          const policy = ['Content-Security-Policy', PAGE_POLICY]
          exchange.send(200, 'text/html; charset=utf-8', inspectorPage(), policy)
        },
      },
      'GET /assets/:layer/:file': {
        name: 'getAsset',
        query: null,
        summary: 'What the inspector is made of',
        operation: 'server.look',
        answers: { 200: { description: 'A module or a style sheet.' } },
        handle: (exchange) => {
          const { type, text } = inspectorAsset(exchange.params.join('/'))
          exchange.send(200, type, text)
        },
      },
      'GET /health': {
        name: 'getHealth',
        query: null,
        summary: 'Whether the process lives',
        operation: 'server.look',
        answers: { 200: json('It does.', Status) },
        handle: (exchange) => exchange.reply(200, { status: 'ok' }),
      },
      'GET /ready': {
        name: 'getReady',
        query: null,
        summary:
          'Whether it takes work: not while it drains, nor when its store has failed or is full',
        operation: 'server.look',
        answers: { 200: json('It does.', Readiness), 503: notReady, 507: notReady },
        handle: async (exchange) => {
          const reason = await unreadiness(exchange.context)
          if (reason !== null) return exchange.refuse(reason)
          const warnings = exchange.context.warnings()
          exchange.reply(200, { status: 'ready', ...(warnings.length === 0 ? {} : { warnings }) })
        },
      },
      'GET /v1/me': {
        name: 'getCaller',
        query: null,
        summary: 'What the caller may do here',
        operation: 'caller.read',
        answers: { 200: json('As a page needs it that shows only what its user may do.', Self) },
        handle: async (exchange) => {
          const { access, authority } = exchange.holdfast
          const principal = access?.principal ?? DEFAULT_PRINCIPAL
          const scopes = access?.scopes ?? SCOPES
          const spent = access === null ? [] : await authority.usage.spendings.view(principal)
          exchange.reply(200, { principal, scopes, version: VERSION, budgets: spent })
        },
      },
      'GET /v1/audit': {
        name: 'getAudit',
        summary: 'What happened outside of sessions: one page, or all of it as JSON lines',
        operation: 'audit.read',
        query: AUDIT_QUERY,
        answers: { 200: json('One page.', AuditPage) },
        refusals: [406],
        handle: getAudit,
      },
      'GET /metrics': {
        name: 'getMetrics',
        query: null,
        summary: 'Numbers for Prometheus',
        operation: 'server.measure',
        answers: {
          200: { description: 'Prometheus text.', content: { 'text/plain': { type: 'string' } } },
        },
        handle: async (exchange) =>
          exchange.send(
            200,
            METRICS_TYPE,
            await renderMetrics(exchange.context, recorder, webhooks),
          ),
      },
      'GET /openapi.json': {
        name: 'getOpenApi',
        query: null,
        summary: 'This document',
        operation: 'server.look',
        answers: { 200: json('An OpenAPI 3.1 document.', { type: 'object' }) },
        handle: (exchange) => {
          const { basePath } = exchange.context
          const servers = basePath === '' ? {} : { servers: [{ url: basePath }] }
          document ||= JSON.stringify({ ...openApiDocument(all), ...servers })
          exchange.send(200, 'application/json', document)
        },
      },
    }),
  ]
  return all
}

const AUDIT_PAGE = 500
const AUDIT_QUERY = query({
  after: Type.Integer({
    minimum: 0,
    description: 'The position of the last record that is known.',
  }),
  limit: Type.Integer({ minimum: 1, maximum: AUDIT_PAGE, description: 'How many records.' }),
})
const AuditPage = Type.Object({
  records: Type.Array(
    Type.Object({
      position: count,
      at: Type.Integer({ description: 'Milliseconds since 1970.' }),
      address: orNull(Type.String()),
      code: Type.String(),
      node: Type.String(),
      server: Type.Optional(Type.String()),
      message: Type.Optional(Type.String()),
      count: Type.Optional(count),
      facts: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
    }),
  ),
  nextAfter: count,
})

/** As JSON one page, as JSON lines all that there is. */
async function getAudit(exchange: Exchange): Promise<void> {
  const { store } = exchange.holdfast.authority
  const { after = 0, limit = AUDIT_PAGE } = AUDIT_QUERY.read(exchange.search)
  const types = ['application/json', 'application/jsonl'] as const
  const type = negotiate(exchange.header('accept'), types)
  const read = async (from: number) =>
    ((await store.readAudit?.(from, limit)) ?? []).map(({ position, at, address, body }) => {
      // What the next start compares with stays here.
      const { fingerprint: _, ...record } = JSON.parse(body) as Record<string, unknown>
      return { position, at, address, ...record }
    })
  let records = await read(after)
  if (type === 'application/json') {
    return exchange.reply(200, { records, nextAfter: records.at(-1)?.position ?? after })
  }
  exchange.begin(type)
  while (records.length > 0 && !exchange.response.destroyed) {
    await exchange.write(records.map((record) => `${JSON.stringify(record)}\n`).join(''))
    records = await read(records.at(-1)?.position ?? 0)
  }
  exchange.response.end()
}

/** Why no work can be taken, or null if it can. Costs one read at most. */
export async function unreadiness({
  holdfast,
  isDraining,
}: Pick<ServerContext, 'holdfast' | 'isDraining'>): Promise<HoldfastError | null> {
  if (isDraining()) return drainingError()
  const { store } = holdfast.authority
  try {
    const answer = (store.ready?.() ?? store.read('', 0, 0)).then(() => 'ready')
    const isLate = (await within(SERVER_LIMITS.storeAnswerMs, answer)) === null
    return isLate ? new HoldfastError('store_unavailable', 'the store does not answer') : null
  } catch (error) {
    return asHoldfastError(error)
  }
}

/** The statuses that any route may refuse with. */
const COMMON_REFUSALS = [400, 403, 422, 429, 500, 503] as const

/** Exported schemas have a name in the document, that of the export. */
const NAMED = Object.entries<object>({ ...bodies, ...native, ...openai, Problem }).filter(
  ([, exported]) => Kind in exported,
)
const NAMES = new Map<unknown, string>(NAMED.map(([name, schema]) => [schema, name]))

export function openApiDocument(routes: readonly Route[]): Schema {
  const paths: Record<string, Record<string, Schema>> = {}
  for (const route of routes) {
    const path = route.path.replace(/:(\w+)/g, '{$1}')
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operation(route) }
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Holdfast',
      version: VERSION,
      description: 'The session authority: sessions, turns, events and asks.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    paths: withReferences(paths),
    components: {
      schemas: Object.fromEntries(
        NAMED.map(([name, schema]) => [name, withReferences({ ...schema })]),
      ),
      securitySchemes: { token: { type: 'http', scheme: 'bearer' } },
    },
  }
}

/** The same JSON, with a reference in place of each schema that has a name. */
function withReferences(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value
  const name = NAMES.get(value)
  if (name !== undefined) return { $ref: `#/components/schemas/${name}` }
  if (Array.isArray(value)) return value.map(withReferences)
  return Object.fromEntries(
    Object.entries(value).map(([keyword, part]) => [keyword, withReferences(part)]),
  )
}

function operation(route: Route): Schema {
  const {
    name,
    summary,
    operation,
    path,
    headers = [],
    body,
    bodyType = 'application/json',
  } = route
  const { fields }: Query = route.query ?? NO_QUERY
  const scope = OPERATIONS[operation]
  const guarded = scope === null ? [] : [401]
  const statuses = [...COMMON_REFUSALS, ...guarded, ...(route.refusals ?? [])]
  const refused = statuses.map((status) => [status, refusal(status, path)] as const)
  const answered = Object.entries(route.answers).map(([status, answer]) => {
    const { description, content = {} } = answer
    const media = Object.entries(content).map(([type, schema]) => [type, { schema }])
    return [status, { description, content: Object.fromEntries(media) as Schema }] as const
  })
  return {
    operationId: name,
    summary,
    // A server without tokens asks for none.
    security: scope === null ? [] : [{ token: [scope] }, {}],
    parameters: [
      ...Array.from(path.matchAll(/:(\w+)/g), ([, parameter]) => {
        return { name: parameter, in: 'path', required: true, schema: { type: 'string' } }
      }),
      ...Object.entries(fields).map(([field, { description, ...schema }]) => {
        return { name: field, in: 'query', description, required: false, schema }
      }),
      ...headers.map((header) => {
        return { ...header, in: 'header', required: false, schema: { type: 'string' } }
      }),
    ],
    ...(body && {
      requestBody: { required: true, content: { [bodyType]: { schema: body } } },
    }),
    responses: Object.fromEntries([...refused, ...answered]),
  }
}

function refusal(status: number, path: string): Schema {
  const content = isOpenAiPath(path)
    ? { 'application/json': { schema: openai.OpenAiError } }
    : { [PROBLEM_TYPE]: { schema: Problem } }
  return { description: `Refused with ${status}.`, content }
}
