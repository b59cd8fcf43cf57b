/** Ways around the rules, and messages that would be the end of a server: each was possible once. */
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chromium } from 'playwright-core'
import puppeteer from 'puppeteer-core'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp, type Message } from '../support/raw-cdp.ts'

let server: CdpServer
let site: Server
let siteUrl: string
let folder: string
const pages: Record<string, string> = {}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-walls-'))
  site = createServer((request, response) => {
    const isFile = request.url?.startsWith('/file') === true
    response.writeHead(200, {
      'content-type': isFile ? 'application/octet-stream' : 'text/html',
      ...(isFile ? { 'content-disposition': 'attachment' } : {}),
    })
    response.end(pages[request.url ?? ''] ?? 'a site')
  })
  await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve))
  siteUrl = `http://127.0.0.1:${(site.address() as AddressInfo).port}`
  server = await serveCdp()
})
afterAll(async () => {
  await server.close()
  site.close()
  await rm(folder, { recursive: true, force: true })
})

async function pageOf(client: RawCdp, url = 'about:blank') {
  const { targetId } = await client.send('Target.createTarget', { url })
  const { sessionId } = await client.send('Target.attachToTarget', { targetId, flatten: true })
  return { targetId: String(targetId), sessionId: String(sessionId) }
}

it('what was judged is what the browser gets, however names are spelled', async () => {
  const [victim, attacker] = [
    await RawCdp.open(server.socketUrl),
    await RawCdp.open(server.socketUrl),
  ]
  const theirs = await pageOf(victim)
  const own = await pageOf(attacker)
  const pad = 'x'.repeat(5_000)
  for (const name of ['p\\u0061rams', 'params']) {
    const first = JSON.stringify({ targetId: theirs.targetId })
    const second = JSON.stringify({ targetId: own.targetId, pad })
    attacker.say(`{"id":77,"method":"Target.getTargetInfo","params":${first},"${name}":${second}}`)
    const reply = await attacker.until(({ id }) => id === 77)
    expect(JSON.stringify(reply)).not.toContain(theirs.targetId)
    attacker.messages.length = 0
  }
  victim.close()
  attacker.close()
})

it('a message that nests too deeply is refused, and nobody else notices', async () => {
  const [client, other] = [await RawCdp.open(server.socketUrl), await RawCdp.open(server.socketUrl)]
  const deep = `${'['.repeat(200_000)}${']'.repeat(200_000)}`
  const params = `{"url":"about:blank","x":${deep}}`
  client.say(`{"id":5,"method":"Target.createTarget","params":${params}}`)
  expect((await client.until(({ id }) => id === 5))['error'].code).toBe(-32700)
  expect((await other.send('Browser.getVersion')).product).toMatch(/Chrome/)
  client.close()
  other.close()
})

it('downloads are told to those whose they are', async () => {
  const [client, other] = [await RawCdp.open(server.socketUrl), await RawCdp.open(server.socketUrl)]
  const behavior = { behavior: 'allow', downloadPath: folder, eventsEnabled: true }
  for (const each of [client, other]) await each.send('Browser.setDownloadBehavior', behavior)
  const { sessionId } = await pageOf(client, siteUrl)
  await pageOf(other, siteUrl)
  await client.ask('Page.navigate', { url: `${siteUrl}/file?secret=1` }, sessionId)
  await client.until(({ method }) => method === 'Browser.downloadProgress')
  await other.send('Browser.getVersion')
  expect(client.events('Browser.downloadWillBegin')).toHaveLength(1)
  expect(other.messages.filter(({ method }) => method?.startsWith('Browser.download'))).toEqual([])
  client.close()
  other.close()
})

/** A page with a frame of its own site, and one of another that has a frame of its own again. */
async function framedPage(): Promise<string> {
  const elsewhere = siteUrl.replace('127.0.0.1', 'localhost')
  pages['/inner'] = '<p>inner</p>'
  pages['/outer'] = '<iframe src="/inner"></iframe>'
  pages['/framed'] = `<iframe src="/inner"></iframe><iframe src="${elsewhere}/outer"></iframe>`
  return `${siteUrl}/framed`
}

it('downloads that frames begin are told to those whose frames they are', async () => {
  const [client, other] = [await RawCdp.open(server.socketUrl), await RawCdp.open(server.socketUrl)]
  const behavior = { behavior: 'allow', downloadPath: folder, eventsEnabled: true }
  for (const each of [client, other]) await each.send('Browser.setDownloadBehavior', behavior)
  await pageOf(other, siteUrl)
  const browser = await chromium.connectOverCDP(server.url)
  const page = await browser.contexts()[0]!.newPage()
  await page.goto(await framedPage())
  await expect.poll(() => page.frames().length).toBe(4)
  for (const [n, frame] of page.frames().entries()) {
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      frame.evaluate(`location.href = '/file-${n}'`),
    ])
    expect([await download.failure(), new URL(download.url()).pathname]).toEqual([
      null,
      `/file-${n}`,
    ])
  }
  const { sessionId } = await pageOf(client, 'about:blank')
  await client.send('Page.enable', {}, sessionId)
  await client.send('Page.navigate', { url: await framedPage() }, sessionId)
  await client.until(({ method }) => method === 'Page.loadEventFired')
  const expression = `frames[0].location.href = '/file-raw'`
  await client.send('Runtime.evaluate', { expression }, sessionId)
  const isDone = ({ method, params }: Message): boolean =>
    method === 'Browser.downloadProgress' && params.state === 'completed'
  await client.until(isDone)
  const told = client.messages.filter(({ method }) => method?.startsWith('Browser.download'))
  expect(told[0]).toMatchObject({
    method: 'Browser.downloadWillBegin',
    params: { url: `${siteUrl}/file-raw` },
  })
  expect(new Set(told.map(({ params }) => params.guid as unknown)).size).toBe(1)
  await other.send('Browser.getVersion')
  expect(other.messages.filter(({ method }) => method?.startsWith('Browser.download'))).toEqual([])
  await browser.close()
  client.close()
  other.close()
})

it('a page that hangs keeps nothing of the search for the frame of a download', async () => {
  const [client, hung] = [await RawCdp.open(server.socketUrl), await RawCdp.open(server.socketUrl)]
  const stuck = await pageOf(hung, siteUrl)
  hung.say(
    JSON.stringify({
      id: 1_000,
      method: 'Runtime.evaluate',
      params: { expression: 'for (;;);' },
      sessionId: stuck.sessionId,
    }),
  )
  const { sessionId } = await pageOf(client)
  await client.send('Page.enable', {}, sessionId)
  await client.send('Page.navigate', { url: await framedPage() }, sessionId)
  await client.until(({ method }) => method === 'Page.loadEventFired')
  const behavior = { behavior: 'allow', downloadPath: folder, eventsEnabled: true }
  await client.send('Browser.setDownloadBehavior', behavior)
  const expression = `frames[0].location.href = '/file-hung'`
  await client.send('Runtime.evaluate', { expression }, sessionId)
  await client.until(({ method }) => method === 'Browser.downloadWillBegin')
  client.close()
  hung.close()
  await expect.poll(() => server.server.browserCounts()).toMatchObject({ sessions: 0, waiting: 0 })
})

it('Puppeteer has its downloads, while others have theirs', async () => {
  const other = await RawCdp.open(server.socketUrl)
  const behavior = { behavior: 'allow', downloadPath: folder, eventsEnabled: true }
  await other.send('Browser.setDownloadBehavior', behavior)
  const browser = await puppeteer.connect({
    browserWSEndpoint: server.socketUrl,
    downloadBehavior: { policy: 'allow', downloadPath: folder },
  })
  const page = await browser.newPage()
  await page.goto(await framedPage())
  const session = await browser.target().createCDPSession()
  await session.send('Browser.setDownloadBehavior', behavior as any)
  const done = new Promise<string>((resolve) => {
    session.on('Browser.downloadProgress', ({ state }) => {
      if (state === 'completed') resolve(state)
    })
  })
  await page.frames()[1]!.evaluate(`location.href = '/file-puppeteer'`)
  expect(await done).toBe('completed')
  await expect.poll(() => readdir(folder)).toContain('file-puppeteer')
  expect(other.messages.filter(({ method }) => method?.startsWith('Browser.download'))).toEqual([])
  await browser.close()
  other.close()
})

it('Puppeteer comes back by its key to a session that has pages', async () => {
  const browserWSEndpoint = `${server.socketUrl}?key=walls`
  const first = await puppeteer.connect({ browserWSEndpoint })
  const page = await first.newPage()
  await page.goto(siteUrl)
  await first.disconnect()
  const again = await puppeteer.connect({ browserWSEndpoint })
  expect((await again.pages()).map((each) => each.url())).toContain(`${siteUrl}/`)
  await again.close()
})
