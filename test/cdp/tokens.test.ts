/** How each of the stock clients shows a token, where one is needed. */
import { createHash } from 'node:crypto'
import CDP from 'chrome-remote-interface'
import { chromium } from 'playwright-core'
import puppeteer, { type Browser } from 'puppeteer-core'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { startRelay } from '../../src/cdp/index.ts'
import { TokenList } from '../../src/server/tokens.ts'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'

const TOKEN = 'hf_the-token-of-this-test'

let server: CdpServer
let ownPort: number

beforeAll(async () => {
  const sha256 = createHash('sha256').update(TOKEN).digest('hex')
  const list = new TokenList([{ name: 'a', id: 'id-a', sha256, scopes: ['talk'] }])
  const tokens = {
    scopesOf: (token: string, now: number) => list.scopesOf(token, now),
    close: () => undefined,
  }
  server = await serveCdp({ tokens })
  ownPort = await server.server.listenCdp('chromium', 0)
})
afterAll(() => server.close())

const headers = { Authorization: `Bearer ${TOKEN}` }

async function playwright(address: string, options: object = {}): Promise<unknown> {
  const browser = await chromium.connectOverCDP(address, options)
  const page = await browser.contexts()[0]!.newPage()
  const value = await page.evaluate('6 * 7')
  await browser.close()
  return value
}

async function puppeteers(connected: Promise<Browser>): Promise<unknown> {
  const browser = await connected
  const value = await (await browser.newPage()).evaluate('6 * 7')
  await browser.disconnect()
  return value
}

async function remoteInterface(options: object): Promise<unknown> {
  const client = await CDP(options)
  const { result } = await client.send('Runtime.evaluate', { expression: '6 * 7' })
  await client.close()
  return result.value
}

/** Only what is asked over HTTP: the addresses of sockets that are handed out have the token. */
function withToken(base: string): (path: string) => string {
  return (path) =>
    path.startsWith('/json') ? `${base}${path.replace(/\?|$/, `?token=${TOKEN}&`)}` : path
}

const root = (): string => `http://127.0.0.1:${ownPort}`
const port = (): number => server.server.port

it.each<[string, () => Promise<unknown>]>([
  ['Playwright, in a header', () => playwright(server.url, { headers })],
  ['Playwright, in a header, on a port of its own', () => playwright(root(), { headers })],
  ['Playwright, in the query', () => playwright(`${server.url}?token=${TOKEN}`)],
  ['Playwright, in the query of a socket', () => playwright(`${server.socketUrl}?token=${TOKEN}`)],
  ['Playwright, in the query, on a port of its own', () => playwright(`${root()}?token=${TOKEN}`)],
  [
    'Puppeteer, in a header',
    () => puppeteers(puppeteer.connect({ browserWSEndpoint: server.socketUrl, headers })),
  ],
  [
    'Puppeteer, in the query',
    () =>
      puppeteers(puppeteer.connect({ browserWSEndpoint: `${server.socketUrl}?token=${TOKEN}` })),
  ],
  [
    'chrome-remote-interface, in the query',
    () => remoteInterface({ port: port(), alterPath: withToken('/cdp/chromium') }),
  ],
  [
    'chrome-remote-interface, in the query, on a port of its own',
    () => remoteInterface({ port: ownPort, alterPath: withToken('') }),
  ],
])('%s', async (_, evaluate) => {
  expect(await evaluate()).toBe(42)
})

it('chrome-remote-interface opens, lists and closes pages with a token', async () => {
  const options = { port: port(), alterPath: withToken('/cdp/chromium') }
  const page = await CDP.New({ ...options, url: 'about:blank#new' })
  const found = (await CDP.List(options)).find(({ id }) => id === page.id)
  expect(found?.url).toBe('about:blank#new')
  expect(await remoteInterface({ ...options, target: page.id })).toBe(42)
  await CDP.Close({ ...options, id: page.id })
})

it('Puppeteer’s browserURL can carry none, and has the relay for that', async () => {
  const refused = puppeteer.connect({ browserURL: `${root()}?token=${TOKEN}`, headers })
  await expect(refused).rejects.toThrow(/Unauthorized/)
  const relay = await startRelay({ remote: server.url, port: 0, token: TOKEN })
  const browserURL = `http://127.0.0.1:${relay.port}`
  expect(await puppeteers(puppeteer.connect({ browserURL }))).toBe(42)
  await relay.close()
})

it('none of them gets in without', async () => {
  await expect(playwright(server.url)).rejects.toThrow(/401/)
  const connected = puppeteer.connect({ browserWSEndpoint: server.socketUrl })
  await expect(connected).rejects.toThrow(/401/)
  const bare = (path: string): string => (path.startsWith('/cdp/') ? path : `/cdp/chromium${path}`)
  await expect(CDP({ port: port(), alterPath: bare })).rejects.toThrow(/unauthorized/)
})
