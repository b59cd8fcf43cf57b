/** Sending to a client that may not read. */
import { HoldfastError } from '../../core/index.ts'
import type { Hub } from './hub.ts'
import type { Socket } from './socket.ts'

type SlowReader = {
  readonly socket: Pick<Socket, 'send' | 'cut'>
  readonly hub: Pick<Hub, 'clock' | 'limits' | 'unread'>
}

/** Waits until it has left; a reader that takes too long is given up, and may come back. */
export function sendSlowly({ socket, hub }: SlowReader, bytes: Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    const slow = (message: string): void => reject(new HoldfastError('too_slow', message))
    const cancel = hub.clock.after(hub.limits.slowMs, () =>
      slow('the client does not read what it is sent'),
    )
    const release = hub.unread.add(bytes, () => {
      // A goodbye would wait behind all that the client has not read, and keep it in memory.
      socket.cut()
      slow('the client does not read, and too much waits for all together')
    })
    socket.send(bytes, () => {
      cancel()
      release()
      resolve()
    })
  })
}
