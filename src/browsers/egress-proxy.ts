/**
 * The only way from a browser to the network: a SOCKS5 proxy (RFC 1928) on a port of loopback. The
 * browser sends the name or address that a page wants; the proxy resolves it, checks what it leads
 * to, and connects to exactly that. So a name that resolves differently next time gains nothing.
 */
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import type { EgressRule } from '../platform/egress.ts'
import { HostResolver, pinned, type ResolverOptions } from '../platform/resolver.ts'
import type { BrowserLimits } from './limits.ts'

export type EgressOptions = ResolverOptions & {
  /** What it allows now. */
  readonly guard: { readonly rule: EgressRule }
  /** A connection was refused by the rule. */
  readonly onRefused: (host: string, port: number) => void
}

const VERSION = 5
const NO_AUTHENTICATION = 0
const CONNECT = 1
const ADDRESS_TYPES = { ipv4: 1, name: 3, ipv6: 4 } as const
/** Replies of the proxy. */
const REPLIES = { ok: 0, failed: 1, refused: 2, unreachable: 4, noCommand: 7, noType: 8 } as const

export class EgressProxy {
  readonly #options: EgressOptions
  readonly #limits: BrowserLimits
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  readonly #peers = new PeerTable()
  readonly #resolver: HostResolver

  constructor(options: EgressOptions, limits: BrowserLimits) {
    this.#options = options
    this.#limits = limits
    this.#resolver = new HostResolver(options)
    this.#server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      this.#keep(socket)
      // It has ended, or is no client of ours: there is nothing to report.
      this.#serve(socket).catch(() => socket.destroy())
    })
    this.#server.maxConnections = limits.egressConnectionsMax
  }

  /** Resolves when a browser may connect. */
  static async open(options: EgressOptions, limits: BrowserLimits): Promise<EgressProxy> {
    const proxy = new EgressProxy(options, limits)
    await once(proxy.#server.listen({ host: '127.0.0.1', port: 0 }), 'listening')
    return proxy
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve))
    this.#resolver.close()
    for (const socket of this.#sockets) socket.destroy(CLOSED)
    await closed
  }

  #keep(socket: Socket): void {
    this.#sockets.add(socket)
    socket.once('close', () => this.#sockets.delete(socket))
    // An error closes the socket, which is handled.
    socket.on('error', () => undefined)
  }

  async #serve(client: Socket): Promise<void> {
    const end = (): void => void client.destroy(CLOSED)
    const late = setTimeout(end, this.#limits.egressConnectMs)
    client.once('end', end)
    try {
      if (!(await this.#peers.isOwn(client))) return void client.destroy()
      const wanted = await readRequest(client)
      const upstream = await this.#connect(wanted)
      if (client.destroyed) return void upstream.destroy()
      client.off('end', end)
      client.write(replyOf(REPLIES.ok))
      splice(client, upstream)
    } catch (thrown) {
      client.write(replyOf(thrown instanceof EgressRefusal ? thrown.reply : REPLIES.failed))
      client.destroySoon()
    } finally {
      clearTimeout(late)
    }
  }

  /** Connects to an address that was checked, and to no other. */
  async #connect({ host, port }: Wanted): Promise<Socket> {
    const { guard, onRefused } = this.#options
    const found = await this.#resolver.addressesOf(host, guard.rule)
    const reachable = guard.rule.reachable(host, port, found)
    const isClosed = !this.#server.listening
    if (found.length === 0 || isClosed) throw new EgressRefusal(REPLIES.unreachable)
    if (reachable.length === 0) {
      onRefused(host, port)
      throw new EgressRefusal(REPLIES.refused)
    }
    const upstream = connect({
      host: 'checked.invalid',
      port,
      allowHalfOpen: true,
      noDelay: true,
      autoSelectFamily: true,
      lookup: pinned(reachable),
    })
    this.#keep(upstream)
    const late = setTimeout(() => upstream.destroy(CLOSED), this.#limits.egressConnectMs)
    try {
      await once(upstream, 'connect')
      return upstream
    } catch {
      // The browser learns no more than that: pages could scan by the reason.
      throw new EgressRefusal(REPLIES.unreachable)
    } finally {
      clearTimeout(late)
    }
  }
}

/** What a socket is destroyed with before it is spliced: those that wait for it get this. */
const CLOSED = new Error('the connection is closed')

class EgressRefusal extends Error {
  readonly reply: number

  constructor(reply: number) {
    super(`SOCKS reply ${reply}`)
    this.reply = reply
  }
}

type Wanted = { readonly host: string; readonly port: number }

async function readRequest(client: Socket): Promise<Wanted> {
  const [version, methods = 0] = await take(client, 2)
  if (version !== VERSION) throw new EgressRefusal(REPLIES.failed)
  if (methods > 0) await take(client, methods)
  client.write(Buffer.from([VERSION, NO_AUTHENTICATION]))
  const [, command, , type] = await take(client, 4)
  if (command !== CONNECT) throw new EgressRefusal(REPLIES.noCommand)
  const host = await readHost(client, type)
  const port = (await take(client, 2)).readUInt16BE()
  // A zone would choose the network by itself.
  if (host === '' || host.includes('%')) throw new EgressRefusal(REPLIES.refused)
  return { host, port }
}

async function readHost(client: Socket, type: number | undefined): Promise<string> {
  if (type === ADDRESS_TYPES.ipv4) return [...(await take(client, 4))].join('.')
  if (type === ADDRESS_TYPES.ipv6) {
    const groups = (await take(client, 16)).toString('hex').match(/.{4}/g) ?? []
    return groups.join(':')
  }
  if (type !== ADDRESS_TYPES.name) throw new EgressRefusal(REPLIES.noType)
  const [length = 0] = await take(client, 1)
  const name = length === 0 ? '' : (await take(client, length)).toString('latin1')
  return name.replace(/^\[(.*)\]$/, '$1')
}

/** The next bytes, as many as these; throws if the socket ends before. */
async function take(socket: Socket, bytes: number): Promise<Buffer> {
  for (;;) {
    if (socket.destroyed) throw CLOSED
    const chunk = socket.read(bytes) as Buffer | null
    if (chunk?.length === bytes) return chunk
    await once(socket, 'readable')
  }
}

function replyOf(reply: number): Buffer {
  return Buffer.from([VERSION, reply, 0, ADDRESS_TYPES.ipv4, 0, 0, 0, 0, 0, 0])
}

function splice(client: Socket, upstream: Socket): void {
  client.pipe(upstream).pipe(client)
  client.once('close', () => upstream.destroy())
  upstream.once('close', () => client.destroy())
}

/**
 * The connections of this machine, with their users. Only Linux tells; elsewhere every program of
 * the machine may use the proxy.
 */
class PeerTable {
  #reading: Promise<unknown> = Promise.resolve()
  #next: Promise<string | null> | null = null

  /** Whether the other end is a program of this user, as the browser is. */
  async isOwn({ localPort, remotePort }: Socket): Promise<boolean> {
    const user = process.getuid?.()
    const table = await this.#read()
    if (user === undefined || table === null) return true
    // The table may be long: it is searched, not split.
    const start = table.indexOf(` ${addressOf(remotePort)} ${addressOf(localPort)} `)
    const row = start === -1 ? '' : table.slice(start, table.indexOf('\n', start))
    return row.trim().split(/\s+/)[6] === String(user)
  }

  /** One read at a time, which takes milliseconds, serves all that have asked before it began. */
  #read(): Promise<string | null> {
    this.#next ??= this.#reading.then(() => {
      this.#next = null
      // There is no such file: not Linux.
      const read = readFile('/proc/net/tcp', 'latin1').catch(() => null)
      this.#reading = read
      return read
    })
    return this.#next
  }
}

/** An address of 127.0.0.1, as the table has it. */
function addressOf(port = 0): string {
  return `0100007F:${port.toString(16).toUpperCase().padStart(4, '0')}`
}
