/** The tools of the guide's table, each by the address that the table names; two at once, if it says so. */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import CDP from 'chrome-remote-interface'
import { chromium } from 'playwright-core'
import puppeteer, { type Browser as PuppeteerBrowser } from 'puppeteer-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { startRelay } from '../../src/cdp/index.ts'
import { TokenList } from '../../src/server/tokens.ts'
import { importTool, McpServer, PROGRAMS, startTool } from '../support/browser-tools.ts'
import { serveCdp, Site, type CdpServer } from '../support/cdp-server.ts'
import { GUARDED, guarded } from '../support/guarded.ts'
import { RawCdp } from '../support/raw-cdp.ts'

let site: Site
let shared: CdpServer
let own: CdpServer
/** One that asks for a token. */
let secured: CdpServer
const TOKEN = 'hf_the-token-of-this-test'
/** Ports on which each has its browser as Chrome would. */
let sharedPort: number
let ownPort: number
let leave: (() => unknown)[] = []

beforeAll(async () => {
  site = await new Site().start()
  const chromium = { program: 'chromium', own: true }
  const sha256 = createHash('sha256').update(TOKEN).digest('hex')
  const list = new TokenList([{ name: 'a', id: 'id-a', sha256, scopes: ['talk'] }])
  const tokens = {
    scopesOf: (token: string, now: number) => list.scopesOf(token, now),
    principalOf: (token: string) => list.principalOf(token),
    revision: () => 0,
    close: () => undefined,
  }
  ;[shared, own, secured] = await Promise.all([
    serveCdp(),
    serveCdp({ browsers: { chromium } }),
    serveCdp({ tokens }),
  ])
  sharedPort = await shared.server.listenCdp('chromium', 0)
  ownPort = await own.server.listenCdp('chromium', 0)
})
afterEach(async () => {
  for (const each of leave.splice(0)) await each()
})
afterAll(async () => {
  await Promise.all([shared, own, secured, site].map((each) => each.close()))
})

async function mcp(path: string, ...args: string[]): Promise<McpServer> {
  const server = await McpServer.start(path, args)
  leave.push(() => server.stop())
  return server
}

/** What the guide calls `either`. */
const EITHER: [string, () => CdpServer][] = [
  ['in a shared browser', () => shared],
  ['each in a browser of its own', () => own],
]

describe('@playwright/mcp', () => {
  it.each(EITHER)('two at once have their own tabs, %s', async (_, server) => {
    const start = () => mcp(PROGRAMS.playwrightMcp, '--cdp-endpoint', server().url)
    const servers = await Promise.all([start(), start()])
    for (const [n, each] of servers.entries()) {
      expect(await each.call('browser_navigate', { url: `${site.url}/${n}` })).toContain(`/${n}`)
    }
    for (const [n, each] of servers.entries()) {
      const tabs = await each.call('browser_tabs', { action: 'list' })
      expect(tabs).toContain(`${site.url}/${n}`)
      expect(tabs).not.toContain(`${site.url}/${1 - n}`)
    }
  })

  it('shows a token in a header', async () => {
    const header = ['--cdp-header', `Authorization: Bearer ${TOKEN}`]
    const server = await mcp(PROGRAMS.playwrightMcp, '--cdp-endpoint', secured.url, ...header)
    expect(await server.call('browser_navigate', { url: `${site.url}/in` })).toContain('/in')
  })
})

describe('chrome-devtools-mcp', () => {
  it.each(EITHER)(
    'two at once have their own tabs, and find one at the start, %s',
    async (_, server) => {
      const start = () => mcp(PROGRAMS.devtoolsMcp, '--wsEndpoint', server().socketUrl)
      const servers = await Promise.all([start(), start()])
      for (const [n, each] of servers.entries()) {
        expect(await each.call('list_pages')).toContain('about:blank')
        const page = { pageId: 1, type: 'url', url: `${site.url}/${n}` }
        expect(await each.call('navigate_page', page)).toContain(`/${n}`)
      }
      for (const [n, each] of servers.entries()) {
        const pages = await each.call('list_pages')
        expect(pages).toContain(`${site.url}/${n}`)
        expect(pages).not.toContain(`${site.url}/${1 - n}`)
      }
    },
  )

  it('shows a token in a header', async () => {
    const header = ['--wsHeaders', JSON.stringify({ Authorization: `Bearer ${TOKEN}` })]
    const server = await mcp(PROGRAMS.devtoolsMcp, '--wsEndpoint', secured.socketUrl, ...header)
    expect(await server.call('list_pages')).toContain('about:blank')
  })

  it('records a trace in a browser of its own', async () => {
    const server = await mcp(PROGRAMS.devtoolsMcp, '--wsEndpoint', own.socketUrl)
    await server.call('navigate_page', { pageId: 1, type: 'url', url: `${site.url}/traced` })
    const trace = { pageId: 1, reload: true, autoStop: true }
    expect(await server.call('performance_start_trace', trace)).toContain('trace')
  })

  it('finds the browser at the root of a port', async () => {
    const browserUrl = `http://127.0.0.1:${sharedPort}`
    const server = await mcp(PROGRAMS.devtoolsMcp, '--browserUrl', browserUrl)
    expect(await server.call('list_pages')).toContain('about:blank')
  })
})

describe('Lighthouse', () => {
  it('measures a page in a browser of its own', async () => {
    const flags = [`--port=${ownPort}`, '--output=json', '--only-categories=seo', '--quiet']
    const child = startTool(PROGRAMS.lighthouse, [`${site.url}/measured`, ...flags])
    let [text, problem] = ['', '']
    child.stdout?.on('data', (chunk: Buffer) => (text += chunk.toString()))
    child.stderr?.on('data', (chunk: Buffer) => (problem += chunk.toString()))
    await once(child, 'close')
    expect(problem).toBe('')
    const report = JSON.parse(text) as { finalDisplayedUrl: string; categories: any }
    expect(report.finalDisplayedUrl).toBe(`${site.url}/measured`)
    expect(report.categories.seo.score).toBeGreaterThan(0)
  })
})

/** Selenium's session with what listens on a port as Chrome does. */
async function seleniumAt(chromePort: number): Promise<any> {
  const driver = guarded(
    spawn('/usr/bin/chromedriver', ['--port=0'], {
      stdio: ['ignore', 'pipe', 'ignore'],
      ...GUARDED,
    }),
  )
  leave.push(() => driver.kill())
  let said = ''
  driver.stdout.on('data', (chunk: Buffer) => (said += chunk.toString()))
  const listening = (): string | undefined => /successfully on port (\d+)/.exec(said)?.[1]
  await expect.poll(listening).toBeDefined()
  const { default: selenium } = await importTool('selenium-webdriver')
  const { default: chrome } = await importTool('selenium-webdriver/chrome.js')
  const options = new chrome.Options()
  options.options_['debuggerAddress'] = `127.0.0.1:${chromePort}`
  return new selenium.Builder()
    .forBrowser('chrome')
    .usingServer(`http://127.0.0.1:${listening()}`)
    .setChromeOptions(options)
    .build()
}

async function relayTo(server: CdpServer): Promise<number> {
  const relay = await startRelay({ remote: server.url, port: 0 })
  leave.push(() => relay.close())
  return relay.port
}

describe('Selenium', () => {
  it.each([
    ['a shared browser', () => sharedPort],
    ['a browser of its own', () => ownPort],
  ])('drives the session of a port of %s, by chromedriver', async (_, port) => {
    const session = await seleniumAt(port())
    await session.get(`${site.url}/selenium`)
    expect(await session.getTitle()).toBe('/selenium')
    await session.switchTo().newWindow('tab')
    await session.get(`${site.url}/tab`)
    expect(await session.executeScript('return document.title')).toBe('/tab')
    await session.quit()
  })

  it('two at once have their own windows, each by a relay of its own', async () => {
    const sessions: any[] = []
    for (let n = 0; n < 2; n += 1) sessions.push(await seleniumAt(await relayTo(shared)))
    for (const [n, session] of sessions.entries()) await session.get(`${site.url}/${n}`)
    for (const [n, session] of sessions.entries()) {
      expect(await session.getTitle()).toBe(`/${n}`)
      expect(await session.getAllWindowHandles()).toHaveLength(1)
      await session.quit()
    }
  })
})

/** Two clients at once: each opens a page, and sees no other than its own. */
async function expectApart(connect: () => Promise<Driven>): Promise<void> {
  const clients = [await connect(), await connect()]
  for (const [n, { open }] of clients.entries()) await open(`${site.url}/${n}`)
  for (const [n, { urls, leave: go }] of clients.entries()) {
    const seen = (await urls()).filter((url) => url.startsWith(site.url))
    expect(seen).toEqual([`${site.url}/${n}`])
    await go()
  }
}

type Driven = {
  readonly open: (url: string) => Promise<unknown>
  readonly urls: () => Promise<string[]>
  readonly leave: () => Promise<unknown>
}

function drivenBy(browser: PuppeteerBrowser): Driven {
  return {
    open: async (url) => (await browser.newPage()).goto(url),
    urls: async () => (await browser.pages()).map((page) => page.url()),
    leave: () => browser.close(),
  }
}

describe('Playwright', () => {
  it.each(EITHER)('two at once have their own pages, %s', async (_, server) => {
    await expectApart(async () => {
      const browser = await chromium.connectOverCDP(server().url)
      const context = browser.contexts()[0]!
      return {
        open: async (url) => (await context.newPage()).goto(url),
        urls: async () => context.pages().map((page) => page.url()),
        leave: () => browser.close(),
      }
    })
  })
})

describe('a browser of its own', () => {
  it('is traced, gets screens and shows chrome: pages, by Playwright and by Puppeteer', async () => {
    const url = 'chrome://version/'
    const one = await chromium.connectOverCDP(own.url)
    const page = await one.contexts()[0]!.newPage()
    await one.startTracing(page)
    await page.goto(url)
    const trace = JSON.parse(String(await one.stopTracing())) as { traceEvents: unknown[] }
    const other = await puppeteer.connect({ browserWSEndpoint: own.socketUrl })
    const tab = await other.newPage()
    await tab.tracing.start()
    await tab.goto(url)
    const bytes = await tab.tracing.stop()
    await other.addScreen({ left: 800, top: 0, width: 600, height: 400 })
    expect([trace.traceEvents.length > 0, (bytes?.length ?? 0) > 0]).toEqual([true, true])
    expect([page.url(), tab.url(), (await other.screens()).length]).toEqual([url, url, 2])
    await Promise.all([one.close(), other.close()])
  })
})

describe('Puppeteer', () => {
  it.each(EITHER)('two at once have their own pages, %s', async (_, server) => {
    const connect = () => puppeteer.connect({ browserWSEndpoint: server().socketUrl })
    await expectApart(async () => drivenBy(await connect()))
  })

  it('before version 25 drops the path of a browserURL, and finds the browser at a port', async () => {
    await expect(puppeteer.connect({ browserURL: shared.url })).rejects.toThrow(/404|not found/i)
    const browser = await puppeteer.connect({ browserURL: `http://127.0.0.1:${sharedPort}` })
    expect(await (await browser.newPage()).evaluate('6 * 7')).toBe(42)
    await browser.disconnect()
  })
})

describe('chrome-remote-interface', () => {
  it.each(EITHER)('finds its pages below a path, %s', async (_, server) => {
    const port = Number(new URL(server().url).port)
    const alterPath = (path: string): string =>
      path.startsWith('/cdp/') ? path : `/cdp/chromium${path}`
    const target = await CDP.New({ port, alterPath, url: `${site.url}/found` })
    const client = await CDP({ port, alterPath, target: target.id })
    const { result } = await client.send('Runtime.evaluate', { expression: 'location.pathname' })
    expect(result.value).toBe('/found')
    await client.close()
    await CDP.Close({ port, alterPath, id: target.id })
  })
})

describe('Puppeteer 25', () => {
  it.each(EITHER)(
    'takes a browserURL with a path; two at once are apart, %s',
    async (_, server) => {
      const { default: newer } = await importTool('puppeteer-core')
      await expectApart(async () => drivenBy(await newer.connect({ browserURL: server().url })))
    },
  )
})

describe('a client in the manner of browser-use', () => {
  it('attaches without waiting, opens windows, and two at once have their own', async () => {
    const clients = await Promise.all([1, 2].map(() => RawCdp.open(shared.socketUrl)))
    leave.push(() => clients.map((client) => client.close()))
    for (const [n, client] of clients.entries()) {
      const autoAttach = { autoAttach: true, waitForDebuggerOnStart: false, flatten: true }
      await client.send('Target.setAutoAttach', autoAttach)
      const [attached] = client.events('Target.attachedToTarget')
      const sessionId = attached?.['params'].sessionId as string
      await client.send('Page.enable', {}, sessionId)
      await client.send('Page.navigate', { url: `${site.url}/use-${n}` }, sessionId)
      await client.until(({ method }) => method === 'Page.loadEventFired')
      const expression = `void open('${site.url}/window-${n}')`
      await client.send('Runtime.evaluate', { expression, userGesture: true }, sessionId)
    }
    for (const [n, client] of clients.entries()) {
      const urls = async (): Promise<string[]> => {
        const { targetInfos } = await client.send('Target.getTargets')
        return targetInfos.map((info: any) => info.title as string).toSorted()
      }
      await expect.poll(urls).toEqual([`/use-${n}`, `/window-${n}`])
    }
  })
})
