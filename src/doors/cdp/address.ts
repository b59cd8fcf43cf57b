/** Reads the address of a client: the browser, the path below it, and the session's parameters. */
import {
  HoldfastError,
  invalid,
  RECONNECT_POLICIES,
  type Principal,
  type ResolveOptions,
} from '../../core/index.ts'

export type Address = {
  readonly browser: string
  /** What precedes the paths that Chrome has too: `/cdp/NAME`, or nothing. */
  readonly base: string
  /** As in Chrome, without a trailing slash: `/json/list`. */
  readonly path: string
  /** The parameters as received, for addresses that the server hands out. */
  readonly query: string
  /** The rest of the query: the URL of `/json/new`. */
  readonly rest: string
  readonly ticket: string | undefined
  /** How long a requested ticket is valid. */
  readonly expiresInMs: number | undefined
  readonly key: string | undefined
  readonly reconnect: ResolveOptions['reconnect']
  readonly graceMs: number | undefined
  readonly ttlMs: number | undefined
  /** The client wants its traffic recorded. */
  readonly record: boolean
}

export type CallerAddress = Address & { readonly by: Principal }

/** A port with the paths of one browser at the root, as Chrome has them. */
export type OwnPort = { readonly browser: string; readonly key: string }

const PARAMETER = /^(token|ticket|expiresInMs|key|reconnect|graceMs|ttlMs|record)=([^&]*)(?:&|$)/

/** Where a client with a token requests an address for a tool that accepts nothing else. */
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
    throw invalid('expiresInMs', `is allowed at ${TICKET_PATH} only`)
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

/** Addresses are stored in histories, logs and configurations, where no token belongs. */
function tokenInQuery(name: string): HoldfastError {
  const how = `POST /cdp/${name}${TICKET_PATH} with Authorization: Bearer`
  const what = 'answers with a ticket for the address, valid for one browser session'
  return new HoldfastError('bad_request', `a token does not belong in an address: ${how} ${what}`)
}

/** The same address on the main port of any server. */
export function plainUrl({ browser, path, query, rest, key }: Address): string {
  const named = key === undefined || /(^|&)key=/.test(query) ? '' : `key=${encodeURIComponent(key)}`
  const search = [named, query, rest].filter((part) => part !== '').join('&')
  return `/cdp/${encodeURIComponent(browser)}${path}${search === '' ? '' : `?${search}`}`
}

/** Parameters come first; what follows them may be any URL. */
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

/** An empty key is most likely a variable that was not set. */
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
