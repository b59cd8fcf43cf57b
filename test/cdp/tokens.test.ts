/** How each of the stock clients shows a token, where one is needed. */
import { createHash } from 'node:crypto'
import CDP from 'chrome-remote-interface'
import { chromium } from 'playwright-core'
import puppeteer, { type Browser } from 'puppeteer-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startRelay } from '../../src/cdp/index.ts'
import { TokenList } from '../../src/server/tokens.ts'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp } from '../support/raw-cdp.ts'

const TOKEN = 'hf_the-token-of-this-test'

let server: CdpServer
let ownPort: number
let isRevoked = false

beforeAll(async () => {
  const sha256 = createHash('sha256').update(TOKEN).digest('hex')
  const list = new TokenList([{ name: 'a', id: 'id-a', sha256, scopes: ['talk'] }])
  const tokens = {
    scopesOf: (token: string, now: number) => (isRevoked ? null : list.scopesOf(token, now)),
    principalOf: (token: string) => list.principalOf(token),
    revision: () => Number(isRevoked),
    close: () => undefined,
  }
  server = await serveCdp({ tokens, cdpLimits: { pingMs: 300 } })
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

type Ticket = Record<'ticket' | 'key' | 'url' | 'webSocketUrl', string> & { expiresAt: number }

async function ticket(base = server.url, query = ''): Promise<Ticket> {
  const response = await fetch(`${base}/ticket${query}`, { method: 'POST', headers })
  expect(response.status).toBe(201)
  return (await response.json()) as Ticket
}

/** Only what is asked over HTTP: the addresses of sockets that are handed out have the ticket. */
function withTicket(base: string, { ticket: text }: Ticket): (path: string) => string {
  return (path) =>
    path.startsWith('/json') ? `${base}${path.replace(/\?|$/, `?ticket=${text}&`)}` : path
}

async function problem(url: string, options: RequestInit = {}): Promise<[number, string]> {
  const response = await fetch(url, options)
  const { detail = '' } = (await response.json()) as { detail?: string }
  return [response.status, detail]
}

const root = (): string => `http://127.0.0.1:${ownPort}`
const port = (): number => server.server.port

it.each<[string, (key: string) => Promise<string>]>([
  ['by a header', async (key) => `${server.socketUrl}?key=${key}`],
  ['by a ticket', async (key) => (await ticket(server.url, `?key=${key}`)).webSocketUrl],
])('is named in the log as whose session and client it is, %s', async (how, address) => {
  const key = how.replaceAll(' ', '-')
  const shown = how === 'by a header' ? { headers } : {}
  await playwright(await address(key), shown)
  const { sessions } = await server.holdfast.list({ key: `cdp:chromium:${key}`, limit: 1 })
  const { events } = await server.holdfast.session(sessions[0]?.id ?? '').read(0, 10)
  const log = events.map(({ body }) => JSON.parse(body) as Record<string, unknown>)
  const by = { kind: 'token', issuer: 'holdfast', id: 'id-a' }
  expect(log.filter(({ type }) => /created|opened/.test(String(type)))).toMatchObject([
    { type: 'session.created', by },
    { type: 'attachment.opened', by },
  ])
})

it.each<[string, () => Promise<unknown>]>([
  ['Playwright, in a header', () => playwright(server.url, { headers })],
  ['Playwright, in a header, on a port of its own', () => playwright(root(), { headers })],
  ['Playwright, by a ticket', async () => playwright((await ticket()).url)],
  ['Playwright, by a ticket for a socket', async () => playwright((await ticket()).webSocketUrl)],
  [
    'Playwright, by a ticket, on a port of its own',
    async () => playwright((await ticket(root())).url),
  ],
  [
    'Puppeteer, in a header',
    () => puppeteers(puppeteer.connect({ browserWSEndpoint: server.socketUrl, headers })),
  ],
  [
    'Puppeteer, by a ticket',
    async () => puppeteers(puppeteer.connect({ browserWSEndpoint: (await ticket()).webSocketUrl })),
  ],
  [
    'chrome-remote-interface, by a ticket',
    async () => {
      const alterPath = withTicket('/cdp/chromium', await ticket())
      return remoteInterface({ port: port(), alterPath })
    },
  ],
  [
    'chrome-remote-interface, by a ticket, on a port of its own',
    async () => {
      const alterPath = withTicket('', await ticket(root()))
      return remoteInterface({ port: ownPort, alterPath })
    },
  ],
])('%s', async (_, evaluate) => {
  expect(await evaluate()).toBe(42)
})

it('chrome-remote-interface opens, lists and closes pages with a ticket', async () => {
  const options = { port: port(), alterPath: withTicket('/cdp/chromium', await ticket()) }
  const page = await CDP.New({ ...options, url: 'about:blank#new' })
  const found = (await CDP.List(options)).find(({ id }) => id === page.id)
  expect(found?.url).toBe('about:blank#new')
  expect(await remoteInterface({ ...options, target: page.id })).toBe(42)
  await CDP.Close({ ...options, id: page.id })
})

it('Puppeteer’s browserURL can carry none, and has the relay for that', async () => {
  const refused = puppeteer.connect({ browserURL: (await ticket(root())).url, headers })
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

describe('a ticket', () => {
  it('is for one browser session, which all who show it share', async () => {
    const given = await ticket(server.url, '?key=alice')
    expect(given).toMatchObject({ key: 'alice', url: `${server.url}?ticket=${given.ticket}` })
    const [one, other] = [
      await RawCdp.open(given.webSocketUrl),
      await RawCdp.open(`${given.webSocketUrl}&key=alice`),
    ]
    const { targetId } = await one.send('Target.createTarget', { url: 'about:blank#shared' })
    const { targetInfos } = await other.send('Target.getTargets')
    expect(targetInfos.map((info: any) => info.targetId as unknown)).toContain(targetId)
    await one.send('Browser.close')
    const strange = await problem(`${server.url}/json/list?key=bob&ticket=${given.ticket}`)
    expect(strange).toEqual([403, 'the ticket is for another browser session'])
    expect((await ticket()).key).not.toBe((await ticket()).key)
  })

  it('is worth nothing after its time, when it was changed, and for another ticket', async () => {
    const { ticket: text } = await ticket(server.url, '?expiresInMs=1')
    const good = await ticket()
    const last = good.ticket.at(-2)
    const changed = `${good.ticket.slice(0, -2)}${last === 'A' ? 'B' : 'A'}${good.ticket.at(-1)}`
    for (const bad of [text, changed, 'hft_', TOKEN]) {
      const [status, detail] = await problem(`${server.url}/json/version?ticket=${bad}`)
      expect([status, detail]).toEqual([401, expect.stringContaining('ask for another')])
    }
    const again = `${server.url}/ticket?ticket=${good.ticket}`
    expect((await problem(again, { method: 'POST' }))[0]).toBe(403)
    for (const query of ['?expiresInMs=0', '?expiresInMs=3600001']) {
      const asked = await problem(`${server.url}/ticket${query}`, { method: 'POST', headers })
      expect(asked[0]).toBe(422)
    }
    expect((await problem(`${server.url}/ticket`, { method: 'POST' }))[0]).toBe(401)
  })

  it('is what stands in an address: a token there is refused, and the error says so', async () => {
    const [status, detail] = await problem(`${server.url}/json/version?token=${TOKEN}`)
    expect(status).toBe(400)
    expect(detail).toContain('POST /cdp/chromium/ticket')
    await expect(RawCdp.open(`${server.socketUrl}?token=${TOKEN}`)).rejects.toThrow('400')
  })

  it('ends with its token, and so do the sockets that it opened', async () => {
    const { webSocketUrl } = await ticket()
    const client = await RawCdp.open(webSocketUrl)
    isRevoked = true
    expect(await client.closed).toBe(4401)
    await expect(RawCdp.open(webSocketUrl)).rejects.toThrow('401')
    isRevoked = false
  })
})
