/**
 * What stock clients do with one browser, beyond a page: many sessions, frames and workers that
 * they attach to by themselves, traffic that one changes while another looks on, contexts, and
 * clients that are killed.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import CDP from 'chrome-remote-interface'
import puppeteer from 'puppeteer-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { GUARDED, guarded } from '../support/guarded.ts'
import { serveCdp, Site, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp } from '../support/raw-cdp.ts'

let server: CdpServer
let site: Site
let elsewhere: string
let port: number

beforeAll(async () => {
  site = await new Site().start()
  elsewhere = site.url.replace('127.0.0.1', 'localhost')
  site.pages['/worker.js'] = 'onmessage = ({ data }) => postMessage(data * 2)'
  site.pages['/inner'] = '<title>inner</title><script>new Worker("/worker.js")</script>'
  site.pages['/whole'] =
    `<title>whole</title><iframe src="${elsewhere}/inner"></iframe>` +
    '<script>new Worker("/worker.js")</script>'
  server = await serveCdp()
  port = await server.server.listenCdp('chromium', 0)
  // Somebody else, who looks at everything: nobody below may notice.
  watcher = await RawCdp.openEmpty(server.socketUrl)
  await watcher.send('Target.setDiscoverTargets', { discover: true })
  const autoAttach = { autoAttach: true, waitForDebuggerOnStart: true, flatten: true }
  await watcher.send('Target.setAutoAttach', autoAttach)
})
afterAll(async () => {
  expect(watcher.events('Target.attachedToTarget')).toEqual([])
  watcher.close()
  await server.close()
  await site.close()
})

let watcher: RawCdp

describe('Puppeteer', () => {
  it('attaches to frames of other sites and to workers, those of the frames too', async () => {
    const browser = await puppeteer.connect({ browserWSEndpoint: server.socketUrl })
    const page = await browser.newPage()
    await page.goto(`${site.url}/whole`)
    const frame = await page.waitForFrame(`${elsewhere}/inner`)
    expect(await frame.title()).toBe('inner')
    await expect.poll(() => page.workers().length).toBe(2)
    const kinds = page.workers().map((worker) => worker.evaluate('typeof importScripts'))
    expect(await Promise.all(kinds)).toEqual(['function', 'function'])
    await browser.close()
  })

  it('has hundreds of sessions on a page, each with its own replies and events', async () => {
    const browser = await puppeteer.connect({ browserWSEndpoint: server.socketUrl })
    const page = await browser.newPage()
    const names = new Set<string>()
    for (let round = 0; round < 5; round += 1) {
      const sessions = await Promise.all(Array.from({ length: 40 }, () => page.createCDPSession()))
      for (const session of sessions) names.add(session.id())
      const [first, ...quiet] = sessions
      const heard: unknown[] = []
      for (const session of quiet) session.on('Runtime.consoleAPICalled', (it) => heard.push(it))
      const told = new Promise<void>((resolve) => {
        first!.on('Runtime.consoleAPICalled', ({ args }) => {
          // It is told again what was said before it came.
          if (args[0]?.value === round) resolve()
        })
      })
      await first!.send('Runtime.enable')
      await page.evaluate(`console.log(${round})`)
      await told
      const values = sessions.map(async (session, n) => {
        const { result } = await session.send('Runtime.evaluate', { expression: `${n}` })
        return result.value as number
      })
      expect(await Promise.all(values)).toEqual(sessions.map((_, n) => n))
      expect(heard).toEqual([])
      await Promise.all(sessions.map((session) => session.detach()))
    }
    expect(names.size).toBe(200)
    expect(await page.evaluate('1 + 1')).toBe(2)
    await browser.close()
  })
})

describe('chrome-remote-interface', () => {
  it('attaches to frames and workers, in one connection', async () => {
    const target = await CDP.New({ port, url: 'about:blank' })
    const client = await CDP({ port, target })
    const attached: { type: string; sessionId: string }[] = []
    const autoAttach = { autoAttach: true, waitForDebuggerOnStart: false, flatten: true }
    client.on('Target.attachedToTarget', ({ sessionId, targetInfo: { type } }) => {
      attached.push({ type, sessionId })
      void client.send('Target.setAutoAttach', autoAttach, sessionId).catch(() => undefined)
    })
    await client.send('Target.setAutoAttach', autoAttach)
    await client.send('Page.enable')
    await client.send('Page.navigate', { url: `${site.url}/whole` })
    await expect
      .poll(() => attached.map(({ type }) => type).toSorted())
      .toEqual(['iframe', 'worker', 'worker'])
    for (const { type, sessionId } of attached) {
      const expression = `typeof document`
      const { result } = await client.send('Runtime.evaluate', { expression }, sessionId)
      expect(result.value).toBe(type === 'iframe' ? 'object' : 'undefined')
    }
    await client.close()
    await CDP.Close({ port, id: target.id })
  })

  it('changes a page’s traffic in one connection while another only watches', async () => {
    const target = await CDP.New({ port, url: 'about:blank' })
    const [changer, looker] = [await CDP({ port, target }), await CDP({ port, target })]
    const seen: string[] = []
    looker.on('Network.responseReceived', ({ type, response }) => {
      if (type === 'Document') seen.push(response.url)
    })
    looker.on('Fetch.requestPaused', () => seen.push('was asked, too'))
    await looker.send('Network.enable')
    await changer.send('Fetch.enable')
    changer.on('Fetch.requestPaused', ({ requestId }) => {
      const body = Buffer.from('<title>made up</title>').toString('base64')
      const answer = { requestId, responseCode: 200, body }
      // The last ones, for icons, may come when it has gone.
      changer.send('Fetch.fulfillRequest', answer).catch(() => undefined)
    })
    await changer.send('Page.enable')
    const loaded = new Promise((resolve) => changer.on('Page.loadEventFired', resolve))
    await changer.send('Page.navigate', { url: `${site.url}/real` })
    await loaded
    const { result } = await looker.send('Runtime.evaluate', { expression: 'document.title' })
    expect([result.value, seen]).toEqual(['made up', [`${site.url}/real`]])
    // Who only watched goes on when the other has gone.
    await changer.close()
    await looker.send('Page.enable')
    const again = new Promise((resolve) => looker.on('Page.loadEventFired', resolve))
    await looker.send('Page.navigate', { url: `${site.url}/real` })
    await again
    const title = await looker.send('Runtime.evaluate', { expression: 'document.title' })
    expect(title.result.value).toBe('/real')
    await looker.close()
    await CDP.Close({ port, id: target.id })
  })

  it('is disconnected when its page is closed, and what it waits for fails', async () => {
    const target = await CDP.New({ port, url: 'about:blank' })
    const client = await CDP({ port, target })
    const reasons: string[] = []
    client.on('Inspector.detached', ({ reason }) => reasons.push(reason))
    const gone = new Promise((resolve) => client.on('disconnect', resolve))
    const forever = { expression: 'new Promise(() => {})', awaitPromise: true }
    const failed = client.send('Runtime.evaluate', forever).catch((error: Error) => error.message)
    await CDP.Close({ port, id: target.id })
    await gone
    expect([await failed, reasons.at(-1)]).toEqual(['WebSocket connection closed', 'target_closed'])
  })

  it('has contexts with cookies and pages of their own', async () => {
    const { webSocketDebuggerUrl } = await CDP.Version({ port })
    const client = await CDP({ port, target: webSocketDebuggerUrl })
    const made = await Promise.all([1, 2].map(() => client.send('Target.createBrowserContext')))
    const cookies = made.map(async ({ browserContextId }, n) => {
      const cookie = { name: 'mine', value: `${n}`, url: site.url }
      await client.send('Storage.setCookies', { cookies: [cookie], browserContextId })
      const { targetId } = await client.send('Target.createTarget', {
        url: `${site.url}/page`,
        browserContextId,
      })
      const attach = { targetId, flatten: true }
      const { sessionId } = await client.send('Target.attachToTarget', attach)
      const urls = [site.url]
      const { cookies: found } = await client.send('Network.getCookies', { urls }, sessionId)
      return found.map(({ value }: { value: string }) => value)
    })
    expect(await Promise.all(cookies)).toEqual([['0'], ['1']])
    for (const context of made) await client.send('Target.disposeBrowserContext', context)
    const { browserContextIds } = await client.send('Target.getBrowserContexts')
    expect(browserContextIds).toEqual([])
    await client.close()
  })
})

describe('a client that is killed in the middle', () => {
  it('leaves nothing behind, and nobody waits for it', async () => {
    // Of those before nothing is left: only the one who looks at everything.
    const onlyWatcher = { clients: 1, attached: 1, waiting: 0 }
    await expect.poll(() => server.server.browserCounts()).toMatchObject(onlyWatcher)
    const before = await server.server.browserCounts()
    const other = await puppeteer.connect({ browserWSEndpoint: server.socketUrl })
    const page = await other.newPage()
    const program = fileURLToPath(new URL('../support/killed-client.mjs', import.meta.url))
    const args = [program, server.socketUrl, site.url]
    const child = guarded(
      spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'], ...GUARDED }),
    )
    const [said] = (await once(child.stdout, 'data')) as [Buffer]
    expect(said.toString()).toBe('in the middle\n')
    expect((await server.server.browserCounts())?.clients).toBe(3)
    child.kill('SIGKILL')
    await page.goto(`${site.url}/on`)
    expect(await page.title()).toBe('/on')
    await other.close()
    await expect.poll(() => server.server.browserCounts()).toEqual(before)
  })
})
