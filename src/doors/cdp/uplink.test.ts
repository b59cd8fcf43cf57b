import { describe, expect, it } from 'vitest'
import { FairQueue, Uplink } from './uplink.ts'

const limits = { underwayBytesMax: 100, signBytes: 50, messageBytesMax: 1_000 }

/** A browser that gives its signs when it is told to. */
function uplink() {
  const sent: string[] = []
  const signs: (() => void)[] = []
  const send = (...parts: readonly (string | Uint8Array)[]): void => void sent.push(parts.join(''))
  const askForSign = (onSign: () => void): void => void signs.push(onSign)
  const up = new Uplink({ send, limits, askForSign })
  const sign = (): void => {
    for (const each of signs.splice(0)) each()
  }
  return { up, sent, sign }
}

function queue() {
  const told: boolean[] = []
  return Object.assign(new FairQueue((isWaiting) => told.push(isWaiting)), { told })
}

const of = (name: string, bytes: number): string[] => [name.padEnd(bytes, '.')]
const names = (sent: readonly string[]): string[] => sent.map((text) => text.replaceAll('.', ''))

describe('the way up', () => {
  it('lets through what the browser can take, and keeps the rest in order', () => {
    const { up, sent, sign } = uplink()
    const client = queue()
    for (const name of ['a', 'b', 'c', 'd']) up.send(of(name, 60), client)
    expect(names(sent)).toEqual(['a', 'b'])
    expect(client.told).toEqual([true])
    sign()
    expect(names(sent)).toEqual(['a', 'b', 'c', 'd'])
    expect(client.told).toEqual([true, false])
  })

  it('gives each its turn by what it has sent: a flood waits for clients that send little', () => {
    const { up, sent, sign } = uplink()
    const [flooder, other] = [queue(), queue()]
    for (let n = 0; n < 6; n += 1) up.send(of(`F${n}`, 60), flooder)
    for (let n = 0; n < 4; n += 1) up.send(of(`o${n}`, 20), other)
    expect(names(sent)).toEqual(['F0', 'F1'])
    sign()
    expect(names(sent).slice(2)).toEqual(['o0', 'o1', 'o2', 'F2'])
    sign()
    expect(names(sent).slice(6)).toEqual(['o3', 'F3', 'F4'])
  })

  it('saves up nothing for a client that was silent', () => {
    const { up, sent, sign } = uplink()
    const [busy, late] = [queue(), queue()]
    for (let n = 0; n < 20; n += 1) {
      up.send(of('b', 60), busy)
      sign()
    }
    sent.length = 0
    for (let n = 0; n < 3; n += 1) up.send(of('B', 60), busy)
    for (let n = 0; n < 5; n += 1) up.send(of('L', 60), late)
    for (let n = 0; n < 4; n += 1) sign()
    expect(names(sent)).toEqual(['B', 'B', 'L', 'B', 'L', 'L', 'L', 'L'])
  })

  it('is always free for the door itself', () => {
    const { up, sent } = uplink()
    const client = queue()
    for (const name of ['a', 'b', 'c']) up.send(of(name, 60), client)
    up.send(['door'], null)
    expect(names(sent)).toEqual(['a', 'b', 'door'])
  })

  it('forgets what a client wanted to send that is gone, and serves the others', () => {
    const { up, sent, sign } = uplink()
    const [gone, other] = [queue(), queue()]
    for (const name of ['a', 'b', 'c']) up.send(of(name, 60), gone)
    up.send(of('o', 10), other)
    up.leave(gone)
    sign()
    expect(names(sent)).toEqual(['a', 'b', 'o'])
    expect(up.waiting).toBe(0)
  })

  it('carries a message larger than all that may be on its way, but none beyond the bound', () => {
    const { up, sent, sign } = uplink()
    const client = queue()
    up.send(of('large', 900), client)
    up.send(of('next', 10), client)
    expect(names(sent)).toEqual(['large'])
    sign()
    expect(names(sent)).toEqual(['large', 'next'])
    expect(() => up.send(of('too large', 1_129), client)).toThrow(RangeError)
  })
})
