/**
 * Sessions, their asks, and the links to them.
 *
 * A link is a capability for one session. Its token is in the answer to the request that made it,
 * and nowhere else; in the URL it is in the fragment, which browsers do not send.
 */
import { hostname } from 'node:os'
import {
  HoldfastError,
  invalid,
  STATE_LIMITS,
  type ErrorCode,
  type SessionHandle,
} from '../../core/index.ts'
import { oneOf } from '../../schema/contract.ts'
import { Type } from '../../schema/typebox.ts'
import {
  AdoptRequest,
  AnswerRequest,
  ChangeRequest,
  ForkRequest,
  LinkRequest,
  readAdoptBody,
  readAnswerBody,
  readChangeBody,
  readForkBody,
  readLinkBody,
  readSessionBody,
  readShareBody,
  SessionRequest,
  ShareRequest,
  type LinkBody,
} from '../../wire/bodies.ts'
import { linkView, rowView, sessionView } from '../../wire/views.ts'
import type { Exchange } from '../exchange.ts'
import {
  json,
  LABEL,
  labelOf,
  query,
  routes,
  sessionOfPath,
  visibleRef,
  givenCursor,
  shownCursor,
} from '../route.ts'
import * as schemas from './schemas.ts'

/** A text that is searched for in keys. */
const KEY_PART = { minLength: 1, maxLength: STATE_LIMITS.keyBytesMax }

const LIST_QUERY = query({
  state: oneOf(['open', 'closed'], { description: 'Only open, or only closed ones.' }),
  status: oneOf(['idle', 'failed', 'queued', 'running', 'waiting', 'closed'], {
    description: 'Only those that are doing this.',
  }),
  agent: Type.String({ description: 'Only those of this agent.' }),
  principal: Type.String({ description: 'Only those that belong to it.' }),
  key: Type.String({ description: 'Only those of this key.' }),
  prefix: Type.String({ ...KEY_PART, description: 'Only keys that begin so, in any case.' }),
  q: Type.String({ ...KEY_PART, description: 'Only keys with this in them, in any case.' }),
  label: Type.Array(LABEL, {
    maxItems: 32,
    description: 'Only those with this label, as name:value; several times: with all of them.',
  }),
  sort: oneOf(['created', 'activity'], { description: 'By when they were made, or last changed.' }),
  order: oneOf(['desc', 'asc'], { description: 'The newest first, or the oldest.' }),
  count: Type.Boolean({ description: 'Also how many there are on all pages, up to 10,000.' }),
  limit: Type.Integer({ minimum: 1, description: 'How many; at most the limit listMax.' }),
  cursor: Type.String({ description: 'The nextCursor of the page before.' }),
})
const CLOSE_QUERY = query({
  erase: Type.Boolean({ description: 'Also erase its log for ever.' }),
})

const TERMINAL = {
  operation: 'session.open',
  answers: { 200: json('The command, and where to run it.', schemas.TerminalCommand) },
  refusals: [404, 410, 422],
  session: sessionOfPath,
} as const

export const sessionRoutes = routes({
  'POST /v1/sessions': {
    name: 'createSession',
    summary: 'Find the session of a key or an id, or create it',
    operation: 'session.create',
    body: SessionRequest,
    answers: {
      200: json('It was there.', schemas.ResolvedSession),
      201: json('It was created by this very request.', schemas.ResolvedSession),
    },
    refusals: [409, 410, 413, 415, 429],
    // Null: a new one is made here. The handler checks the fields.
    session: async (exchange) => {
      const { id, key } = ((await exchange.json()) ?? {}) as Readonly<Record<string, unknown>>
      if (typeof id === 'string') return visibleRef(exchange.holdfast.session(id), 'session.read')
      return typeof key === 'string' ? exchange.holdfast.refOf(key) : null
    },
    handle: async (exchange) => {
      const session = await exchange.holdfast.resolve(readSessionBody(await exchange.json()))
      await replyResolved(exchange, session)
    },
  },
  'GET /v1/sessions': {
    name: 'listSessions',
    summary: 'List sessions, newest first unless sort and order say otherwise',
    operation: 'session.read',
    query: LIST_QUERY,
    answers: { 200: json('One page.', schemas.SessionPage) },
    handle: async (exchange) => {
      const { label, cursor, q, prefix, ...rest } = LIST_QUERY.read(exchange.search)
      const { sessions, nextCursor, ...counted } = await exchange.holdfast.list({
        ...rest,
        ...(q === undefined ? {} : { keyText: q }),
        ...(prefix === undefined ? {} : { keyPrefix: prefix }),
        ...(label === undefined ? {} : { label: label.map(labelOf) }),
        ...(await givenCursor(exchange, cursor)),
      })
      const next = await shownCursor(exchange, nextCursor)
      exchange.reply(200, { sessions: sessions.map(rowView), nextCursor: next, ...counted })
    },
  },
  'GET /v1/sessions/:id': {
    name: 'getSession',
    summary: 'A session as it is now, open or closed',
    operation: 'session.read',
    answers: { 200: json('The session.', schemas.Session) },
    refusals: [404, 410],
    session: sessionOfPath,
    handle: async (exchange) => {
      exchange.reply(200, sessionView(await exchange.session.overview()))
    },
  },
  'PATCH /v1/sessions/:id': {
    name: 'changeSession',
    summary: 'Change how the agent of a session is to work',
    operation: 'session.configure',
    body: ChangeRequest,
    answers: { 200: json('Its settings, as they are now.', schemas.ChangedSession) },
    refusals: [404, 410, 413, 415, 422],
    session: sessionOfPath,
    handle: async (exchange) => {
      const { session } = exchange
      const { settings: change } = readChangeBody(await exchange.json())
      exchange.reply(200, { id: session.id, settings: await session.configure(change) })
    },
  },
  'POST /v1/sessions/:id/fork': {
    name: 'forkSession',
    summary: 'Make a session that continues from a finished turn of this one',
    operation: 'turn.run',
    body: ForkRequest,
    answers: {
      200: json('It was forked there before, under this key.', schemas.ResolvedSession),
      201: json('The new session.', schemas.ResolvedSession),
    },
    refusals: [404, 409, 410, 413, 415, 422, 429],
    session: sessionOfPath,
    handle: async (exchange) => {
      const [id = ''] = exchange.params
      const options = readForkBody(await exchange.json())
      await replyResolved(exchange, await exchange.holdfast.fork(id, options))
    },
  },
  'POST /v1/agents/:agent/adopt': {
    name: 'adoptConversation',
    summary: 'Continue a conversation of an agent that was begun without Holdfast',
    operation: 'session.adopt',
    body: AdoptRequest,
    answers: {
      200: json('It was adopted before.', schemas.ResolvedSession),
      201: json('Its session.', schemas.ResolvedSession),
    },
    refusals: [409, 413, 415, 422, 429],
    handle: async (exchange) => {
      const [agent = ''] = exchange.params
      const { backend, ...options } = readAdoptBody(await exchange.json())
      await replyResolved(exchange, await exchange.holdfast.adopt(backend, { ...options, agent }))
    },
  },
  'GET /v1/agents': {
    name: 'listAgents',
    summary: 'The agents, and what each can do',
    operation: 'agent.read',
    answers: { 200: json('The agents that the caller may use.', schemas.AgentList) },
    handle: (exchange) => exchange.reply(200, { agents: exchange.holdfast.describeAgents() }),
  },
  'GET /v1/sessions/:id/terminal': {
    name: 'getTerminalCommand',
    summary: "How a person continues a session in the agent's own program",
    ...TERMINAL,
    handle: (exchange) => replyTerminal(exchange, false),
  },
  'POST /v1/sessions/:id/terminal': {
    name: 'openTerminal',
    summary: 'The same, after the idle agent was stopped, so that the program can open the session',
    ...TERMINAL,
    handle: (exchange) => replyTerminal(exchange, true),
  },
  'DELETE /v1/sessions/:id': {
    name: 'closeSession',
    summary: 'Close a session for good; closing it again changes nothing',
    operation: 'session.close',
    query: CLOSE_QUERY,
    answers: { 200: json('It is closed.', schemas.ClosedSession) },
    refusals: [404],
    session: sessionOfPath,
    handle: async (exchange) => {
      const { session } = exchange
      const { erase = false } = CLOSE_QUERY.read(exchange.search)
      const closing = erase ? session.erase() : session.close().then(() => ({ left: [] }))
      const done = await closing.catch(unlessOver('session_erased'))
      const { left } = done === true ? { left: [] } : done
      const erased = erase || done === true
      exchange.reply(200, { id: session.id, state: 'closed', erased, left })
    },
  },
  'GET /v1/sessions/:id/asks': {
    name: 'getAsks',
    summary: 'The questions that wait for an answer',
    operation: 'session.read',
    answers: { 200: json('The asks.', schemas.AskList) },
    refusals: [404, 410],
    session: sessionOfPath,
    handle: async (exchange) => exchange.reply(200, { asks: await exchange.session.asks() }),
  },
  'POST /v1/sessions/:id/asks/:ask': {
    name: 'answerAsk',
    summary: 'Answer a question; the first valid answer wins',
    operation: 'ask.answer',
    body: AnswerRequest,
    answers: { 200: json('It is answered.', schemas.AnsweredAsk) },
    refusals: [404, 409, 410, 413, 415],
    session: sessionOfPath,
    handle: async (exchange) => {
      const [id, ask = ''] = exchange.params
      const { answer } = readAnswerBody(await exchange.json())
      const { missing } = await exchange.session.answer(ask, answer)
      const outcome = missing === 0 ? { outcome: 'answered' } : { outcome: 'approved', missing }
      exchange.reply(200, { session: id, ask: { id: ask, ...outcome, answer } })
    },
  },
  'POST /v1/sessions/:id/links': {
    name: 'createLink',
    summary: 'Make a link that lets its holder into this one session',
    operation: 'link.manage',
    body: LinkRequest,
    answers: { 201: json('The link, with its token.', schemas.CreatedLink) },
    refusals: [404, 410, 413, 415, 429],
    session: sessionOfPath,
    handle: async (exchange) => {
      const { session, holdfast } = exchange
      const { scopes, uses, ...end } = readLinkBody(await exchange.json())
      const expiresAt = endOf(end, holdfast.authority.clock.now())
      const options = { scopes: [...new Set(scopes)], uses, expiresAt }
      const { token, ...link } = await session.createLink(options)
      const url = `${serverUrl(exchange)}/#/link/${encodeURIComponent(session.id)}/${token}`
      const location = `${exchange.locationOf(session.id)}/links/${link.id}`
      exchange.reply(201, { ...linkView(link), token, url }, ['Location', location])
    },
  },
  'GET /v1/sessions/:id/links': {
    name: 'getLinks',
    summary: 'The links of a session, without their tokens',
    operation: 'link.manage',
    answers: { 200: json('The links.', schemas.LinkList) },
    refusals: [404, 410],
    session: sessionOfPath,
    handle: async (exchange) => {
      const links = await exchange.session.links()
      exchange.reply(200, { links: links.map(linkView) })
    },
  },
  'DELETE /v1/sessions/:id/links/:link': {
    name: 'revokeLink',
    summary: 'Revoke a link; revoking it again changes nothing',
    operation: 'link.manage',
    answers: { 200: json('No client can attach by it any more.', schemas.Revoked) },
    refusals: [404],
    session: sessionOfPath,
    handle: async (exchange) => {
      const [, link = ''] = exchange.params
      // The links of a session that is over are over with it.
      await exchange.session.revokeLink(link).catch(unlessOver('session_closed', 'session_erased'))
      exchange.reply(200, { id: link, state: 'revoked' })
    },
  },
  'GET /v1/sessions/:id/grants': {
    name: 'getGrants',
    summary: 'What people have allowed the agent of a session until it is closed',
    operation: 'session.read',
    answers: { 200: json('The grants.', schemas.GrantList) },
    refusals: [404, 410],
    session: sessionOfPath,
    handle: async (exchange) => exchange.reply(200, { grants: await exchange.session.grants() }),
  },
  'DELETE /v1/sessions/:id/grants/:grant': {
    name: 'revokeGrant',
    summary: 'Take back what was allowed, from the next turn on; repeating it changes nothing',
    operation: 'ask.answer',
    answers: { 200: json('It is not allowed any more.', schemas.Revoked) },
    refusals: [404],
    session: sessionOfPath,
    handle: async (exchange) => {
      const [, grant = ''] = exchange.params
      const revoking = exchange.session.revokeGrant(grant)
      await revoking.catch(unlessOver('session_closed', 'session_erased'))
      exchange.reply(200, { id: grant, state: 'revoked' })
    },
  },
  'POST /v1/sessions/:id/shares': {
    name: 'shareSession',
    summary: 'Let a principal or a group use this session; replaces what it was allowed before',
    operation: 'session.share',
    body: ShareRequest,
    answers: { 200: json('It is shared.', schemas.Share) },
    refusals: [404, 410, 413, 415, 429],
    session: sessionOfPath,
    handle: async (exchange) => {
      const share = readShareBody(await exchange.json())
      await exchange.session.share(share)
      exchange.reply(200, share)
    },
  },
  'GET /v1/sessions/:id/shares': {
    name: 'getShares',
    summary: 'With which principals and groups a session is shared',
    operation: 'session.share',
    answers: { 200: json('The shares.', schemas.ShareList) },
    refusals: [404, 410],
    session: sessionOfPath,
    handle: async (exchange) => exchange.reply(200, { shares: await exchange.session.shares() }),
  },
  'DELETE /v1/sessions/:id/shares/:with': {
    name: 'unshareSession',
    summary: 'Stop sharing a session with a principal or a group; repeating it changes nothing',
    operation: 'session.share',
    answers: { 200: json('It is not shared with it any more.', schemas.RemovedShare) },
    refusals: [404],
    session: sessionOfPath,
    handle: async (exchange) => {
      const [, principal = ''] = exchange.params
      const unsharing = exchange.session.unshare(principal)
      await unsharing.catch(unlessOver('session_closed', 'session_erased'))
      exchange.reply(200, { with: principal, state: 'removed' })
    },
  },
})

async function replyResolved(exchange: Exchange, session: SessionHandle): Promise<void> {
  const { id, isNew } = session
  const body = { ...sessionView(await session.overview()), isNew }
  exchange.reply(isNew ? 201 : 200, body, ['Location', exchange.locationOf(id)])
}

/** To end what has ended with one of these codes changes nothing, and is no mistake. */
function unlessOver(...codes: readonly ErrorCode[]): (error: unknown) => true {
  return (error) => {
    if (error instanceof HoldfastError && codes.includes(error.code)) return true
    throw error
  }
}

/** When the link ends. One that would be over already is a mistake. */
function endOf({ expiresInMs, expiresAt }: Partial<LinkBody>, now: number): number | null {
  if (typeof expiresAt === 'number' && expiresAt <= now) {
    throw invalid('expiresAt', 'must be in the future')
  }
  return expiresInMs === undefined ? (expiresAt ?? null) : now + expiresInMs
}

/** Where the caller reached this server: its name has been checked. */
export function serverUrl(exchange: Exchange): string {
  const host = exchange.header('host')
  const isSecure =
    exchange.header('x-forwarded-proto') === 'https' ||
    exchange.header('origin') === `https://${host}`
  return `${isSecure ? 'https' : 'http'}://${host}${exchange.context.basePath}`
}

async function replyTerminal(exchange: Exchange, isToOpen: boolean): Promise<void> {
  const [id = ''] = exchange.params
  exchange.reply(200, { ...(await exchange.holdfast.terminal(id, isToOpen)), host: hostname() })
}
