/** Sessions: find or create, list, look at, close. */
import { HoldfastError, type ListQuery, type SessionRef } from '../../core/index.ts'
import { readSessionBody } from '../../wire/bodies.ts'
import { rowView, sessionPath, sessionView } from '../../wire/views.ts'
import type { Exchange } from '../exchange.ts'
import { CLOSE_QUERY, LIST_QUERY } from './queries.ts'

export async function createSession(exchange: Exchange): Promise<void> {
  const options = readSessionBody(await exchange.json())
  const session = await exchange.holdfast.resolve(options)
  const { isNew } = session
  const { session: state, queue } = await session.overview()
  const body = { ...sessionView(state, queue), isNew }
  exchange.reply(isNew ? 201 : 200, body, ['Location', sessionLocation(exchange, session.id)])
}

/** By its id or key; null: a new one is made here. The handler checks the fields. */
export async function sessionOfBody(exchange: Exchange): Promise<SessionRef | null> {
  const { id, key } = ((await exchange.json()) ?? {}) as Readonly<Record<string, unknown>>
  if (typeof id === 'string') return { id }
  return typeof key === 'string' ? { key } : null
}

/** The path of a session on this server, for `Location`. */
export function sessionLocation({ context }: Exchange, id: string): string {
  return `${context.basePath}${sessionPath(id)}`
}

export async function listSessions(exchange: Exchange): Promise<void> {
  const { label, ...query } = LIST_QUERY.read(exchange.search)
  const labelled = label === undefined ? {} : { label: labelOf(label) }
  const { sessions, nextCursor } = await exchange.holdfast.list({ ...query, ...labelled })
  exchange.reply(200, { sessions: sessions.map(rowView), nextCursor })
}

function labelOf(text: string): NonNullable<ListQuery['label']> {
  const colon = text.indexOf(':')
  return { name: text.slice(0, colon), value: text.slice(colon + 1) }
}

export async function getSession(exchange: Exchange): Promise<void> {
  const [id = ''] = exchange.params
  const { session, queue } = await exchange.holdfast.session(id).overview()
  exchange.reply(200, sessionView(session, queue))
}

/** Closing what is closed, and erasing what is erased, changes nothing and is no mistake. */
export async function closeSession(exchange: Exchange): Promise<void> {
  const { erase = false } = CLOSE_QUERY.read(exchange.search)
  const [id = ''] = exchange.params
  const session = exchange.holdfast.session(id)
  const erased = await (erase ? session.erase() : session.close()).then(
    () => erase,
    throwUnlessErased,
  )
  exchange.reply(200, { id, state: 'closed', erased })
}

function throwUnlessErased(error: unknown): boolean {
  if (error instanceof HoldfastError && error.code === 'session_erased') return true
  throw error
}
