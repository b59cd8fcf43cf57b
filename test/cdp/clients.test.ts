/** Stock clients on a real Chromium, through the door: what works against Chrome works here. */
import CDP from 'chrome-remote-interface'
import { chromium } from 'playwright-core'
import puppeteer from 'puppeteer-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Diagnostic } from '../../src/core/index.ts'
import { serveCdp, Site, type CdpServer } from '../support/cdp-server.ts'

let server: CdpServer
let site: Site
const diagnostics: Diagnostic[] = []

beforeAll(async () => {
  site = await new Site().start()
  server = await serveCdp({ onDiagnostic: (diagnostic) => diagnostics.push(diagnostic) })
})
afterAll(async () => {
  await server.close()
  await site.close()
})

describe('Playwright', () => {
  it('drives pages, and many sessions on one of them', async () => {
    const browser = await chromium.connectOverCDP(server.url)
    const context = browser.contexts()[0]!
    const page = await context.newPage()
    await page.goto(`${site.url}/one`)
    const sessions = await Promise.all(
      Array.from({ length: 20 }, () => context.newCDPSession(page)),
    )
    const values = await Promise.all(
      sessions.map((session, n) => session.send('Runtime.evaluate', { expression: `${n}` })),
    )
    await page.goto(`${site.url}/two`)
    expect(values.map(({ result }) => result.value as unknown)).toEqual(sessions.map((_, n) => n))
    expect(await page.title()).toBe('/two')
    await Promise.all(sessions.map((session) => session.detach()))
    expect(await page.evaluate('1 + 1')).toBe(2)
    await browser.close()
  })
})

describe('Puppeteer', () => {
  it('drives pages and contexts of its own', async () => {
    const browser = await puppeteer.connect({ browserWSEndpoint: server.socketUrl })
    const page = await browser.newPage()
    await page.goto(`${site.url}/one`)
    const other = await browser.createBrowserContext()
    const second = await other.newPage()
    await second.goto(`${site.url}/two`)
    expect(await page.title()).toBe('/one')
    expect(await second.title()).toBe('/two')
    await other.close()
    expect(await browser.pages()).toHaveLength(2)
    await browser.close()
  })
})

describe('chrome-remote-interface', () => {
  it('finds, opens and closes pages by the addresses that Chrome has', async () => {
    const port = await server.server.listenCdp('chromium', 0)
    const client = await CDP({ port })
    const { result } = await client.send('Runtime.evaluate', { expression: '6 * 7' })
    expect(result.value).toBe(42)
    await client.close()
    const page = await CDP.New({ port, url: `${site.url}/new` })
    expect((await CDP.List({ port })).map(({ id }) => id)).toContain(page.id)
    await CDP.Close({ port, id: page.id })
    expect((await CDP.Version({ port }))['Browser']).toMatch(/Chrome/)
    expect((await CDP.Protocol({ port })).domains.length).toBeGreaterThan(20)
  })
})

describe('clients of one port', () => {
  it('share a session and its tabs, and the operator is told', async () => {
    const port = await server.server.listenCdp('chromium', 0)
    const browserURL = `http://127.0.0.1:${port}`
    const shared = (): readonly Diagnostic[] =>
      diagnostics.filter(({ code }) => code === 'browser_shared')
    const one = await puppeteer.connect({ browserURL })
    const page = await one.newPage()
    await page.goto(`${site.url}/tab`)
    const apart = await chromium.connectOverCDP(`${browserURL}?key=apart`)
    expect(shared()).toEqual([])
    const other = await puppeteer.connect({ browserURL })
    const urls = (await other.pages()).map((each) => each.url())
    expect(urls).toContain(`${site.url}/tab`)
    const facts = { browser: 'chromium', key: 'shared', clients: 2 }
    expect(shared()).toMatchObject([{ level: 'warn', facts }])
    await page.close()
    await Promise.all([one.disconnect(), other.disconnect(), apart.close()])
  })
})

describe('a page’s traffic', () => {
  it('is changed by one session while another only watches', async () => {
    const browser = await puppeteer.connect({ browserWSEndpoint: server.socketUrl })
    const page = await browser.newPage()
    const watcher = await page.createCDPSession()
    const seen: string[] = []
    await watcher.send('Network.enable')
    watcher.on('Network.responseReceived', ({ response }) => seen.push(response.statusText))
    await page.setRequestInterception(true)
    page.on('request', (request) => {
      const body = '<title>made up</title>'
      void request.respond({ status: 200, contentType: 'text/html', body })
    })
    await page.goto(`${site.url}/real`)
    expect(await page.title()).toBe('made up')
    expect(seen).toHaveLength(1)
    await browser.close()
  })

  it('may be a large picture, or a large text sent to it', async () => {
    const browser = await chromium.connectOverCDP(server.url)
    const page = await browser.contexts()[0]!.newPage()
    const length = 3_000_000
    const text = await page.evaluate(`'äb"'.repeat(${length / 3})`)
    expect(text).toBe('äb"'.repeat(length / 3))
    expect(await page.evaluate((long: string) => long.length, 'x"\\'.repeat(1_000_000))).toBe(
      length,
    )
    await browser.close()
  })

  it('has downloads, frames of other sites, and popups', async () => {
    const elsewhere = site.url.replace('127.0.0.1', 'localhost')
    site.pages['/framed'] = `<iframe src="${elsewhere}/inner"></iframe>`
    const browser = await chromium.connectOverCDP(server.url)
    const context = await browser.newContext()
    const page = await context.newPage()
    await page.goto(`${site.url}/framed`)
    expect(await page.frames()[1]!.innerText('p')).toBe('/inner')
    const [popup] = await Promise.all([
      page.waitForEvent('popup'),
      page.evaluate(`void window.open('${elsewhere}/popup')`),
    ])
    expect(await popup.innerText('p')).toBe('/popup')
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.evaluate(`location.href = '${site.url}/file.bin'`),
    ])
    expect(await download.failure()).toBeNull()
    await browser.close()
  })
})
