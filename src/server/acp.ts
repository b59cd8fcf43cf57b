/**
 * The ACP door in the server: sockets at `/acp`. Whose a connection is shows in its request; what
 * the sessions on it are opened with by default may be in its query, for clients that can be given
 * nothing but an address.
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
import { AcpConnection, MESSAGE_BYTES_MAX } from '../doors/acp/connection.ts'
import type { Hub } from '../doors/connect/hub.ts'
import type { ServerContext } from '../doors/exchange.ts'
import { reportRefusal } from '../doors/refusals.ts'
import { bearerToken, type AccessPolicy } from './access.ts'
import { drainingError } from './forwarding/forwarder.ts'
import type { Upgrade } from './forwarding/request-forwarder.ts'
import { refuseSocket } from './http-server.ts'
import { SERVER_LIMITS } from './limits.ts'
import { MESSAGE_CHUNKS_MAX, socketOpener, type WebSocketEnd } from './upgrade.ts'
import { WatchedSockets } from './watched-sockets.ts'

export const ACP_PATH = '/acp'

export type AcpEntranceOptions = {
  readonly hub: Hub
  readonly access: AccessPolicy
  readonly context: Pick<ServerContext, 'holdfast' | 'positions' | 'isDraining'>
}

export class AcpEntrance {
  readonly #options: AcpEntranceOptions
  readonly #diagnose: Diagnose
  readonly #openSocket: ReturnType<typeof socketOpener>
  readonly #sockets: WatchedSockets
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
    const { access, context } = this.#options
    const token = bearerToken(request.headers)
    const caller = access.authorize(request, 'session.read', token)
    if (caller === null) throw new HoldfastError('unauthorized', 'a good token is needed')
    const defaults = defaultsIn(request)
    const { usage } = context.holdfast.authority
    // One that is forwarded is counted by the node that the client is connected to.
    const isCounted = !access.isForwarded(request)
    const uncount = isCounted ? usage.ofCaller(caller.access)?.take('sockets') : undefined
    // When the socket is closed, or was never opened.
    if (uncount !== undefined) stream.once('close', uncount)
    const path = request.url ?? ACP_PATH
    const headers: Record<string, string> = {}
    if (token !== undefined) headers['authorization'] = `Bearer ${token}`
    const forwarding = { path, headers }
    this.#openSocket(upgrade, (end) => {
      end.heardAt = performance.now()
      return this.#connect(end, { caller, defaults, forwarding, token })
    })
  }

  #connect(
    end: WebSocketEnd,
    {
      caller,
      token,
      ...entry
    }: Pick<
      ConstructorParameters<typeof AcpConnection>[0],
      'caller' | 'defaults' | 'forwarding'
    > & { readonly token: string | undefined },
  ) {
    const { hub, access, context } = this.#options
    const { holdfast, positions, isDraining } = context
    let release: (() => void) | null = null
    const connection: AcpConnection = new AcpConnection({
      ...{ ...entry, caller, hub, isDraining, socket: end },
      holdfast: holdfast.as(caller.by, caller.access),
      positions: principalsOf(caller) === null ? null : positions,
      onEnd: () => this.#forget(connection, end, release),
    })
    const revoked = new HoldfastError('unauthorized', 'the token is no longer good for this')
    release = access.hold(token, scopesOf(caller), () => connection.refuse(revoked))
    this.#sockets.add(end)
    this.#connections.add(connection)
    // Its token was revoked meanwhile.
    if (connection.isOver) this.#forget(connection, end, release)
    return {
      receive: (data: Buffer, isBinary: boolean) => connection.receive(data, isBinary),
      closed: (code: number) => connection.closed(code),
    }
  }

  #forget(connection: AcpConnection, end: WebSocketEnd, release: (() => void) | null): void {
    release?.()
    this.#sockets.delete(end)
    this.#connections.delete(connection)
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
