/** Who is let in: `--host`, `--tokens`, and what belongs to them. */
import { HoldfastError } from '../core/index.ts'
import { checkAccessOptions, type AccessOptions } from '../server/access.ts'
import { isLoopback, isWildcard } from '../server/addresses.ts'
import { SERVER_LIMITS } from '../server/limits.ts'
import { listFlag, numberFlag, textFlag, UsageError, type Flags, type Values } from './command.ts'

/** All but the tokens themselves, which are opened later. */
export type AccessSettings = Omit<AccessOptions, 'tokens'> & {
  readonly host: string
  readonly tokensFile: string | null
}

export const ACCESS_FLAGS: Flags = {
  host: { type: 'string' },
  tokens: { type: 'string' },
  'allow-host': { type: 'string', multiple: true },
  'allow-origin': { type: 'string', multiple: true },
  'trust-proxy': { type: 'boolean' },
  rate: { type: 'string' },
}

export const ACCESS_HELP = [
  ['--host ADDRESS', 'the address to listen on; without --tokens a loopback one (127.0.0.1)'],
  ['--tokens FILE', 'who may do what: see holdfast token --help'],
  ['--allow-host NAME', 'a name that the server is called by; may be repeated'],
  ['--allow-origin URL', 'an origin whose pages may use it; may be repeated'],
  ['--trust-proxy', 'a client is who X-Forwarded-For says last'],
  ['--rate N', `requests per second of one address elsewhere (${SERVER_LIMITS.requestsPerSecond})`],
] as const

export function readAccess(values: Values): AccessSettings {
  const host = textFlag(values, 'host') ?? '127.0.0.1'
  const tokensFile = textFlag(values, 'tokens')
  const allowHosts = listFlag(values, 'allow-host')
  if (tokensFile === null && !isLoopback(host)) {
    throw new UsageError(
      `--host ${host} is no loopback address and would be open to others: add --tokens FILE`,
    )
  }
  if (isWildcard(host) && allowHosts.length === 0) {
    throw new UsageError(`--host ${host} needs --allow-host NAME: what others call this server`)
  }
  const requestsPerSecond = numberFlag(values, 'rate', {
    fallback: SERVER_LIMITS.requestsPerSecond,
    min: 1,
    max: 1_000_000,
  })
  const settings: AccessSettings = {
    host,
    tokensFile,
    allowHosts,
    allowOrigins: listFlag(values, 'allow-origin'),
    trustProxy: values['trust-proxy'] === true,
    rates: { requestsPerSecond, requestsBurst: 2 * requestsPerSecond },
  }
  checkNames(settings)
  return settings
}

const FLAG_OF: Readonly<Record<string, string>> = {
  allowHosts: '--allow-host',
  allowOrigins: '--allow-origin',
}

/** Stands for the tokens until their file is opened. */
const SOME_TOKENS = { scopesOf: () => null, revision: () => 0, close: () => undefined }

function checkNames({ host, tokensFile, ...options }: AccessSettings): void {
  try {
    checkAccessOptions(host, tokensFile === null ? options : { ...options, tokens: SOME_TOKENS })
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error
    const field = String(error.details['field'])
    throw new UsageError(error.message.replace(field, FLAG_OF[field] ?? field))
  }
}
