/** Stock clients on a real Chromium, through the door: what works against Chrome works here. */
import CDP from 'chrome-remote-interface'
import { chromium } from 'playwright-core'
import puppeteer from 'puppeteer-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { serveCdp, Site, type CdpServer } from '../support/cdp-server.ts'

let server: CdpServer
let site: Site

beforeAll(async () => {
  site = await new Site().start()
  server = await serveCdp()
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
    expect(await browser.pages()).toHaveLength(1)
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
