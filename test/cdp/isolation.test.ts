/** Several clients of one browser: nobody sees, reaches or ends what is another's. */
import { chromium } from 'playwright-core'
import puppeteer from 'puppeteer-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { serveCdp, Site, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp, type Message } from '../support/raw-cdp.ts'

let server: CdpServer
let site: Site
let clients: RawCdp[] = []

beforeAll(async () => {
  site = await new Site().start()
  server = await serveCdp()
})
afterAll(async () => {
  await server.close()
  await site.close()
})
afterEach(() => {
  for (const client of clients.splice(0)) client.close()
})

async function connect(query = ''): Promise<RawCdp> {
  const client = await RawCdp.open(`${server.socketUrl}${query}`)
  clients.push(client)
  return client
}

async function connectEmpty(query = ''): Promise<RawCdp> {
  const client = await RawCdp.openEmpty(`${server.socketUrl}${query}`)
  clients.push(client)
  return client
}

async function pageOf(client: RawCdp, url = 'about:blank') {
  const { targetId } = await client.send('Target.createTarget', { url })
  const { sessionId } = await client.send('Target.attachToTarget', { targetId, flatten: true })
  return { targetId: targetId as string, sessionId: sessionId as string }
}

async function browserTargets(client: RawCdp): Promise<string[]> {
  await client.send('Target.setDiscoverTargets', { discover: true, filter: [{}] })
  const infos = client.events('Target.targetCreated').map(({ params }) => params.targetInfo)
  return infos.filter(({ type }) => type === 'browser').map(({ targetId }) => targetId as string)
}

describe('another client', () => {
  it('is not told of targets, contexts and sessions', async () => {
    const [one, other] = [await connect(), await connectEmpty()]
    await other.send('Target.setDiscoverTargets', { discover: true, filter: [{}] })
    await other.send('Target.setAutoAttach', {
      autoAttach: true,
      waitForDebuggerOnStart: false,
      flatten: true,
    })
    const { targetId } = await pageOf(one, `${site.url}/mine`)
    await one.send('Target.createBrowserContext')
    const own = await pageOf(other)
    const filter = [{ type: 'page' }]
    const { targetInfos } = await other.send('Target.getTargets', { filter })
    expect(targetInfos.map((info: any) => info.targetId)).toEqual([own.targetId])
    expect((await other.send('Target.getBrowserContexts')).browserContextIds).toEqual([])
    const told = JSON.stringify(other.messages)
    expect(told).toContain(own.targetId)
    expect(told).not.toContain(targetId)
    // The browser itself is a target too: to each only its own way to it.
    const browsers = await Promise.all([one, other].map((client) => browserTargets(client)))
    expect(browsers.map(({ length }) => length)).toEqual([1, 1])
    const [theirs] = browsers[0]!
    for (const method of ['Target.attachToTarget', 'Target.getTargetInfo']) {
      expect(await other.ask(method, { targetId: theirs })).toHaveProperty('error')
      expect(await one.ask(method, { targetId: theirs, flatten: true })).toHaveProperty('result')
    }
  })

  it('cannot attach to, look at, show or close a page, nor open one in its context', async () => {
    const [one, other] = [await connect(), await connect()]
    const { targetId, sessionId } = await pageOf(one)
    const own = await pageOf(other)
    const { browserContextId } = await one.send('Target.createBrowserContext')
    const calls: [string, object][] = [
      ['Target.attachToTarget', { targetId, flatten: true }],
      ['Target.attachToTarget', { targetId }],
      ['Target.getTargetInfo', { targetId }],
      ['Target.activateTarget', { targetId }],
      ['Target.closeTarget', { targetId }],
      ['Target.autoAttachRelated', { targetId, waitForDebuggerOnStart: true }],
      ['Target.exposeDevToolsProtocol', { targetId: own.targetId }],
      ['Target.createTarget', { url: 'about:blank', browserContextId }],
      ['Target.createTarget', { url: 'chrome://inspect' }],
      ['Target.disposeBrowserContext', { browserContextId }],
      ['Storage.getCookies', { browserContextId }],
      ['Browser.setDownloadBehavior', { behavior: 'deny', browserContextId }],
      ['Browser.getWindowForTarget', { targetId }],
      ['Browser.setWindowBounds', { windowId: 1, bounds: { width: 100 } }],
      ['Browser.crash', {}],
      ['Tracing.start', {}],
      ['Target.detachFromTarget', { sessionId }],
      ['Target.sendMessageToTarget', { sessionId, message: '{"id":1,"method":"Page.enable"}' }],
    ]
    for (const [method, params] of calls) {
      for (const session of [undefined, own.sessionId]) {
        const reply = await other.ask(method, params, session)
        expect(reply['error'], `${method} ${session ?? ''}`).toBeDefined()
      }
    }
    const navigated = await other.ask('Page.navigate', { url: 'chrome://inspect' }, own.sessionId)
    expect(navigated['error']).toBeDefined()
    expect(await other.ask('Runtime.evaluate', { expression: '1' }, sessionId)).toMatchObject({
      error: { code: -32001, message: 'Session with given id not found.' },
    })
    const { result } = await one.send('Runtime.evaluate', { expression: '1 + 1' }, sessionId)
    expect(result.value).toBe(2)
  })

  it('has its own cookies, and keeps them from pages of others', async () => {
    const [one, other] = await Promise.all([
      chromium.connectOverCDP(server.url),
      chromium.connectOverCDP(server.url),
    ])
    const [mine, theirs] = [one, other].map((browser) => browser.contexts()[0]!) as [any, any]
    await mine.addCookies([{ name: 'who', value: 'one', url: site.url }])
    expect(await theirs.cookies()).toEqual([])
    expect(await mine.cookies()).toHaveLength(1)
    const page = await theirs.newPage()
    await page.goto(site.url)
    expect(await page.evaluate('document.cookie')).toBe('')
    await Promise.all([one.close(), other.close()])
  })

  it('does not let a popup run before its owner has set it up', async () => {
    const autoAttach = { autoAttach: true, waitForDebuggerOnStart: true, flatten: true }
    const [watcher, owner] = [await connectEmpty(), await connectEmpty()]
    await watcher.send('Target.setAutoAttach', autoAttach)
    await owner.send('Target.setAutoAttach', autoAttach)
    await owner.send('Target.createTarget', { url: 'about:blank' })
    const [opener] = owner.events('Target.attachedToTarget')
    await owner.send('Runtime.runIfWaitingForDebugger', {}, opener?.['params'].sessionId)
    const expression = `window.open('${site.url}/popup'); 1`
    const opened = owner.ask('Runtime.evaluate', { expression }, opener?.['params'].sessionId)
    const isPopup = ({ method, params }: Message): boolean =>
      method === 'Target.attachedToTarget' && params.targetInfo.openerId !== undefined
    const { params } = await owner.until(isPopup)
    const { sessionId } = params
    await owner.send('Page.enable', {}, sessionId)
    const source = 'window.isEarly = true'
    await owner.send('Page.addScriptToEvaluateOnNewDocument', { source }, sessionId)
    await owner.send('Runtime.runIfWaitingForDebugger', {}, sessionId)
    await owner.until(({ method }) => method === 'Page.loadEventFired')
    const { result } = await owner.send('Runtime.evaluate', { expression: 'isEarly' }, sessionId)
    expect(result.value).toBe(true)
    expect((await opened)['result'].result.value).toBe(1)
    expect(watcher.events('Target.attachedToTarget')).toEqual([])
  })

  it('is not frozen by a client that attaches to everything and runs nothing', async () => {
    const idle = await connect()
    await idle.send('Target.setAutoAttach', {
      autoAttach: true,
      waitForDebuggerOnStart: true,
      flatten: true,
    })
    const browser = await puppeteer.connect({ browserWSEndpoint: server.socketUrl })
    const page = await browser.newPage()
    await page.goto(`${site.url}/free`)
    const [popup] = await Promise.all([
      new Promise<any>((resolve) => page.once('popup', resolve)),
      page.evaluate(`window.open('${site.url}/popup'); 1`),
    ])
    await popup.waitForFunction('document.title === "/popup"')
    expect(await page.evaluate('1 + 1')).toBe(2)
    await browser.close()
  })
})

describe('Browser.close', () => {
  it('ends only the session of the client that asked', async () => {
    const [one, other] = [await connect(), await connectEmpty('?key=stays')]
    const page = await pageOf(other)
    await one.send('Browser.close')
    expect(await one.closed).toBe(4410)
    expect((await other.send('Target.getTargets')).targetInfos).toHaveLength(1)
    await other.send('Runtime.evaluate', { expression: '1' }, page.sessionId)
  })
})

describe('clients of one key', () => {
  it('share their pages, as clients of one Chrome do', async () => {
    const [one, other] = [await connect('?key=team'), await connect('?key=team')]
    const { targetId } = await pageOf(one)
    const { sessionId } = await other.send('Target.attachToTarget', { targetId, flatten: true })
    const { result } = await other.send('Runtime.evaluate', { expression: '7' }, sessionId)
    expect(result.value).toBe(7)
    const { sessions } = await server.holdfast.list({ state: 'open', key: 'cdp:chromium:team' })
    expect(sessions).toHaveLength(1)
  })

  it('find their pages again when they come back by their address', async () => {
    const first = await connectEmpty('?key=again')
    const { targetId } = await pageOf(first, `${site.url}/kept`)
    const { browserContextId } = await first.send('Target.createBrowserContext', {
      disposeOnDetach: true,
    })
    await first.send('Target.createTarget', { url: `${site.url}/too`, browserContextId })
    first.socket.terminate()
    await first.closed
    const browser = await chromium.connectOverCDP(`${server.url}?key=again`)
    const pages = browser.contexts()[0]!.pages()
    await Promise.all(pages.map((page) => page.waitForLoadState()))
    expect(pages.map((page) => page.url()).toSorted()).toEqual([
      `${site.url}/kept`,
      `${site.url}/too`,
    ])
    await browser.close()
    const last = await connect('?key=again')
    const targets = async (): Promise<string[]> => {
      const { targetInfos } = await last.send('Target.getTargets')
      return targetInfos.map((info: any) => info.targetId)
    }
    await expect.poll(targets).toEqual([targetId])
  })

  it('lose everything when their session is closed', async () => {
    const client = await connect('?key=closed')
    await pageOf(client)
    const { sessions } = await server.holdfast.list({ state: 'open', key: 'cdp:chromium:closed' })
    await server.holdfast.session(sessions[0]!.id).close()
    expect(await client.closed).toBe(4410)
    const next = await connect('?key=closed')
    const { targetInfos } = await next.send('Target.getTargets')
    expect(targetInfos).toMatchObject([{ url: 'about:blank' }])
  })
})
