/**
 * Who may talk to a server without tokens: programs on this machine, and pages it served itself.
 * A web page elsewhere can make a browser send requests here, by a name of its own that leads to
 * loopback (refused by `Host`) or across origins (refused by `Origin`).
 */
import type { IncomingHttpHeaders } from 'node:http'
import { HoldfastError } from '../core/index.ts'

const LOOPBACK_NAMES: ReadonlySet<string> = new Set(['localhost', '127.0.0.1', '[::1]'])

/** Loopback as an address that a server may be bound to. */
export function isLoopback(address: string): boolean {
  return address === 'localhost' || address === '::1' || /^127(\.\d{1,3}){3}$/.test(address)
}

export function checkAccess(headers: IncomingHttpHeaders, boundHost: string): void {
  const { host, origin } = headers
  const name = hostName(host ?? '')
  if (!LOOPBACK_NAMES.has(name) && name !== boundHost) {
    throw new HoldfastError('host_refused', 'the Host header is not a name of this server')
  }
  if (origin !== undefined && origin !== `http://${host}`) {
    throw new HoldfastError('origin_refused', 'a page of another origin may not do this')
  }
}

/** The host without its port. An IPv6 address has its brackets, and colons inside them. */
function hostName(host: string): string {
  const colon = host.lastIndexOf(':')
  const name = colon === -1 || host.endsWith(']') ? host : host.slice(0, colon)
  return name.toLowerCase()
}

/** An address as it stands in a URL. */
export function urlHost(address: string): string {
  return address.includes(':') ? `[${address}]` : address
}
