/** All routes of a server: the doors', and the few about the server itself. */
import type { IntervalHistogram } from 'node:perf_hooks'
import { asHoldfastError, HoldfastError } from '../core/index.ts'
import { problemRefusal, type RefusalForm, type ServerContext } from '../doors/exchange.ts'
import { NATIVE_ROUTES } from '../doors/native/routes.ts'
import { isOpenAiPath, openAiRefusal } from '../doors/openai/errors.ts'
import { openAiRoutes } from '../doors/openai/routes.ts'
import { json, routes, type Route } from '../doors/route.ts'
import { oneOf, orNull } from '../schema/contract.ts'
import { Type } from '../schema/typebox.ts'
import { drainingError } from './forwarding/forwarder.ts'
import { inspectorAsset, inspectorPage, PAGE_POLICY } from './inspector-page.ts'
import { SERVER_LIMITS, within } from './limits.ts'
import { METRICS_TYPE, renderMetrics } from './metrics.ts'
import { openApiDocument, Problem } from './openapi.ts'

const Status = Type.Object({ status: Type.String() })

const count = Type.Integer()
const BrowserList = Type.Object({
  node: orNull(Type.String(), {
    description: 'Whose these are; other nodes run others. Null: there are no other nodes.',
  }),
  browsers: Type.Array(
    Type.Object({
      name: Type.String(),
      session: orNull(Type.String(), { description: 'Whose it is alone; null: shared.' }),
      key: orNull(Type.String()),
      health: oneOf(['good', 'silent']),
      pid: orNull(count),
      sessions: count,
      clients: count,
      pages: count,
      startedAt: count,
      memoryBytes: orNull(count),
    }),
  ),
})

const notReady = {
  description: 'It does not; the problem says why.',
  content: { 'application/problem+json': Problem },
}

/** How whatever is asked at this path is refused, also if nothing is there. */
export function refusalForm(target: string): RefusalForm {
  return isOpenAiPath(target) ? openAiRefusal : problemRefusal
}

export function serverRoutes(delay: IntervalHistogram): readonly Route[] {
  let document = ''
  const all: readonly Route[] = [
    ...NATIVE_ROUTES,
    ...openAiRoutes(),
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
        answers: { 200: json('It does.', Status), 503: notReady, 507: notReady },
        handle: async (exchange) => {
          const reason = await unreadiness(exchange.context)
          if (reason === null) exchange.reply(200, { status: 'ready' })
          else exchange.refuse(reason)
        },
      },
      'GET /v1/browsers': {
        name: 'listBrowsers',
        summary: 'The browsers that this node runs now',
        operation: 'browser.read',
        answers: { 200: json('All of them.', BrowserList) },
        handle: async (exchange) => {
          const { browsers, forwards, holdfast } = exchange.context
          const node = forwards === undefined ? null : holdfast.authority.node
          exchange.reply(200, { node, browsers: (await browsers()?.browsers()) ?? [] })
        },
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
          exchange.send(200, METRICS_TYPE, await renderMetrics(exchange.context, delay)),
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
