/**
 * Sockets whose session another node owns, known before they are open: the request to upgrade goes
 * there as it is, and from then on every byte, both ways. Nothing is read on the way, so whatever
 * the two ends agree on holds here too.
 */
import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { BETWEEN_NODES, requestTo, without, type ProxyTarget } from './request-forwarder.ts'
import { FORWARD_LIMITS } from './limits.ts'
import { UNDONE_HEADER, type Seal } from './seal.ts'

/** A socket that is to be. */
export type Upgrade = {
  readonly request: IncomingMessage
  readonly stream: Duplex
  readonly head: Buffer
}

export type TunnelRequest = Upgrade & ProxyTarget

/** What the other node said, and, if it took the socket, its end of it. */
type UpgradeAnswer = {
  readonly message: IncomingMessage
  readonly far: Duplex | null
  head: Buffer
}

/** A refusal is forwarded without framing: it ends with the connection. */
const PRIVATE: ReadonlySet<string> = new Set([...BETWEEN_NODES, 'transfer-encoding'])

export class Tunnels {
  readonly #seal: Seal
  readonly #streams = new Set<Duplex>()

  constructor(seal: Seal) {
    this.#seal = seal
  }

  /**
   * True if the client has its answer; false if another may be asked. What was asked and not
   * answered may be asked again: a socket that never opened has done nothing.
   */
  async open(tunnel: TunnelRequest): Promise<boolean> {
    const { stream } = tunnel
    // It is tried again; if that fails too, `forward_failed` reports it.
    const answer = await this.#ask(tunnel).catch(() => null)
    if (stream.destroyed) answer?.far?.destroy()
    if (answer === null || stream.destroyed) return stream.destroyed
    if (answer.far !== null) return this.#join(tunnel, answer)
    if (answer.message.headers[UNDONE_HEADER] === undefined) return refuse(stream, answer.message)
    answer.message.resume()
    return false
  }

  /** Cuts all: at both ends that is a connection which was lost. */
  close(): void {
    for (const stream of this.#streams) stream.destroy()
  }

  #ask({ request, stream, to, from }: TunnelRequest): Promise<UpgradeAnswer> {
    return new Promise((resolve, reject) => {
      const headers = without(PRIVATE, request.rawHeaders)
      const asking = requestTo(this.#seal, { to, from }, { request, headers, agent: false })
      const giveUp = (): void => void asking.destroy(new Error('the caller has gone'))
      // Long enough for the other node to start a browser first.
      asking.setTimeout(FORWARD_LIMITS.patienceMs, giveUp)
      stream.once('close', giveUp)
      const unreached = setTimeout(giveUp, FORWARD_LIMITS.connectMs)
      asking.once('socket', (socket) => socket.once('connect', () => clearTimeout(unreached)))
      asking.once('close', () => {
        clearTimeout(unreached)
        stream.off('close', giveUp)
      })
      asking.on('upgrade', (message, far, head) => {
        far.setTimeout(0)
        resolve({ message, far, head })
      })
      asking.on('response', (message) => resolve({ message, far: null, head: Buffer.alloc(0) }))
      asking.on('error', reject)
      asking.end()
    })
  }

  #join(
    { stream, head, isAlive }: TunnelRequest,
    { message, far, head: begun }: UpgradeAnswer,
  ): true {
    if (far === null) return true
    stream.write(headOf(message))
    stream.write(begun)
    far.write(head)
    for (const [from, to] of [
      [stream, far],
      [far, stream],
    ] as const) {
      this.#streams.add(from)
      from.pipe(to)
      // The close event follows, and ends the other side.
      from.on('error', () => from.destroy())
      from.on('close', () => {
        this.#streams.delete(from)
        to.destroy()
      })
    }
    const look = setInterval(() => {
      // A machine that is gone says nothing. A store that cannot say is no reason to give up.
      isAlive().then(
        (alive) => void (alive || far.destroy()),
        () => undefined,
      )
    }, FORWARD_LIMITS.aliveMs)
    far.once('close', () => clearInterval(look))
    return true
  }
}

function headOf({ statusCode, statusMessage, rawHeaders }: IncomingMessage): string {
  const lines = [`HTTP/1.1 ${statusCode} ${statusMessage}`]
  const headers = without(PRIVATE, rawHeaders)
  for (let index = 0; index < headers.length; index += 2) {
    lines.push(`${headers[index]}: ${headers[index + 1]}`)
  }
  return `${lines.join('\r\n')}\r\n\r\n`
}

/** A refusal is short, and ends with its connection. */
function refuse(stream: Duplex, message: IncomingMessage): true {
  stream.write(headOf(message))
  message.pipe(stream)
  return true
}
