/** The routes of browsers, for people and programs that look on: not of the protocol itself. */
import { HoldfastError, invalid } from '../core/index.ts'
import type { Exchange } from '../doors/exchange.ts'
import { json, query, routes, sessionOfPath, visibleRef } from '../doors/route.ts'
import { oneOf, orNull } from '../schema/contract.ts'
import { Type } from '../schema/typebox.ts'

const text = Type.String()
const count = Type.Integer()
const BrowserList = Type.Object({
  node: orNull(text, {
    description: 'Whose these are; other nodes run others. Null: there are no other nodes.',
  }),
  browsers: Type.Array(
    Type.Object({
      name: text,
      session: orNull(text, { description: 'Whose it is alone; null: shared.' }),
      key: orNull(text),
      health: oneOf(['good', 'silent']),
      pid: orNull(count),
      sessions: count,
      clients: count,
      pages: count,
      startedAt: count,
      memoryBytes: orNull(count),
      open: Type.Array(
        Type.Object({
          session: text,
          key: orNull(text),
          clients: count,
          pages: Type.Array(Type.Object({ id: text, type: text, title: text, url: text })),
        }),
        { description: 'The sessions on it that the caller may see, with their pages.' },
      ),
    }),
  ),
})

const Ticket = Type.Object({
  ticket: text,
  session: text,
  expiresAt: count,
  url: Type.String({ description: 'For clients that take the address of a browser.' }),
  webSocketUrl: text,
})

const SCREENSHOT_QUERY = query({
  page: Type.String({ description: 'The id of a page; by default the newest.' }),
})

const LIST_QUERY = query({
  node: Type.String({ description: 'The node whose browsers are wanted; by default, any.' }),
  session: Type.String({ description: 'A session: the node that has it answers.' }),
})

export const browserRoutes = routes({
  'GET /v1/browsers': {
    name: 'listBrowsers',
    summary: 'The browsers that a node runs now',
    operation: 'browser.read',
    query: LIST_QUERY,
    answers: { 200: json('All of them.', BrowserList) },
    node: ({ search }) => LIST_QUERY.read(search).node ?? null,
    session: ({ search, holdfast }) => {
      const { session } = LIST_QUERY.read(search)
      return session === undefined ? null : visibleRef(holdfast.session(session), 'browser.read')
    },
    handle: async (exchange) => {
      const { browsers, forwards, holdfast } = exchange.context
      const { node } = holdfast.authority
      const { node: wanted = node, session } = LIST_QUERY.read(exchange.search)
      if (wanted !== node) throw invalid('node', 'is no node that can be reached')
      if (session !== undefined) await exchange.holdfast.session(session).assertMay('browser.read')
      exchange.reply(200, {
        node: forwards === undefined ? null : node,
        browsers: (await browsers()?.browsers(exchange.holdfast)) ?? [],
      })
    },
  },
  'GET /v1/browsers/:session/screenshot': {
    name: 'getScreenshot',
    summary: 'A picture of a page of a browser session, at most a second old',
    operation: 'browser.read',
    query: SCREENSHOT_QUERY,
    answers: {
      200: { description: 'A JPEG.', content: { 'image/jpeg': { type: 'string' } } },
    },
    refusals: [404],
    session: sessionOfPath,
    handle: async (exchange) => {
      const { page } = SCREENSHOT_QUERY.read(exchange.search)
      const picture = await browsersOf(exchange).screenshot(exchange, page)
      exchange.send(200, 'image/jpeg', picture)
    },
  },
  'POST /v1/browsers/:session/ticket': {
    name: 'createBrowserTicket',
    summary: 'An address by which a browser session can be used for a few minutes, without a token',
    operation: 'browser.use',
    answers: { 201: json('The ticket.', Ticket) },
    refusals: [404],
    // What limits a caller to some agents says nothing about browsers.
    session: ({ session }) => visibleRef(session, 'browser.read'),
    handle: (exchange) => browsersOf(exchange).sendTicketFor(exchange),
  },
})

function browsersOf({ context }: Exchange) {
  const browsers = context.browsers()
  if (browsers !== null) return browsers
  throw new HoldfastError('target_unknown', 'this server has no browsers')
}
