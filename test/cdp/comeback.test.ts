/** Clients that lose their connection, and what they find when they come back. */
import { setTimeout } from 'node:timers/promises'
import CDP from 'chrome-remote-interface'
import { chromium } from 'playwright-core'
import puppeteer from 'puppeteer-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  HeldConnection,
  playwrightTransport,
  puppeteerTransport,
  startRelay,
} from '../../src/cdp/index.ts'
import { serveCdp, Site, type CdpServer } from '../support/cdp-server.ts'
import { CuttingProxy } from '../support/cutting-proxy.ts'
import { FaultProxy } from '../support/fault-proxy.ts'
import { RawCdp } from '../support/raw-cdp.ts'
import { RawHeld } from '../support/raw-held.ts'

let server: CdpServer
let site: Site

beforeAll(async () => {
  site = await new Site().start()
  server = await serveCdp({ cdpLimits: { absentMs: 100 } })
})
afterAll(async () => {
  await server.close()
  await site.close()
})

/** What pages say that are visited one after the other, while the connection is cut in each visit. */
async function visits(
  connection: HeldConnection,
  count: number,
  visit: (url: string) => Promise<string>,
): Promise<string[]> {
  const titles: string[] = []
  for (let n = 0; n < count; n += 1) {
    const cut = setTimeout(Math.random() * 80).then(() => connection.drop())
    titles.push(await visit(`${site.url}/page-${n}`))
    await cut
  }
  return titles
}

const paths = (count: number): string[] => Array.from({ length: count }, (_, n) => `/page-${n}`)

/** How often the client of this session has come back. */
async function comebacks(session: string): Promise<number> {
  const { events } = await server.holdfast.session(session).read(0, 1_000)
  return events.filter(({ body }) => JSON.parse(body).type === 'attachment.resumed').length
}

async function closedReason(session: string): Promise<string> {
  for await (const event of server.holdfast.session(session).events()) {
    if (event.type === 'session.closed') return event.reason
  }
  return ''
}

describe('a connection that is dropped again and again', () => {
  it('does not disturb Playwright: the same pages, no reply or event lost or doubled', async () => {
    const transport = await playwrightTransport(server.url)
    const browser = await chromium.connectOverCDP(transport)
    const context = await browser.newContext()
    const page = await context.newPage()
    const navigated: string[] = []
    page.on('framenavigated', (frame) => navigated.push(new URL(frame.url()).pathname))
    const titles = await visits(transport.connection, 12, async (url) => {
      await page.goto(url)
      return page.title()
    })
    expect(titles).toEqual(paths(12))
    expect(navigated).toEqual(paths(12))
    const session = transport.connection.session ?? ''
    // A cut may come before the client is back from the one before it.
    expect(await comebacks(session)).toBeGreaterThan(4)
    await browser.close()
    expect(await closedReason(session)).toBe('last_holder_left')
  })

  it('does not disturb Puppeteer', async () => {
    const transport = await puppeteerTransport(server.url)
    const browser = await puppeteer.connect({ transport })
    const page = await browser.newPage()
    const titles = await visits(transport.connection, 10, async (url) => {
      await page.goto(url)
      return page.title()
    })
    expect(titles).toEqual(paths(10))
    expect(await comebacks(transport.connection.session ?? '')).toBeGreaterThan(3)
    await browser.close()
  })
})

describe('a client that stays away', () => {
  it('is waited for as long as the grace time, and then all that it had is gone', async () => {
    const connection = await HeldConnection.open(server.url, { graceMs: 300 })
    const session = connection.session ?? ''
    const gone = new Promise<string>((resolve) => {
      connection.onClosed = ({ code }) => resolve(code)
    })
    const { attachments } = await server.holdfast.session(session).state()
    expect(attachments.map(({ state }) => state)).toEqual(['live'])
    connection.close()
    expect(await gone).toBe('closed')
    expect(await closedReason(session)).toBe('last_holder_left')
    const lost = await RawHeld.open(`${server.socketUrl}/held?graceMs=100`)
    lost.socket.socket.terminate()
    expect(await closedReason(lost.welcome['session'])).toBe('last_holder_left')
  })

  it('does not freeze others: what waits for it goes on without it', async () => {
    const address = `${server.socketUrl}?key=together`
    const absent = await RawHeld.open(`${server.socketUrl}/held?key=together`)
    const other = await RawCdp.open(address)
    const autoAttach = { autoAttach: true, waitForDebuggerOnStart: true, flatten: true }
    const { socket } = absent
    await socket.send('Target.setAutoAttach', autoAttach)
    const { targetId } = await other.send('Target.createTarget', { url: 'about:blank' })
    const { sessionId: held } = await socket.send('Target.attachToTarget', {
      targetId,
      flatten: true,
    })
    await socket.send('Fetch.enable', {}, held)
    const { sessionId } = await other.send('Target.attachToTarget', { targetId, flatten: true })
    await other.send('Page.enable', {}, sessionId)
    socket.socket.terminate()
    await other.send('Page.navigate', { url: `${site.url}/free` }, sessionId)
    await other.until(({ method }) => method === 'Page.loadEventFired')
    const expression = `window.open('${site.url}/popup'); document.title`
    const { result } = await other.send('Runtime.evaluate', { expression }, sessionId)
    expect(result.value).toBe('/free')
    other.close()
  })
})

describe('a place that is kept', () => {
  it('is given back only to the token, which is good once', async () => {
    const first = await RawHeld.open(`${server.socketUrl}/held`)
    const { targetId } = await first.socket.send('Target.createTarget', { url: 'about:blank' })
    const { session, attachment, token } = first.welcome
    first.socket.socket.terminate()
    await first.socket.closed
    const received = first.socket.messages.length
    const resume = { session, attachment, token, received }
    const wrong = await RawHeld.dial(`${server.socketUrl}/held`, {
      ...resume,
      token: 'a'.repeat(64),
    })
    expect(wrong).toMatchObject({ type: 'refuse', code: 'attachment_unknown' })
    const ahead = await RawHeld.dial(`${server.socketUrl}/held`, { ...resume, received: 1_000_000 })
    expect(ahead).toMatchObject({ type: 'refuse', code: 'ahead' })
    const second = await RawHeld.open(`${server.socketUrl}/held`, resume)
    expect(second.welcome).toMatchObject({ type: 'welcome', session, attachment })
    expect(second.welcome['token']).not.toBe(token)
    const info = await second.socket.send('Target.getTargetInfo', { targetId })
    expect(info.targetInfo.targetId).toBe(targetId)
    second.say({ type: 'ready', epoch: second.welcome['epoch'] })
    await second.socket.send('Browser.getVersion')
    const again = await RawHeld.dial(`${server.socketUrl}/held`, resume)
    expect(again).toMatchObject({ type: 'refuse', code: 'token_reused' })
    await second.socket.send('Browser.getVersion')
    second.say({ type: 'bye' })
    expect(await closedReason(session)).toBe('last_holder_left')
  })

  it('is told why, when its session is closed while the client is away', async () => {
    const lost = await RawHeld.open(`${server.socketUrl}/held`)
    const { session, attachment, token } = lost.welcome
    lost.socket.socket.terminate()
    await server.holdfast.session(session).close('by hand')
    const answer = await RawHeld.dial(`${server.socketUrl}/held`, {
      session,
      attachment,
      token,
      received: 0,
    })
    expect(answer).toMatchObject({ type: 'refuse', code: 'session_closed' })
  })

  it('refuses those who say something else than hello, and does not wait for them', async () => {
    const mute = await RawCdp.open(`${server.socketUrl}/held`)
    mute.say('{"id":1,"method":"Browser.getVersion"}')
    expect(await mute.closed).toBe(4400)
    const garbled = await RawCdp.open(`${server.socketUrl}/held`)
    garbled.say('#{"type":"hello","v":"one"}')
    expect(await garbled.closed).toBe(4400)
  })

  it('tells clients of 0.1.0, by the frame that they know, what to do', async () => {
    const old = await RawCdp.open(`${server.socketUrl}/held`)
    old.say('#{"type":"hello","v":1}')
    const reason = 'this server speaks version 2: update holdfast/cdp'
    const end = { type: 'end', code: 'version_unsupported', reason, retry: false }
    expect(await old.frame()).toEqual(end)
    expect(await old.closed).toBe(4426)
  })
})

describe('the relay', () => {
  it('is a port like Chrome’s for stock clients, and survives a bad network', async () => {
    const proxy = new FaultProxy({
      port: server.server.port,
      bytes: () => 40_000 + Math.random() * 20_000,
    })
    const { port } = new URL(await proxy.listen())
    const relay = await startRelay({ remote: `http://127.0.0.1:${port}/cdp/chromium`, port: 0 })
    const browser = await chromium.connectOverCDP(`http://127.0.0.1:${relay.port}`)
    const page = await browser.contexts()[0]!.newPage()
    const titles: string[] = []
    for (let n = 0; n < 12 || proxy.cuts < 3; n += 1) {
      await page.goto(`${site.url}/page-${n}`)
      titles.push(await page.title())
    }
    proxy.isGentle = true
    expect(titles).toEqual(paths(titles.length))
    const targets = await CDP.List({ port: relay.port })
    expect(targets[0]?.url).toBe(`${site.url}${titles.at(-1)}`)
    const client = await CDP({ port: relay.port, target: targets[0] })
    const { result } = await client.send('Runtime.evaluate', { expression: 'document.title' })
    expect(result.value).toBe(titles.at(-1))
    await client.close()
    await browser.close()
    await relay.close()
    await proxy.close()
  })

  it('ends the session that it made for itself when it goes, and no other', async () => {
    const open = async (): Promise<string[]> => {
      const { sessions } = await server.holdfast.list({ state: 'open' })
      return sessions.map(({ id }) => id)
    }
    const before = await open()
    const [own, named, idle] = await Promise.all([
      startRelay({ remote: server.url, port: 0 }),
      startRelay({ remote: server.url, port: 0, key: 'kept' }),
      startRelay({ remote: server.url, port: 0 }),
    ])
    for (const { port } of [own, named]) {
      const browser = await puppeteer.connect({ browserURL: `http://127.0.0.1:${port}` })
      await browser.newPage()
      await browser.disconnect()
    }
    const made = (await open()).filter((id) => !before.includes(id))
    expect(made).toHaveLength(2)
    await Promise.all([own, named, idle].map((relay) => relay.close()))
    const left = (await open()).filter((id) => !before.includes(id))
    expect(left).toHaveLength(1)
    const { key } = await server.holdfast.session(left[0]!).state()
    expect(key).toContain('kept')
    await server.holdfast.session(left[0]!).close()
  })

  it('serves nobody but programs on this machine', async () => {
    const relay = await startRelay({ remote: server.url, port: 0 })
    const url = `http://127.0.0.1:${relay.port}/json/version`
    const statuses = await Promise.all([
      fetch(url, { headers: { origin: 'http://evil.example' } }),
      fetch(url),
    ])
    expect(statuses.map(({ status }) => status)).toEqual([403, 200])
    const page = new RawCdp(`ws://127.0.0.1:${relay.port}/`, {
      headers: { origin: 'http://evil.example' },
    })
    expect(await page.closed).toBe(1006)
    await relay.close()
  })
})

describe('the state of a connection', () => {
  it('is told when it changes: lost once, with the reason, then connecting and live', async () => {
    const told: [string, string | null][] = []
    const onState = (state: string, reason: string | null): void => void told.push([state, reason])
    const connection = await HeldConnection.open(server.url, { onState })
    for (let n = 0; n < 2; n += 1) {
      connection.drop()
      await expect.poll(() => told.filter(([state]) => state === 'live')).toHaveLength(n + 2)
    }
    connection.close()
    const again: [string, string | null][] = [
      ['lost', 'the connection was lost'],
      ['connecting', null],
      ['live', null],
    ]
    const first = again.slice(1)
    expect(told).toEqual([...first, ...again, ...again, ['over', 'closed by this client']])
  })

  it('is told of each connection of a relay', async () => {
    const proxy = new CuttingProxy(server.server.port)
    const remote = `${await proxy.listen()}/cdp/chromium`
    const told: [string, number][] = []
    const onState = (state: string, _: string | null, connection: number): void =>
      void told.push([state, connection])
    const relay = await startRelay({ remote, port: 0, onState })
    const client = await RawCdp.open(`ws://127.0.0.1:${relay.port}/devtools/browser/any`)
    proxy.lose = 1
    expect((await client.send('Browser.getVersion')).product).toMatch(/Chrome/)
    await expect
      .poll(() => told)
      .toEqual(['connecting', 'live', 'lost', 'connecting', 'live'].map((state) => [state, 1]))
    await relay.close()
    await proxy.close()
  })
})
