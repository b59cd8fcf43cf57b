import { afterEach, describe, expect, it, vi } from 'vitest'
import { answerPings, type ControlledSocket } from './control-frames.ts'

/** A socket whose peer reads only when it is told to. */
class Peer implements ControlledSocket {
  readonly pongs: string[] = []
  readonly unread: (() => void)[] = []
  isReading = true
  closed: string | null = null
  isPaused = false
  /** Told that the connection has ended. */
  gone: () => void = () => undefined
  #ping: (data: Uint8Array) => void = () => undefined
  #pong: (data: Uint8Array) => void = () => undefined

  on(event: 'ping' | 'pong', listener: (data: Uint8Array) => void): void {
    if (event === 'ping') this.#ping = listener
    else this.#pong = listener
  }

  pong(data: Uint8Array, _mask: undefined, sent: () => void): void {
    this.pongs.push(new TextDecoder().decode(data))
    if (this.isReading) sent()
    else this.unread.push(sent)
  }

  once(_event: 'close', listener: () => void): void {
    this.gone = listener
  }

  pause(): void {
    this.isPaused = true
  }

  close(code: number, reason: string): void {
    this.closed = `${code} ${reason}`
  }

  terminate(): void {
    this.closed += ', cut'
  }

  ping(text: string): void {
    this.#ping(new TextEncoder().encode(text))
  }

  sendPong(): void {
    this.#pong(new Uint8Array())
  }
}

function peer() {
  const socket = new Peer()
  const time = { now: 0, floods: 0 }
  const flooded = (): void => {
    time.floods += 1
  }
  answerPings(socket, flooded, () => time.now)
  return { socket, time }
}

afterEach(() => {
  vi.useRealTimers()
})

describe('pings', () => {
  it('are answered each, with what they hold, by a peer that reads', () => {
    const { socket } = peer()
    for (const text of ['a', 'b', 'c']) socket.ping(text)
    expect(socket.pongs).toEqual(['a', 'b', 'c'])
  })

  it('of a peer that does not read have one answer on its way, and one that waits', () => {
    const { socket } = peer()
    socket.isReading = false
    for (const text of ['a', 'b', 'c', 'd']) socket.ping(text)
    expect(socket.pongs).toEqual(['a'])
    socket.isReading = true
    socket.unread.pop()?.()
    expect(socket.pongs).toEqual(['a', 'd'])
    socket.ping('e')
    expect(socket.pongs).toEqual(['a', 'd', 'e'])
  })

  it('may come for ever at a rate that keeps a connection alive', () => {
    const { socket, time } = peer()
    for (let n = 0; n < 10_000; n += 1) {
      socket.ping('')
      time.now += 100
    }
    expect(socket.pongs).toHaveLength(10_000)
    expect(socket.closed).toBeNull()
  })

  it.each([
    ['pings', (socket: Peer) => socket.ping('')],
    ['pongs that no ping asked for', (socket: Peer) => socket.sendPong()],
  ])('cut their sender off when they come as a flood, and that is told once: %s', (_, send) => {
    vi.useFakeTimers()
    const { socket, time } = peer()
    for (let n = 0; n < 1_000; n += 1) send(socket)
    expect(socket.closed).toBe('1008 too many control frames')
    expect(socket.isPaused).toBe(true)
    vi.advanceTimersByTime(3_000)
    expect(socket.closed).toBe('1008 too many control frames, cut')
    expect(socket.pongs.length).toBeLessThanOrEqual(256)
    expect(time.floods).toBe(1)
  })
  it('leave no timer behind when the connection of their sender ends by itself', () => {
    vi.useFakeTimers()
    const { socket } = peer()
    for (let n = 0; n < 1_000; n += 1) socket.ping('')
    socket.gone()
    expect(vi.getTimerCount()).toBe(0)
  })
})
