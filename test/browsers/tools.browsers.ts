/** The tools of the guide's table, each by the address that the table names; two at once, if it says so. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { importTool, McpServer, PROGRAMS, startTool } from '../support/browser-tools.ts'
import { serveCdp, Site, type CdpServer } from '../support/cdp-server.ts'
import { GUARDED, guarded } from '../support/guarded.ts'
import { RawCdp } from '../support/raw-cdp.ts'

let site: Site
let shared: CdpServer
let own: CdpServer
/** Ports on which each has its browser as Chrome would. */
let sharedPort: number
let ownPort: number
let leave: (() => unknown)[] = []

beforeAll(async () => {
  site = await new Site().start()
  const chromium = { program: 'chromium', own: true }
  ;[shared, own] = await Promise.all([serveCdp(), serveCdp({ browsers: { chromium } })])
  sharedPort = await shared.server.listenCdp('chromium', 0)
  ownPort = await own.server.listenCdp('chromium', 0)
})
afterEach(async () => {
  for (const each of leave.splice(0)) await each()
})
afterAll(async () => {
  await Promise.all([shared.close(), own.close(), site.close()])
})

async function mcp(path: string, ...args: string[]): Promise<McpServer> {
  const server = await McpServer.start(path, args)
  leave.push(() => server.stop())
  return server
}

describe('@playwright/mcp', () => {
  it('two at once have their own tabs', async () => {
    const start = () => mcp(PROGRAMS.playwrightMcp, '--cdp-endpoint', shared.url)
    const servers = await Promise.all([start(), start()])
    for (const [n, server] of servers.entries()) {
      expect(await server.call('browser_navigate', { url: `${site.url}/${n}` })).toContain(`/${n}`)
    }
    for (const [n, server] of servers.entries()) {
      const tabs = await server.call('browser_tabs', { action: 'list' })
      expect(tabs).toContain(`${site.url}/${n}`)
      expect(tabs).not.toContain(`${site.url}/${1 - n}`)
    }
  })
})

describe('chrome-devtools-mcp', () => {
  it('two at once have their own tabs, and find one at the start', async () => {
    const start = () => mcp(PROGRAMS.devtoolsMcp, '--wsEndpoint', shared.socketUrl)
    const servers = await Promise.all([start(), start()])
    for (const [n, server] of servers.entries()) {
      expect(await server.call('list_pages')).toContain('about:blank')
      const page = { pageId: 1, type: 'url', url: `${site.url}/${n}` }
      expect(await server.call('navigate_page', page)).toContain(`/${n}`)
    }
    for (const [n, server] of servers.entries()) {
      const pages = await server.call('list_pages')
      expect(pages).toContain(`${site.url}/${n}`)
      expect(pages).not.toContain(`${site.url}/${1 - n}`)
    }
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

describe('Selenium', () => {
  it('drives the session of a port, by chromedriver', async () => {
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
    const port = listening()
    const { default: selenium } = await importTool('selenium-webdriver')
    const { default: chrome } = await importTool('selenium-webdriver/chrome.js')
    const options = new chrome.Options()
    options.options_['debuggerAddress'] = `127.0.0.1:${sharedPort}`
    const session = await new selenium.Builder()
      .forBrowser('chrome')
      .usingServer(`http://127.0.0.1:${port}`)
      .setChromeOptions(options)
      .build()
    await session.get(`${site.url}/selenium`)
    expect(await session.getTitle()).toBe('/selenium')
    await session.switchTo().newWindow('tab')
    await session.get(`${site.url}/tab`)
    expect(await session.executeScript('return document.title')).toBe('/tab')
    await session.quit()
  })
})

describe('Puppeteer 25', () => {
  it('takes a browserURL with a path', async () => {
    const { default: puppeteer } = await importTool('puppeteer-core')
    const browser = await puppeteer.connect({ browserURL: shared.url })
    expect(await (await browser.newPage()).evaluate('6 * 7')).toBe(42)
    await browser.close()
  })
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
