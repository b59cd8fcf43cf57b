/**
 * The ACP door in the server: connections at `/acp`, over WebSockets and over streamable HTTP.
 * Whose a connection is shows in its request; what the sessions on it are opened with by default
 * may be in its query, for clients that can be given nothing but an address.
 */
import type { IncomingMessage } from 'node:http'
import {
  asHoldfastError,
  HoldfastError,
  invalid,
  ROLES,
  SCOPES,
  type Caller,
  type Diagnose,
} from '../core/index.ts'
import { principalsOf } from '../core/access.ts'
import type { ConnectionDefaults } from '../doors/acp/client-end.ts'
import { AcpConnection, MESSAGE_BYTES_MAX, type AcpSocket } from '../doors/acp/connection.ts'
import type { Hub } from '../doors/connect/hub.ts'
import type { ServerContext } from '../doors/exchange.ts'
import { reportRefusal } from '../doors/refusals.ts'
import { bearerToken, type AccessPolicy } from './access.ts'
import { AcpHttp, type Connect } from './acp-http.ts'
import { drainingError } from './forwarding/forwarder.ts'
import type { Upgrade } from './forwarding/request-forwarder.ts'
import { refuseSocket } from './http-server.ts'
import { SERVER_LIMITS } from './limits.ts'
import { MESSAGE_CHUNKS_MAX, socketOpener } from './upgrade.ts'
import { WatchedSockets, type WatchedSocket } from './watched-sockets.ts'

export const ACP_PATH = '/acp'

export type AcpEntranceOptions = {
  readonly hub: Hub
  readonly access: AccessPolicy
  readonly context: Pick<ServerContext, 'holdfast' | 'positions' | 'isDraining'>
}

type Entry = Pick<
  ConstructorParameters<typeof AcpConnection>[0],
  'caller' | 'defaults' | 'forwarding'
> & { readonly token: string | undefined }

export class AcpEntrance {
  readonly #options: AcpEntranceOptions
  readonly #diagnose: Diagnose
  readonly #openSocket: ReturnType<typeof socketOpener>
  readonly #sockets: WatchedSockets<AcpSocket & WatchedSocket>
  /** Connections that are not sockets. */
  readonly http: AcpHttp
  readonly #connections = new Set<AcpConnection>()

  constructor(options: AcpEntranceOptions) {
    const { hub, access, context } = options
    const { diagnose } = context.holdfast.authority
    this.#options = options
    this.#diagnose = diagnose
    this.#openSocket = socketOpener({ diagnose, access, door: 'acp' }, MESSAGE_BYTES_MAX, {
      maxBufferedChunks: MESSAGE_CHUNKS_MAX,
      maxFragments: MESSAGE_CHUNKS_MAX,
    })
    const { pingMs, deadMs } = hub.limits
    const { unreadTotalBytesMax } = SERVER_LIMITS
    this.#sockets = new WatchedSockets({ pingMs, deadMs, unreadTotalBytesMax })
    const connect: Connect = (streams, { request, caller }) => {
      const entry = this.#entryOf(request, caller)
      return this.#connect(streams, entry, this.#count(entry.caller))
    }
    this.http = new AcpHttp(connect, hub.limits.newcomersMax)
  }

  get count(): number {
    return this.#connections.size
  }

  upgrade(upgrade: Upgrade): void {
    const { request, stream } = upgrade
    try {
      this.#enter(upgrade)
    } catch (thrown) {
      const error = asHoldfastError(thrown)
      const address = this.#options.access.addressOf(request)
      reportRefusal(this.#diagnose, error, { door: 'acp', address, headers: request.headers })
      refuseSocket(stream, error)
    }
  }

  #enter(upgrade: Upgrade): void {
    const { request, stream } = upgrade
    const { access } = this.#options
    const token = bearerToken(request.headers)
    const caller = access.authorize(request, 'session.read', token)
    const entry = this.#entryOf(request, caller)
    // One that is forwarded is counted by the node that the client is connected to.
    const uncount = access.isForwarded(request) ? null : this.#count(entry.caller)
    // When the socket is closed, or was never opened.
    if (uncount !== null) stream.once('close', uncount)
    this.#openSocket(upgrade, (end) => {
      end.heardAt = performance.now()
      const connection = this.#connect(end, entry)
      return {
        receive: (data: Buffer, isBinary: boolean) => connection.receive(data, isBinary),
        closed: (code: number) => connection.closed(code),
      }
    })
  }

  /** What a request says of the connection that it opens. */
  #entryOf(request: IncomingMessage, caller: Caller | null): Entry {
    if (caller === null) throw new HoldfastError('unauthorized', 'a good token is needed')
    const token = bearerToken(request.headers)
    const headers: Record<string, string> = {}
    if (token !== undefined) headers['authorization'] = `Bearer ${token}`
    const forwarding = { path: request.url ?? ACP_PATH, headers }
    return { caller, token, defaults: defaultsIn(request), forwarding }
  }

  #count(caller: Caller): (() => void) | null {
    const { usage } = this.#options.context.holdfast.authority
    return usage.ofCaller(caller.access)?.take('sockets') ?? null
  }

  #connect(
    end: AcpSocket & WatchedSocket,
    { caller, token, ...entry }: Entry,
    uncount: (() => void) | null = null,
  ): AcpConnection {
    const { hub, access, context } = this.#options
    const { holdfast, positions, isDraining } = context
    let release: (() => void) | null = null
    const forget = (): void => {
      release?.()
      this.#sockets.delete(end)
      this.#connections.delete(connection)
    }
    const connection: AcpConnection = new AcpConnection({
      ...{ ...entry, caller, hub, isDraining, socket: end },
      holdfast: holdfast.as(caller.by, caller.access),
      positions: principalsOf(caller) === null ? null : positions,
      onEnd: () => {
        uncount?.()
        forget()
      },
    })
    const revoked = new HoldfastError('unauthorized', 'the token is no longer good for this')
    release = access.hold(token, scopesOf(caller), () => connection.refuse(revoked))
    this.#sockets.add(end)
    this.#connections.add(connection)
    // Its token was revoked meanwhile.
    if (connection.isOver) forget()
    return connection
  }

  close(): void {
    this.#sockets.close()
    for (const connection of [...this.#connections]) connection.refuse(drainingError())
  }
}

function scopesOf({ access }: Caller) {
  return access?.scopes ?? SCOPES
}

const NAMES = ['key', 'agent', 'role', 'replay']

/** What the query of the address says. */
function defaultsIn({ url = '' }: IncomingMessage): ConnectionDefaults {
  const query = new URLSearchParams(url.split('?', 2)[1] ?? '')
  const unknown = [...query.keys()].find((name) => !NAMES.includes(name))
  if (unknown !== undefined) {
    throw invalid(unknown.slice(0, 64), `is no parameter here; there are: ${NAMES.join(', ')}`)
  }
  const { key, agent, role: given, replay } = Object.fromEntries(query)
  const role = ROLES.find((known) => known === given)
  if (given !== undefined && role === undefined) {
    throw invalid('role', `must be one of ${ROLES.join(', ')}`)
  }
  return {
    ...(key === undefined || key === '' ? {} : { key }),
    ...(agent === undefined || agent === '' ? {} : { agent }),
    ...(role === undefined ? {} : { role }),
    ...(replay === undefined ? {} : { replay: replay === 'true' }),
  }
}
