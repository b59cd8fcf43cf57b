/** All routes of a server: the doors', and the few about the server itself. */
import type { IntervalHistogram } from 'node:perf_hooks'
import { Type } from '../schema/typebox.ts'
import { NATIVE_ROUTES } from '../doors/native/routes.ts'
import { problemRefusal, type Exchange, type RefusalForm } from '../doors/exchange.ts'
import { isOpenAiPath, openAiRefusal } from '../doors/openai/errors.ts'
import { openAiRoutes } from '../doors/openai/routes.ts'
import { json, type Route } from '../doors/route.ts'
import { oneOf, orNull } from '../schema/contract.ts'
import { unreadiness } from './health.ts'
import { inspectorAsset, inspectorPage, PAGE_POLICY } from './inspector-page.ts'
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

/** How whatever is asked at this path is refused, also if nothing is there. */
export function refusalForm(target: string): RefusalForm {
  return isOpenAiPath(target) ? openAiRefusal : problemRefusal
}

export function serverRoutes(delay: IntervalHistogram): readonly Route[] {
  const routes: Route[] = [...NATIVE_ROUTES, ...openAiRoutes(), ...statusRoutes(delay)]
  let document = ''
  routes.push({
    method: 'GET',
    path: '/openapi.json',
    name: 'getOpenApi',
    query: null,
    summary: 'This document',
    operation: 'server.look',
    answers: { 200: json('An OpenAPI 3.1 document.', { type: 'object' }) },
    handle: (exchange) => {
      const { basePath } = exchange.context
      const servers = basePath === '' ? {} : { servers: [{ url: basePath }] }
      document ||= JSON.stringify({ ...openApiDocument(routes), ...servers })
      exchange.send(200, 'application/json', document)
    },
  })
  return routes
}

function statusRoutes(delay: IntervalHistogram): readonly Route[] {
  return [
    {
      method: 'GET',
      path: '/',
      name: 'getInspector',
      query: null,
      summary: 'The inspector, a page for people',
      operation: 'server.look',
      answers: { 200: { description: 'HTML.', content: { 'text/html': { type: 'string' } } } },
      handle: sendInspector,
    },
    {
      method: 'GET',
      path: '/assets/:layer/:file',
      name: 'getAsset',
      query: null,
      summary: 'What the inspector is made of',
      operation: 'server.look',
      answers: { 200: { description: 'A module or a style sheet.' } },
      handle: sendAsset,
    },
    {
      method: 'GET',
      path: '/health',
      name: 'getHealth',
      query: null,
      summary: 'Whether the process lives',
      operation: 'server.look',
      answers: { 200: json('It does.', Status) },
      handle: (exchange) => exchange.reply(200, { status: 'ok' }),
    },
    {
      method: 'GET',
      path: '/ready',
      name: 'getReady',
      query: null,
      summary:
        'Whether it takes work: not while it drains, nor when its store has failed or is full',
      operation: 'server.look',
      answers: { 200: json('It does.', Status), 503: notReady, 507: notReady },
      handle: sendReady,
    },
    {
      method: 'GET',
      path: '/v1/browsers',
      name: 'listBrowsers',
      summary: 'The browsers that this node runs now',
      operation: 'browser.read',
      answers: { 200: json('All of them.', BrowserList) },
      handle: sendBrowsers,
    },
    {
      method: 'GET',
      path: '/metrics',
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
  ]
}

const notReady = {
  description: 'It does not; the problem says why.',
  content: { 'application/problem+json': Problem },
}

async function sendBrowsers(exchange: Exchange): Promise<void> {
  const { context } = exchange
  const browsers = (await context.browsers?.()?.browsers()) ?? []
  const node = context.forwards === undefined ? null : context.holdfast.authority.node
  exchange.reply(200, { node, browsers })
}

function sendInspector(exchange: Exchange): void {
  const policy = ['Content-Security-Policy', PAGE_POLICY]
  exchange.send(200, 'text/html; charset=utf-8', inspectorPage(), policy)
}

function sendAsset(exchange: Exchange): void {
  const { type, text } = inspectorAsset(exchange.params.join('/'))
  exchange.send(200, type, text)
}

async function sendReady(exchange: Exchange): Promise<void> {
  const reason = await unreadiness(exchange.context)
  if (reason === null) exchange.reply(200, { status: 'ready' })
  else exchange.refuse(reason)
}
