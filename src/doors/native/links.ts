/**
 * Links: capabilities for one session. The token is in the answer to the request that made it, and
 * nowhere else; in the URL it is in the fragment, which browsers do not send.
 */
import { HoldfastError, invalid } from '../../core/index.ts'
import { readLinkBody, type LinkBody } from '../../wire/bodies.ts'
import { linkView } from '../../wire/views.ts'
import { sessionLocation } from './sessions.ts'
import type { Exchange } from '../exchange.ts'

export async function createLink(exchange: Exchange): Promise<void> {
  const [id = ''] = exchange.params
  const { scopes, uses, ...end } = readLinkBody(await exchange.json())
  const now = exchange.holdfast.authority.clock.now()
  const options = { scopes: [...new Set(scopes)], uses, expiresAt: endOf(end, now) }
  const { token, ...link } = await exchange.holdfast.session(id).createLink(options)
  const url = `${serverUrl(exchange)}/#/link/${encodeURIComponent(id)}/${token}`
  const location = `${sessionLocation(exchange, id)}/links/${link.id}`
  exchange.reply(201, { ...linkView(link), token, url }, ['Location', location])
}

/** When the link ends. One that would be over already is a mistake. */
function endOf({ expiresInMs, expiresAt }: Partial<LinkBody>, now: number): number | null {
  if (typeof expiresAt === 'number' && expiresAt <= now) {
    throw invalid('expiresAt', 'must be in the future')
  }
  return expiresInMs === undefined ? (expiresAt ?? null) : now + expiresInMs
}

/** Where the caller reached this server: its name has been checked. */
function serverUrl(exchange: Exchange): string {
  const host = exchange.header('host')
  const isSecure =
    exchange.header('x-forwarded-proto') === 'https' ||
    exchange.header('origin') === `https://${host}`
  return `${isSecure ? 'https' : 'http'}://${host}${exchange.context.basePath}`
}

export async function getLinks(exchange: Exchange): Promise<void> {
  const [id = ''] = exchange.params
  const { links } = await exchange.holdfast.session(id).state()
  exchange.reply(200, { links: links.map(linkView) })
}

/** The links of a session that is over are over with it. */
export async function revokeLink(exchange: Exchange): Promise<void> {
  const [id = '', link = ''] = exchange.params
  await exchange.holdfast.session(id).revokeLink(link).catch(throwUnlessOver)
  exchange.reply(200, { id: link, state: 'revoked' })
}

function throwUnlessOver(error: unknown): void {
  const code = error instanceof HoldfastError ? error.code : null
  if (code !== 'session_closed' && code !== 'session_erased') throw error
}
