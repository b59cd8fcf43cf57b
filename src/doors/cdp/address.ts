/** Reads the address of a client: the browser, the path below it, and the session's parameters. */
import { Type } from '../../schema/typebox.ts'
import { HoldfastError, invalid, RECONNECT_POLICIES, type Caller } from '../../core/index.ts'
import { oneOf } from '../../schema/contract.ts'
import { query } from '../route.ts'

const time = Type.Integer({ minimum: 0 })
const PARAMETERS = query({
  token: Type.String(),
  ticket: Type.String(),
  /** How long a requested ticket is valid. */
  expiresInMs: time,
  key: Type.String(),
  reconnect: oneOf(RECONNECT_POLICIES),
  graceMs: time,
  ttlMs: time,
  /** Whether the client wants its traffic recorded. */
  record: oneOf(['1', '0']),
})
const PARAMETER = new RegExp(`^(${Object.keys(PARAMETERS.fields).join('|')})=([^&]*)(?:&|$)`)

export type Address = ReturnType<typeof PARAMETERS.read> & {
  readonly browser: string
  /** What precedes the paths that Chrome has too: `/cdp/NAME`, or nothing. */
  readonly base: string
  /** As in Chrome, without a trailing slash: `/json/list`. */
  readonly path: string
  /** The parameters as received, for addresses that the server hands out. */
  readonly query: string
  /** The rest of the query: the URL of `/json/new`. */
  readonly rest: string
}

/** `session`: the id of the browser session that a ticket is for, if it was made for an id. */
export type CallerAddress = Address & Caller & { readonly session?: string }

/** A port with the paths of one browser at the root, as Chrome has them. */
export type OwnPort = { readonly browser: string; readonly key: string }

/** Where a client with a token requests an address for a tool that accepts nothing else. */
export const TICKET_PATH = '/ticket'

export function isCdpPath(url: string): boolean {
  return url.startsWith('/cdp/')
}

/** Throws unless the address is one of this door's. */
export function readAddress(url: string, port: OwnPort | null = null): Address {
  const question = url.indexOf('?')
  const whole = question === -1 ? url : url.slice(0, question)
  const isAtRoot = port !== null && !isCdpPath(whole)
  const [, name = '', below = ''] = isAtRoot
    ? ['', port.browser, whole]
    : (/^\/cdp\/([^/]+)(\/.*)?$/.exec(whole) ?? [])
  if (name === '') throw new HoldfastError('route_unknown', 'there is nothing at this path')
  const { text, rest, values } = readQuery(question === -1 ? '' : url.slice(question + 1))
  if (values.token !== undefined) throw tokenInQuery(name)
  const { key = port?.key, expiresInMs } = values
  // Most likely a variable that was not set.
  if (key === '') throw new HoldfastError('bad_request', 'the key in the address is empty')
  const path = below.replace(/\/+$/, '')
  if (expiresInMs !== undefined && path !== TICKET_PATH) {
    throw invalid('expiresInMs', `is allowed at ${TICKET_PATH} only`)
  }
  const base = isAtRoot ? '' : `/cdp/${name}`
  return { ...values, key, browser: decoded(name), base, path, query: text, rest }
}

export function assertNoRest({ rest }: Address): void {
  if (rest !== '') throw new HoldfastError('invalid_field', 'the query has an unknown parameter')
}

/** Addresses are stored in histories, logs and configurations, where no token belongs. */
function tokenInQuery(name: string): HoldfastError {
  const how = `POST /cdp/${name}${TICKET_PATH} with Authorization: Bearer`
  const what = 'answers with a ticket for the address, valid for one browser session'
  return new HoldfastError('bad_request', `a token does not belong in an address: ${how} ${what}`)
}

/** The same address on the main port of any server. */
export function plainUrl({
  browser,
  path = '',
  query = '',
  rest = '',
  key,
}: Pick<Address, 'browser'> & Partial<Address>): string {
  const named = key === undefined || /(^|&)key=/.test(query) ? '' : `key=${encodeURIComponent(key)}`
  const search = [named, query, rest].filter((part) => part !== '').join('&')
  return `/cdp/${encodeURIComponent(browser)}${path}${search === '' ? '' : `?${search}`}`
}

/** Parameters come first; what follows them may be any URL. */
function readQuery(search: string) {
  const entries: [string, string][] = []
  let rest = search
  for (let found = PARAMETER.exec(rest); found !== null; found = PARAMETER.exec(rest)) {
    const [whole, name = '', value = ''] = found
    entries.push([name, decoded(value.replaceAll('+', ' '))])
    rest = rest.slice(whole.length)
  }
  const text = search.slice(0, search.length - rest.length).replace(/&$/, '')
  return { text, rest, values: PARAMETERS.read(entries) }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new HoldfastError('bad_request', 'the address has a malformed percent-encoding')
  }
}
