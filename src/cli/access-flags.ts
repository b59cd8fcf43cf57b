/** Which clients `serve` admits: `--host`, `--tokens` and related flags. */
import { HoldfastError } from '../core/index.ts'
import { checkAccessOptions, type AccessOptions } from '../server/access.ts'
import { isLoopback, isWildcard } from '../server/addresses.ts'
import { RATE_LIMITS } from '../server/limits.ts'
import { number, orElse, repeated, text, toggle, UsageError, type FlagValues } from './flags.ts'

export const ACCESS_FLAGS = {
  host: orElse(
    text('ADDRESS', 'the address to listen on; without --tokens only a loopback address'),
    '127.0.0.1',
  ),
  tokens: text(
    'FILE',
    'the tokens file; without it every client on this machine may do everything',
  ),
  'allow-host': repeated(
    'NAME',
    'a host name of the server, without port; required with --host 0.0.0.0 or ::',
  ),
  'allow-origin': repeated(
    'URL',
    'another origin whose pages may use the server, like https://app.example',
  ),
  'trust-proxy': toggle(
    "all requests come through a proxy: a client's address is the last in X-Forwarded-For",
  ),
  rate: orElse(
    number('N', 'requests per second from one remote address, with bursts of twice as many', {
      min: 1,
      max: 1_000_000,
    }),
    RATE_LIMITS.requestsPerSecond,
  ),
}

export function readAccess(values: FlagValues<typeof ACCESS_FLAGS>): Omit<AccessOptions, 'tokens'> {
  const { host, tokens, 'allow-host': allowHosts, rate } = values
  if (tokens === null && !isLoopback(host)) {
    throw new UsageError(
      `--host ${host} is not a loopback address and would be open to others: add --tokens FILE`,
    )
  }
  if (isWildcard(host) && allowHosts.length === 0) {
    throw new UsageError(`--host ${host} needs --allow-host NAME: a host name of this server`)
  }
  const options = {
    allowHosts,
    allowOrigins: values['allow-origin'],
    trustProxy: values['trust-proxy'],
    rates: { requestsPerSecond: rate, requestsBurst: 2 * rate },
  }
  checkNames(host, tokens === null ? options : { ...options, tokens: SOME_TOKENS })
  return options
}

const FLAG_OF: Readonly<Record<string, string>> = {
  allowHosts: '--allow-host',
  allowOrigins: '--allow-origin',
}

/** Stands for the tokens until their file is opened. */
const SOME_TOKENS = { scopesOf: () => null, revision: () => 0, close: () => undefined }

function checkNames(host: string, options: AccessOptions): void {
  try {
    checkAccessOptions(host, options)
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error
    const field = String(error.details['field'])
    throw new UsageError(error.message.replace(field, FLAG_OF[field] ?? field))
  }
}
