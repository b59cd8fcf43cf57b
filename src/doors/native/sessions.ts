/** Sessions: find or create, list, look at, close. */
import { HoldfastError, invalid, type ListQuery } from '../../core/index.ts'
import { readSessionBody } from '../../wire/bodies.ts'
import { rowView, sessionView } from '../../wire/views.ts'
import type { Exchange } from '../exchange.ts'
import { wholeNumber } from './queries.ts'

export async function createSession(exchange: Exchange): Promise<void> {
  exchange.query([])
  const options = readSessionBody(await exchange.json())
  const session = await exchange.holdfast.resolve(options)
  const { isNew } = session
  const { session: state, queue } = await session.overview()
  const body = { ...sessionView(state, queue), isNew }
  exchange.reply(isNew ? 201 : 200, body, ['Location', sessionPath(session.id)])
}

export function sessionPath(id: string): string {
  return `/v1/sessions/${encodeURIComponent(id)}`
}

export async function listSessions(exchange: Exchange): Promise<void> {
  const query = exchange.query(['state', 'key', 'label', 'limit', 'cursor'])
  const { sessions, nextCursor } = await exchange.holdfast.list({
    ...(query.state === undefined ? {} : { state: stateOf(query.state) }),
    ...(query.key === undefined ? {} : { key: query.key }),
    ...(query.label === undefined ? {} : { label: labelOf(query.label) }),
    ...(query.limit === undefined ? {} : { limit: wholeNumber('limit', query.limit) }),
    ...(query.cursor === undefined ? {} : { cursor: query.cursor }),
  })
  exchange.reply(200, { sessions: sessions.map(rowView), nextCursor })
}

function stateOf(text: string): 'open' | 'closed' {
  if (text === 'open' || text === 'closed') return text
  throw invalid('state', 'must be open or closed')
}

function labelOf(text: string): NonNullable<ListQuery['label']> {
  const colon = text.indexOf(':')
  if (colon < 1) throw invalid('label', 'must be name:value')
  return { name: text.slice(0, colon), value: text.slice(colon + 1) }
}

export async function getSession(exchange: Exchange): Promise<void> {
  exchange.query([])
  const [id = ''] = exchange.params
  const { session, queue } = await exchange.holdfast.session(id).overview()
  exchange.reply(200, sessionView(session, queue))
}

/** Closing what is closed, and erasing what is erased, changes nothing and is no mistake. */
export async function closeSession(exchange: Exchange): Promise<void> {
  const { erase } = exchange.query(['erase'])
  if (erase !== undefined && erase !== 'true' && erase !== 'false') {
    throw invalid('erase', 'must be true or false')
  }
  const [id = ''] = exchange.params
  const session = exchange.holdfast.session(id)
  const erased = await (erase === 'true' ? session.erase() : session.close()).then(
    () => erase === 'true',
    throwUnlessErased,
  )
  exchange.reply(200, { id, state: 'closed', erased })
}

function throwUnlessErased(error: unknown): boolean {
  if (error instanceof HoldfastError && error.code === 'session_erased') return true
  throw error
}
