/** A page's connection, as the raw socket under its WebSocket. */
import type { Duplex } from 'node:stream'

/** A ping without a payload, as a server sends it: RFC 6455, 5.5.2. */
const PING = Buffer.from([0x89, 0x00])

/**
 * True as soon as the other side says anything after a ping; false if it is silent for so long, or
 * the connection closes.
 */
export function answersPing(socket: Duplex, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    const settle = (answered: boolean) => (): void => {
      clearTimeout(timer)
      socket.off('data', answer).off('close', closed)
      resolve(answered)
    }
    const answer = settle(true)
    const closed = settle(false)
    const timer = setTimeout(closed, ms)
    socket.on('data', answer).on('close', closed)
    if (socket.destroyed) closed()
    else socket.write(PING)
  })
}

/** True if the promise settles within the time. */
export async function settlesWithin(promise: Promise<unknown>, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => resolve(false), ms)
  })
  // A failure is told to the caller that awaits the promise itself.
  const done = promise.then(
    () => true,
    () => true,
  )
  const settled = await Promise.race([done, late])
  clearTimeout(timer)
  return settled
}
