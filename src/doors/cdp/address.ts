/** What a client's address says: which browser, what of it, and whose session. */
import {
  HoldfastError,
  invalid,
  RECONNECT_POLICIES,
  type Principal,
  type ResolveOptions,
} from '../../core/index.ts'

export type Address = {
  readonly browser: string
  /** What stands before the paths that Chrome has too: `/cdp/NAME`, or nothing. */
  readonly base: string
  /** As Chrome has it, without a slash at the end: `/json/list`. */
  readonly path: string
  /** The parameters as they stood there, for addresses that we hand out. */
  readonly query: string
  /** What follows them in the query: the URL of `/json/new`. */
  readonly rest: string
  /** What lets its holder in instead of a token in a header. */
  readonly ticket: string | undefined
  /** How long a ticket that is asked for is to be good. */
  readonly expiresInMs: number | undefined
  readonly key: string | undefined
  readonly reconnect: ResolveOptions['reconnect']
  readonly graceMs: number | undefined
  readonly ttlMs: number | undefined
  /** The client wants its traffic written down. */
  readonly record: boolean
}

/** An address, and on whose behalf it is used. */
export type CallerAddress = Address & { readonly by: Principal }

/** A port of its own, on which one browser is found where Chrome would have it. */
export type OwnPort = { readonly browser: string; readonly key: string }

const PARAMETER = /^(token|ticket|expiresInMs|key|reconnect|graceMs|ttlMs|record)=([^&]*)(?:&|$)/

/** Asked for with a token, answered with an address for tools that take nothing else. */
export const TICKET_PATH = '/ticket'

export function isCdpPath(url: string): boolean {
  return url.startsWith('/cdp/')
}

/** Throws unless the address is one of this door's. */
export function readAddress(url: string, port: OwnPort | null = null): Address {
  const question = url.indexOf('?')
  const whole = question === -1 ? url : url.slice(0, question)
  const [, name = '', below = ''] =
    port === null || isCdpPath(whole)
      ? (/^\/cdp\/([^/]+)(\/.*)?$/.exec(whole) ?? [])
      : ['', port.browser, whole]
  if (name === '') throw new HoldfastError('route_unknown', 'there is nothing at this path')
  const { query, rest, values } = readQuery(question === -1 ? '' : url.slice(question + 1))
  if (values['token'] !== undefined) throw tokenInQuery(name)
  const path = below.replace(/\/+$/, '')
  if (values['expiresInMs'] !== undefined && path !== TICKET_PATH) {
    throw invalid('expiresInMs', 'is for a ticket that is asked for')
  }
  return {
    browser: decoded(name),
    base: port === null || isCdpPath(whole) ? `/cdp/${name}` : '',
    path,
    query,
    rest,
    ticket: values['ticket'],
    expiresInMs: millisecondsOf('expiresInMs', values['expiresInMs']),
    key: keyOf(values['key']) ?? port?.key,
    reconnect: policyOf(values['reconnect']),
    graceMs: millisecondsOf('graceMs', values['graceMs']),
    ttlMs: millisecondsOf('ttlMs', values['ttlMs']),
    record: flagOf('record', values['record']),
  }
}

/** Addresses are kept in histories, logs and configurations: no token belongs there. */
function tokenInQuery(name: string): HoldfastError {
  const how = `POST /cdp/${name}${TICKET_PATH} with Authorization: Bearer`
  const what = 'answers with a ticket for the address, good for one browser session'
  return new HoldfastError('bad_request', `a token does not belong in an address: ${how} ${what}`)
}

/** The same as it is on every server, also where it came to a port of its own. */
export function plainUrl({ browser, path, query, rest, key }: Address): string {
  const named = key === undefined || /(^|&)key=/.test(query) ? '' : `key=${encodeURIComponent(key)}`
  const search = [named, query, rest].filter((part) => part !== '').join('&')
  return `/cdp/${encodeURIComponent(browser)}${path}${search === '' ? '' : `?${search}`}`
}

/** The parameters stand first: what follows them may be any URL, as it is. */
function readQuery(text: string) {
  const values: Record<string, string> = {}
  let rest = text
  for (let found = PARAMETER.exec(rest); found !== null; found = PARAMETER.exec(rest)) {
    const [whole, name = '', value = ''] = found
    if (Object.hasOwn(values, name)) throw invalid(name, 'must be there only once')
    values[name] = decoded(value.replaceAll('+', ' '))
    rest = rest.slice(whole.length)
  }
  const query = text.slice(0, text.length - rest.length).replace(/&$/, '')
  return { query, rest, values }
}

/** An empty one is no name, and most likely a variable that was not set. */
function keyOf(text: string | undefined): string | undefined {
  if (text === '') throw new HoldfastError('bad_request', 'the key in the address is empty')
  return text
}

function policyOf(text: string | undefined): ResolveOptions['reconnect'] {
  if (text === undefined) return undefined
  const policy = RECONNECT_POLICIES.find((candidate) => candidate === text)
  if (policy !== undefined) return policy
  throw invalid('reconnect', `must be one of ${RECONNECT_POLICIES.join(', ')}`)
}

function flagOf(name: string, text = '0'): boolean {
  if (text === '0' || text === '1') return text === '1'
  throw invalid(name, 'must be 1 or 0')
}

function millisecondsOf(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  if (/^\d{1,12}$/.test(text)) return Number(text)
  throw invalid(name, 'must be a whole number of milliseconds')
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new HoldfastError('bad_request', 'the address has a malformed percent-encoding')
  }
}
