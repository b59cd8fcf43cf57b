/**
 * Which addresses the pages of a browser, or webhooks, may reach. Public ones always; all others
 * (loopback, private and link-local networks, metadata services, this machine) only if the operator
 * allows them. What counts is the address that a connection is made to, in whichever way it was
 * written and whichever name led to it.
 */
import { BlockList, isIP } from 'node:net'
import { networkInterfaces } from 'node:os'
import { invalid } from '../core/index.ts'

/** `any`: no rule. A list: hosts and ranges that may be reached although they are not public. */
export type EgressOption = 'any' | readonly string[]

/** IPv4 ranges that are not public (IANA's registry of special addresses), and Azure's services. */
const NOT_PUBLIC_4 = [
  ...['0.0.0.0/8', '10.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8', '169.254.0.0/16'],
  ...['172.16.0.0/12', '192.0.0.0/24', '192.0.2.0/24', '192.88.99.0/24', '192.168.0.0/16'],
  ...['198.18.0.0/15', '198.51.100.0/24', '203.0.113.0/24', '224.0.0.0/4', '240.0.0.0/4'],
  '168.63.129.16/32',
]
/** Of IPv6 one range is public, without these: tunnels to IPv4 among them, and documentation. */
const PUBLIC_6 = '2000::/3'
const NOT_PUBLIC_6 = ['2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20']

const ranges = {
  notPublic4: rangesOf(NOT_PUBLIC_4),
  public6: rangesOf([PUBLIC_6]),
  notPublic6: rangesOf(NOT_PUBLIC_6),
}

function rangesOf(texts: readonly string[]): BlockList {
  const list = new BlockList()
  for (const text of texts) {
    const [address = '', bits] = text.split('/')
    list.addSubnet(address, Number(bits), familyOf(address))
  }
  return list
}

function familyOf(address: string): 'ipv4' | 'ipv6' {
  return isIP(address) === 6 ? 'ipv6' : 'ipv4'
}

/** `::ffff:0:0/96` and `64:ff9b::/96`, as decimal groups: the rest is an IPv4 address. */
const IPV4_PREFIXES: ReadonlySet<string> = new Set(['0 0 0 0 0 65535', '100 65435 0 0 0 0'])

/** The IPv4 address that an IPv6 address stands for: mapped, or behind NAT64. Or itself. */
export function plainIp(address: string): string {
  if (isIP(address) !== 6) return address
  const groups = groupsOf(address)
  if (!IPV4_PREFIXES.has(groups.slice(0, 6).join(' '))) return address
  const [high = 0, low = 0] = groups.slice(6)
  return [high >> 8, high & 255, low >> 8, low & 255].join('.')
}

function groupsOf(address: string): readonly number[] {
  // The URL parser writes all forms of an address in one way, without dots.
  const text = new URL(`http://[${address.split('%')[0]}]`).hostname.slice(1, -1)
  const [before = [], after = []] = text.split('::').map((half) => {
    return half === '' ? [] : half.split(':').map((group) => Number.parseInt(group, 16))
  })
  const zeros = Array.from({ length: 8 - before.length - after.length }, () => 0)
  return [...before, ...zeros, ...after]
}

/** Whether a plain address is one of the internet, and not one of this machine. */
export function isPublicAddress(address: string): boolean {
  const isIn = (list: BlockList): boolean => list.check(address, familyOf(address))
  const isGlobal =
    isIP(address) === 6
      ? isIn(ranges.public6) && !isIn(ranges.notPublic6)
      : isIP(address) === 4 && !isIn(ranges.notPublic4)
  return isGlobal && !isOfThisMachine(address)
}

function isOfThisMachine(address: string): boolean {
  const own = new BlockList()
  for (const each of Object.values(networkInterfaces()).flat()) {
    if (each !== undefined) own.addAddress(each.address, familyOf(each.address))
  }
  return own.check(address, familyOf(address))
}

/** One entry of the operator's list. Without a port it stands for all ports. */
type Allowed = {
  readonly port: number | null
  readonly name: string | null
  /** `.example` of `*.example`: every name that ends so. */
  readonly suffix: string | null
  readonly range: BlockList | null
}

/** What an operator allows besides public addresses. */
export class EgressRule {
  readonly #allowed: readonly Allowed[]

  constructor(allowed: readonly Allowed[]) {
    this.#allowed = allowed
  }

  /** Throws `invalid_field` for an entry that is neither a host nor a range. */
  static read(allowed: readonly string[], field = 'egress'): EgressRule {
    return new EgressRule(allowed.map((text) => readAllowed(text, field)))
  }

  /** Whether the operator has named exactly this host, which pages cannot choose freely then. */
  isNamed(host: string): boolean {
    return this.#allowed.some(({ name }) => name === nameOf(host))
  }

  /** Of the addresses that `host` leads to, those that may be connected to. */
  reachable(host: string, port: number, addresses: readonly string[]): readonly string[] {
    const name = nameOf(host)
    const allowed = this.#allowed.filter((each) => each.port === null || each.port === port)
    const isVouchedFor = (each: Allowed): boolean =>
      each.name === name || (each.suffix !== null && name.endsWith(each.suffix))
    if (allowed.some(isVouchedFor)) return addresses
    return addresses.filter((address) => {
      const plain = plainIp(address)
      const isAllowed = ({ range }: Allowed): boolean =>
        range?.check(plain, familyOf(plain)) === true
      return isPublicAddress(plain) || allowed.some(isAllowed)
    })
  }
}

/** Names are compared without case, and without the dot that may end them. */
function nameOf(host: string): string {
  return host.toLowerCase().replace(/\.$/, '')
}

/** A host or an address, which has brackets if a port follows IPv6, perhaps a range, a port. */
const ALLOWED = /^(?:\[([^\]]+)\]|([^/[\]:]+))(?:\/(\d{1,3}))?(?::(\d{1,5}))?$/
const BARE_IPV6 = /^([\da-f]*:[\da-f:.]*:[\da-f.]*)(?:\/(\d{1,3}))?$/i
/** The last label of a name is no number: that would be an address, written oddly. */
const NAME = /^([a-z\d_-]+\.)*(?!\d+$|0x)[a-z\d_-]+$/i

function readAllowed(text: string, field: string): Allowed {
  const [, bare, bareBits] = BARE_IPV6.exec(text) ?? []
  const [, bracketed, other, bits = bareBits, portText] = ALLOWED.exec(text) ?? []
  const host = bare ?? bracketed ?? other ?? ''
  const port = portText === undefined ? null : Number(portText)
  const family = isIP(host)
  const isPort = port === null || (port > 0 && port < 65_536)
  if (isPort && family !== 0) {
    const most = family === 6 ? 128 : 32
    if (Number(bits ?? most) <= most)
      return { port, name: null, suffix: null, range: rangeOf(host, bits ?? most) }
  }
  const isWildcard = host.startsWith('*.')
  const name = host.toLowerCase().slice(isWildcard ? 2 : 0)
  const isName = bits === undefined && bracketed === undefined && NAME.test(name)
  if (isPort && isName) {
    if (isWildcard) return { port, name: null, suffix: `.${name}`, range: null }
    return { port, name, suffix: null, range: null }
  }
  throw invalid(field, `must be names, addresses or ranges, perhaps with a port, not ${text}`)
}

function rangeOf(address: string, bits: string | number): BlockList {
  // Rules look at plain addresses.
  const plain = plainIp(address)
  const isMapped = plain !== address
  return rangesOf([`${plain}/${isMapped ? Math.max(0, Number(bits) - 96) : bits}`])
}
