/** Pages that pages open: as many as there may be, and no more, whoever waits for them. */
import { chromium } from 'playwright-core'
import puppeteer from 'puppeteer-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp } from '../support/raw-cdp.ts'

const TARGETS_MAX = 4
const WHY = 'Holdfast closed a window at once: there are too many pages'

let server: CdpServer

beforeAll(async () => {
  server = await serveCdp({ cdpLimits: { targetsMax: TARGETS_MAX, openingMax: 2 } })
})
afterAll(() => server.close())

/** Opens so many windows, in the ways in which a page can. */
function opens(count: number): string {
  const ways = [`open('about:blank')`, `open('about:blank', '', 'noopener')`]
  return Array.from({ length: count }, (_, n) => ways[n % 2]).join(';')
}

async function pages(client: RawCdp): Promise<number> {
  return (await client.send('Target.getTargets')).targetInfos.length
}

async function openPage(client: RawCdp) {
  const { targetId } = await client.send('Target.createTarget', { url: 'about:blank' })
  const { sessionId } = await client.send('Target.attachToTarget', { targetId, flatten: true })
  return { targetId: String(targetId), sessionId: String(sessionId) }
}

describe('windows that a page opens', () => {
  it('are closed beyond the bound, unseen, and their opener is told why', async () => {
    const [client, other] = [
      await RawCdp.openEmpty(server.socketUrl),
      await RawCdp.openEmpty(server.socketUrl),
    ]
    await client.send('Target.setDiscoverTargets', { discover: true })
    const { sessionId, targetId } = await openPage(client)
    const expression = `${opens(8)}; 5`
    const evaluate = { expression, userGesture: true }
    const { result } = await client.send('Runtime.evaluate', evaluate, sessionId)
    expect(result.value).toBe(5)
    await expect.poll(() => client.events('Log.entryAdded').length).toBe(5)
    for (const { params, sessionId: told } of client.events('Log.entryAdded')) {
      expect(told).toBe(sessionId)
      expect(params.entry).toMatchObject({ source: 'other', level: 'warning', text: WHY })
    }
    expect(await pages(client)).toBe(TARGETS_MAX)
    expect(client.events('Target.targetCreated')).toHaveLength(TARGETS_MAX)
    await expect.poll(async () => (await server.server.browserCounts())?.pages).toBe(TARGETS_MAX)
    const { error } = await client.ask('Target.createTarget', { url: 'about:blank' })
    expect(error.message).toBe('there are too many pages')
    // Nobody else has fewer for that, and there is room again when one is closed.
    await openPage(other)
    const [popup] = client
      .events('Target.targetCreated')
      .map(({ params }) => params.targetInfo.targetId as string)
      .filter((id) => id !== targetId)
    await client.send('Target.closeTarget', { targetId: popup })
    await expect.poll(() => pages(client)).toBe(TARGETS_MAX - 1)
    await client.send('Runtime.evaluate', { expression: opens(1), userGesture: true }, sessionId)
    await expect.poll(() => pages(client)).toBe(TARGETS_MAX)
    await expect.poll(async () => (await server.server.browserCounts())?.waiting).toBe(0)
    for (const each of [client, other]) each.close()
  })

  it('leave Playwright its own, and its opener goes on', async () => {
    const browser = await chromium.connectOverCDP(server.url)
    const context = browser.contexts()[0]!
    const page = await context.newPage()
    const told: string[] = []
    page.on('console', (message) => told.push(message.text()))
    await page.evaluate(`${opens(6)}; 5`)
    await expect.poll(() => told).toEqual([WHY, WHY, WHY, WHY])
    expect(await page.evaluate('1 + 1')).toBe(2)
    await expect.poll(() => context.pages().length).toBe(TARGETS_MAX)
    for (const popup of context.pages()) expect(await popup.evaluate('2 + 2')).toBe(4)
    await browser.close()
  })

  it('leave Puppeteer its own, and its opener goes on', async () => {
    const browser = await puppeteer.connect({ browserWSEndpoint: server.socketUrl })
    const page = await browser.newPage()
    const told: string[] = []
    page.on('console', (message) => told.push(message.text()))
    await page.evaluate(`${opens(6)}; 5`)
    await expect.poll(() => told).toEqual([WHY, WHY, WHY, WHY])
    expect(await page.evaluate('1 + 1')).toBe(2)
    await expect.poll(async () => (await browser.pages()).length).toBe(TARGETS_MAX)
    await browser.close()
  })
})
