/** Names and addresses: a server's own, and its clients'. */

/** Loopback as an address that a server may be bound to, or that a client comes from. */
export function isLoopback(address: string): boolean {
  return address === 'localhost' || address === '::1' || /^127(\.\d{1,3}){3}$/.test(address)
}

/** Bound to this, a server is reached by every address of its machine. */
export function isWildcard(address: string): boolean {
  return address === '0.0.0.0' || address === '::'
}

/** An address as it stands in a URL. */
export function urlHost(address: string): string {
  return address.includes(':') ? `[${address}]` : address
}

/** A name or an address; one of IPv6 has its brackets, and colons inside them. */
const HOST_NAME = String.raw`[a-z\d_.-]+|\[[\da-f:.]+\]`
const HOST = new RegExp(`^(${HOST_NAME})(?::(\\d{1,5}))?$`, 'i')
const PORT_MAX = 65_535

export function isHostName(name: string): boolean {
  return new RegExp(`^(?:${HOST_NAME})$`, 'i').test(name)
}

/** A `Host` without its port; null if it is anything but a name and perhaps a port. */
export function hostName(host: string): string | null {
  const [, name = null, port = ''] = HOST.exec(host) ?? []
  return Number(port) > PORT_MAX ? null : (name?.toLowerCase() ?? null)
}

/** An IPv4 address that came in over an IPv6 socket is that IPv4 address. */
export function plainAddress(address: string): string {
  return /^::ffff:(\d+(?:\.\d+){3})$/i.exec(address)?.[1] ?? address
}

/** What counts as one client: an IPv4 address, or the whole /64 network of an IPv6 address. */
export function clientOf(address: string): string {
  const plain = plainAddress(address)
  if (!plain.includes(':') || isLoopback(plain)) return plain
  const [head = '', tail] = (plain.split('%')[0] ?? '').toLowerCase().split('::')
  const before = head.split(':').filter((group) => group !== '')
  const after = tail === undefined ? [] : tail.split(':').filter((group) => group !== '')
  const zeros = Array.from({ length: Math.max(0, 8 - before.length - after.length) }, () => '0')
  return [...before, ...zeros, ...after].slice(0, 4).join(':')
}
