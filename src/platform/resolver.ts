/**
 * From the name of a host to its addresses. What is checked by a rule must be what is connected to:
 * `pinned` makes a connection use the addresses that were checked, so that a name that resolves
 * differently the next time gains nothing.
 */
import { lookup, Resolver } from 'node:dns/promises'
import { isIP, type LookupFunction } from 'node:net'
import type { EgressRule } from './egress.ts'

/** The addresses of a host name. */
export type ResolveHost = (name: string) => Promise<readonly string[]>

export type ResolverOptions = {
  /** By default by the name servers, or as the system does it for hosts that the rule names. */
  readonly resolve?: ResolveHost | undefined
  /** `ADDRESS:PORT` of the name servers; by default those of the system. */
  readonly nameServers?: readonly string[] | undefined
}

/** How long one try to resolve a name takes, and how many there are. */
const RESOLVE_MS = 4_000
const RESOLVE_TRIES = 2

export class HostResolver {
  readonly #resolve: ResolveHost | undefined
  readonly #resolver = new Resolver({ timeout: RESOLVE_MS, tries: RESOLVE_TRIES })

  constructor({ resolve, nameServers }: ResolverOptions = {}) {
    this.#resolve = resolve
    if (nameServers !== undefined) this.#resolver.setServers(nameServers)
  }

  /** The addresses of a host; of an address, that. */
  async addressesOf(host: string, rule: EgressRule): Promise<readonly string[]> {
    if (isIP(host) !== 0) return [host]
    if (this.#resolve !== undefined) return this.#resolve(host)
    const isLocal = !host.replace(/\.$/, '').includes('.') || rule.isNamed(host)
    return isLocal ? resolveBySystem(host) : resolveByServers(this.#resolver, host)
  }

  close(): void {
    this.#resolver.cancel()
  }
}

/**
 * Resolves as the system does, with its file of hosts. That takes a thread of Node for as long as
 * the name server is silent, so names that others choose freely must not be resolved by it.
 */
const resolveBySystem: ResolveHost = async (name) => {
  return (await lookup(name, { all: true })).map(({ address }) => address)
}

/** Asks the name servers, without a thread. */
async function resolveByServers(resolver: Resolver, name: string): Promise<readonly string[]> {
  const found = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)])
  return found.flatMap((each) => (each.status === 'fulfilled' ? each.value : []))
}

/** A look-up that finds these addresses, whatever it is asked. */
export function pinned(addresses: readonly string[]): LookupFunction {
  const found = addresses.map((address) => ({ address, family: isIP(address) }))
  return (_name, _options, done) => done(null, found)
}
