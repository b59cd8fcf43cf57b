/**
 * Pings and pongs of a WebSocket. A peer may send any number of pings and never read an answer, so
 * they are answered here and not by `ws`, which would queue a pong for each.
 *
 * 1. One pong is on its way at a time. Of the pings that come meanwhile only the newest is answered
 *    (RFC 6455, 5.5.3), so what waits for a peer that does not read is two pongs at most.
 * 2. Control frames have a rate; a peer that exceeds it is disconnected. It is not read
 *    any more, and has a moment to read why: what it sent and was not read would reset the
 *    connection, and the reason with it.
 */

/**
 * What every WebSocket of ours is opened with, on either side. A peer that does not answer a close
 * is cut soon after: until then it takes a connection.
 */
export const SOCKET_OPTIONS = {
  autoPong: false,
  perMessageDeflate: false,
  closeTimeout: 3_000,
} as const

/** Pings and pongs of one peer: how many at once, and how many per second after that. */
const FRAMES_BURST = 256
const FRAMES_PER_SECOND = 16

/**
 * How long a peer that is cut off may take to read why: two times this. A process that stalls, as
 * both ends may do together, finds one timer due before it has read anything, but not both.
 */
const FAREWELL_MS = 1_500

/** What this needs of a socket of `ws`. */
export interface ControlledSocket {
  on(event: 'ping' | 'pong', listener: (data: Uint8Array) => void): unknown
  pong(data: Uint8Array, mask: undefined, sent: () => void): void
  once(event: 'close', listener: () => void): unknown
  close(code: number, reason: string): void
  pause(): void
  terminate(): void
}

/** Answers pings within bounds. `flooded` is called once, for a peer that was disconnected. */
export function answerPings<Socket extends ControlledSocket>(
  socket: Socket,
  flooded: (socket: Socket) => void = () => undefined,
  now: () => number = () => performance.now(),
): void {
  // Made with the first frame: most of many peers never send one.
  let take: ((ping: Uint8Array | null) => void) | null = null
  const taker = () => (take ??= frameTaker(socket, () => flooded(socket), now))
  socket.on('ping', (data) => taker()(data))
  socket.on('pong', () => taker()(null))
}

/** Takes pings, and pongs as null. */
function frameTaker(socket: ControlledSocket, flooded: () => void, now: () => number) {
  let left = FRAMES_BURST
  let countedAt = now()
  let isCut = false
  let isSending = false
  let newest: Uint8Array | null = null
  const answer = (ping: Uint8Array | null): void => {
    if (ping === null || isCut) return
    isSending = true
    socket.pong(ping, undefined, () => {
      const next = newest
      isSending = false
      newest = null
      answer(next)
    })
  }
  return (ping: Uint8Array | null): void => {
    if (isCut) return
    const at = now()
    const earned = ((at - countedAt) * FRAMES_PER_SECOND) / 1_000
    left = Math.min(FRAMES_BURST, left + earned) - 1
    countedAt = at
    if (left < 0) {
      isCut = true
      cutOff(socket)
      flooded()
    } else if (isSending) newest = ping ?? newest
    else answer(ping)
  }
}

/** A peer that reads learns why. The connection is not kept open until it has closed its side. */
function cutOff(socket: ControlledSocket): void {
  socket.close(1008, 'too many control frames')
  socket.pause()
  let cut = setTimeout(() => {
    cut = setTimeout(() => socket.terminate(), FAREWELL_MS)
  }, FAREWELL_MS)
  socket.once('close', () => clearTimeout(cut))
}
