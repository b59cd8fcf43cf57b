/** What is over, and what its clients are told: the true reason, once, and nothing is left of it. */
import { afterAll, afterEach, describe, expect, it } from 'vitest'
import {
  BrowserPool,
  type BrowserConnection,
  type ConnectionEvents,
} from '../../src/browsers/index.ts'
import { HeldConnection } from '../../src/cdp/index.ts'
import { CdpDoor } from '../../src/doors/cdp/door.ts'
import { openHoldfast } from '../../src/open.ts'
import { FakeClock } from '../client/fakes.ts'
import { browserPids } from '../support/browser-pids.ts'
import { CHROMIUM, serveCdp, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp } from '../support/raw-cdp.ts'
import { RawHeld } from '../support/raw-held.ts'

let close: () => Promise<unknown> = () => Promise.resolve()
let plain: CdpServer | null = null

afterEach(async () => {
  await close()
  close = () => Promise.resolve()
})
afterAll(() => plain?.close())

/** One for all that need no limits of their own. */
async function plainServer(): Promise<CdpServer> {
  plain ??= await serveCdp()
  return plain
}

async function start(options: Parameters<typeof serveCdp>[0]): Promise<CdpServer> {
  const server = await serveCdp(options)
  close = () => server.close()
  return server
}

function reasonOf({ socket }: RawCdp): Promise<string> {
  return new Promise((resolve) => {
    socket.on('close', (_, text: Buffer) => resolve(text.toString()))
  })
}

describe('a client is told', () => {
  it('that its session was closed, by whomever', async () => {
    const server = await plainServer()
    const client = await RawCdp.open(server.socketUrl)
    const held = await RawHeld.open(`${server.socketUrl}/held`)
    const reasons = Promise.all([reasonOf(client), reasonOf(held.socket)])
    const { sessions } = await server.holdfast.list({ state: 'open' })
    for (const { id } of sessions) {
      await fetch(`${server.server.url}/v1/sessions/${id}`, { method: 'DELETE' })
    }
    expect(await Promise.all([client.closed, held.socket.closed])).toEqual([4410, 4410])
    expect(await reasons).toEqual(['session_closed', 'session_closed'])
    expect(held.socket.frames.at(-1)).toMatchObject({ type: 'ending', code: 'session_closed' })
  })

  it('that its page was closed, if it is connected to a page, and others are told nothing', async () => {
    const server = await plainServer()
    const owner = await RawCdp.open(`${server.socketUrl}?key=paged`)
    const { targetId } = await owner.send('Target.createTarget', { url: 'about:blank' })
    const page = await RawCdp.open(`${server.socketUrl}/devtools/page/${targetId}?key=paged`)
    const held = await RawHeld.open(`${server.socketUrl}/held/page/${targetId}?key=paged`)
    await owner.send('Target.closeTarget', { targetId })
    expect(await Promise.all([page.closed, held.socket.closed])).toEqual([4404, 4404])
    expect(held.socket.frames.at(-1)).toMatchObject({ type: 'ending', code: 'target_unknown' })
    const detached = { method: 'Inspector.detached', params: { reason: 'target_closed' } }
    for (const each of [page, held.socket]) expect(each.messages.at(-1)).toEqual(detached)
    expect((await owner.send('Browser.getVersion')).product).toMatch(/Chrome/)
    owner.close()
  })

  it('that it missed too much while it was away, when it comes back', async () => {
    const server = await start({ cdpLimits: { heldBytesMax: 100_000 } })
    const other = await RawCdp.open(`${server.socketUrl}?key=slow`)
    const { targetId } = await other.send('Target.createTarget', { url: 'about:blank' })
    const { sessionId } = await other.send('Target.attachToTarget', { targetId, flatten: true })
    for (const query of ['?key=slow', '']) {
      const absent = await RawHeld.open(`${server.socketUrl}/held${query}`)
      const { socket, welcome } = absent
      const page = query === '' ? await pageOf(socket) : targetId
      const own = await socket.send('Target.attachToTarget', { targetId: page, flatten: true })
      await socket.send('Runtime.enable', {}, own.sessionId)
      const shouting = `setInterval(() => console.log('x'.repeat(30_000)), 5)`
      await socket.send('Runtime.evaluate', { expression: shouting }, own.sessionId)
      socket.socket.terminate()
      const { session, attachment, token } = welcome
      for await (const event of server.holdfast.session(session).events()) {
        if (event.type === 'attachment.ended' && event.attachment === attachment) break
      }
      const resume = { session, attachment, token, received: 0 }
      const answer = await RawHeld.dial(`${server.socketUrl}/held`, resume)
      expect(answer).toMatchObject({ type: 'refuse', code: 'too_slow', retry: 'never' })
      const stranger = { ...resume, token: 'a'.repeat(64) }
      const refusal = await RawHeld.dial(`${server.socketUrl}/held`, stranger)
      expect(refusal['code']).toBe(query === '' ? 'session_closed' : 'attachment_unknown')
    }
    expect((await other.ask('Runtime.evaluate', {}, sessionId)).error.code).toBe(-32602)
    other.close()
  })

  it('that it reads too slowly, and does not try in vain to come back', async () => {
    // Less than one reply: the next one is too much, unless it is so late that the first is confirmed.
    const server = await start({ cdpLimits: { heldBytesMax: 10_000 } })
    const connection = await HeldConnection.open(server.url)
    const over = new Promise<string>((resolve) => {
      connection.onClosed = ({ code }) => resolve(code)
    })
    const params = { expression: `'x'.repeat(90_000)` }
    let targetId = ''
    connection.onMessage = (text) => {
      const { id, result } = JSON.parse(text) as { id?: number; result?: any }
      if (id === 1) ({ targetId } = result)
      if (id === 1) say(2, 'Target.attachToTarget', { targetId, flatten: true })
      for (let n = 0; n < 50 && id === 2; n += 1) {
        say(3 + n, 'Runtime.evaluate', params, result.sessionId)
      }
    }
    const say = (id: number, method: string, told: object, sessionId?: string): void =>
      connection.send(JSON.stringify({ id, method, params: told, sessionId }))
    say(1, 'Target.createTarget', { url: 'about:blank' })
    expect(await over).toBe('too_slow')
  })

  it('that its browser is gone, now or when it comes back', async () => {
    const server = await plainServer()
    const connection = await HeldConnection.open(server.url)
    const over = new Promise<string>((resolve) => {
      connection.onClosed = ({ code }) => resolve(code)
    })
    const absent = await RawHeld.open(`${server.socketUrl}/held`)
    absent.socket.socket.terminate()
    for (const pid of browserPids()) process.kill(pid, 'SIGKILL')
    expect(await over).toBe('browser_gone')
    const { session, attachment, token } = absent.welcome
    const resume = { session, attachment, token, received: 0 }
    const answer = await RawHeld.dial(`${server.socketUrl}/held`, resume)
    expect(answer).toMatchObject({ type: 'refuse', code: 'browser_gone', retry: 'never' })
  })
})

async function pageOf(client: RawCdp): Promise<string> {
  const { targetId } = await client.send('Target.createTarget', { url: 'about:blank' })
  return String(targetId)
}

/** Tells late that a browser has ended. */
class LatePool extends BrowserPool {
  readonly late: (() => void)[] = []

  override start(name: string, events: ConnectionEvents): Promise<BrowserConnection> {
    const closed = (reason: string): void => void this.late.push(() => events.closed(reason))
    return super.start(name, { ...events, closed })
  }
}

class PoolClock extends FakeClock {
  monotonic(): number {
    return this.now()
  }
}

/** A door with a pool whose time is in our hands. */
async function doorWith<Pool extends BrowserPool>(make: new (options: any) => Pool) {
  const clock = new PoolClock()
  const limits = { idleMs: 60_000, healthMs: 1e9 }
  const pool = new make({ browsers: { chromium: CHROMIUM }, clock, limits })
  const holdfast = await openHoldfast({ store: 'memory:' })
  const door = new CdpDoor({ holdfast, pool })
  close = async () => {
    await door.close()
    await holdfast.close()
  }
  return { clock, pool, holdfast, door }
}

describe('a browser that nobody uses', () => {
  it('does not take the place of its successor with it, when its end is told late', async () => {
    const { clock, pool, door } = await doorWith(LatePool)
    const first = await door.hosts.host('chromium', null)
    clock.advance(60_000)
    const second = await door.hosts.host('chromium', null)
    expect(second).not.toBe(first)
    for (const tell of pool.late.splice(0)) tell()
    expect(first.link.closed).not.toBe(null)
    expect(await door.hosts.host('chromium', null)).toBe(second)
    expect(pool.size).toBe(1)
  })

  it('is kept for its time from when it was last used, and leaves no timer behind', async () => {
    const { clock, holdfast, door } = await doorWith(BrowserPool)
    const host = await door.hosts.host('chromium', null)
    for (let n = 0; n < 5; n += 1) {
      clock.advance(50_000)
      const session = await holdfast.resolve({})
      await door.browserSession('chromium', session)
      await session.close()
      await expect.poll(() => door.countsNow().sessions).toBe(0)
    }
    expect(clock.due).toHaveLength(2)
    clock.advance(59_999)
    expect(host.link.closed).toBe(null)
    clock.advance(1)
    expect(host.link.closed).not.toBe(null)
    expect(clock.due).toEqual([])
  })
})
