/** Ways around the rules, and messages that would be the end of a server: each was possible once. */
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import puppeteer from 'puppeteer-core'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp } from '../support/raw-cdp.ts'

let server: CdpServer
let site: Server
let siteUrl: string
let folder: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-walls-'))
  site = createServer((request, response) => {
    const isFile = request.url?.startsWith('/file') === true
    response.writeHead(200, {
      'content-type': isFile ? 'application/octet-stream' : 'text/html',
      ...(isFile ? { 'content-disposition': 'attachment' } : {}),
    })
    response.end('a site')
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
  expect((await client.until(({ id }) => id === 5))['error'].code).toBe(-32600)
  expect((await other.send('Browser.getVersion')).product).toMatch(/Chrome/)
  client.close()
  other.close()
})

it('a reply too large to travel inside another message ends its session alone', async () => {
  const [client, other] = [await RawCdp.open(server.socketUrl), await RawCdp.open(server.socketUrl)]
  const { targetId } = await pageOf(client)
  const { sessionId } = await client.send('Target.attachToTarget', { targetId })
  const expression = `'\\\\'.repeat(140e6)`
  const command = { id: 1, method: 'Runtime.evaluate', params: { expression, returnByValue: true } }
  await client.send('Target.sendMessageToTarget', { sessionId, message: JSON.stringify(command) })
  await client.until(
    ({ method, params }) =>
      method === 'Target.detachedFromTarget' && params.sessionId === sessionId,
  )
  expect((await other.send('Browser.getVersion')).product).toMatch(/Chrome/)
  client.close()
  other.close()
}, 60_000)

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
