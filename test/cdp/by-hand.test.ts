/** What people need to look at a browser session, and to take it over by hand. */
import { createHash } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openTokenFile } from 'holdfast/server'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { CHROMIUM, serveCdp, Site, type CdpServer } from '../support/cdp-server.ts'
import { until } from '../support/gate.ts'
import { openTestDatabase } from '../support/postgres.ts'
import { RawCdp } from '../support/raw-cdp.ts'
import { serve, type TestServer } from '../support/server.ts'

const FORM = `<title>a form</title><body style="margin:0"><input autofocus
  style="position:absolute;left:0;top:0;width:200px;height:50px">`
const CALLERS = {
  alice: { principal: 'alice', scopes: ['talk'] },
  watcher: { principal: 'alice', scopes: ['watch'] },
  other: { principal: 'alice', scopes: ['talk'], browsers: ['another'] },
  agentless: { principal: 'alice', scopes: ['talk'], agents: [] },
  bob: { principal: 'bob', scopes: ['talk'] },
  root: { principal: 'root', scopes: ['admin'] },
}
type Who = keyof typeof CALLERS

let folder: string
let site: Site
let server: CdpServer
const clients: RawCdp[] = []

const bearer = (who: Who) => ({ authorization: `Bearer hf_secret-of-${who}` })

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-by-hand-'))
  const file = join(folder, 'tokens.json')
  const tokens = Object.entries(CALLERS).map(([name, granted]) => {
    const sha256 = createHash('sha256').update(`hf_secret-of-${name}`).digest('hex')
    return { name, sha256, ...granted }
  })
  await writeFile(file, JSON.stringify({ tokens }), { mode: 0o600 })
  site = await new Site().start()
  site.pages['/form'] = FORM
  const browsers = { chromium: { ...CHROMIUM, egress: 'any' as const } }
  server = await serveCdp({ browsers, tokens: await openTokenFile(file) })
})
afterAll(async () => {
  for (const client of clients) client.close()
  await server.close()
  await site.close()
  await rm(folder, { recursive: true })
})

async function call(who: Who, method: string, path: string) {
  const answer = await fetch(`${server.server.url}${path}`, { method, headers: bearer(who) })
  const bytes = Buffer.from(await answer.arrayBuffer())
  const type = answer.headers.get('content-type') ?? ''
  const body = type.includes('json') ? JSON.parse(bytes.toString()) : null
  return { status: answer.status, type, bytes, body }
}

/** A client of Alice's with a page open, and its browser session. */
async function browsing(path = '/form', query = '') {
  const client = await RawCdp.open(`${server.socketUrl}${query}`, { headers: bearer('alice') })
  clients.push(client)
  const { targetInfos } = await client.send('Target.getTargets')
  const [{ targetId }] = targetInfos.filter(({ type }: any) => type === 'page')
  const params = { targetId, flatten: true }
  const { sessionId } = await client.send('Target.attachToTarget', params)
  await client.send('Page.navigate', { url: `${site.url}${path}` }, sessionId)
  const evaluate = async (expression: string): Promise<unknown> => {
    const { result } = await client.send('Runtime.evaluate', { expression }, sessionId)
    return result.value
  }
  await until(async () => (await evaluate('document.readyState')) === 'complete')
  const { body } = await call('root', 'GET', '/v1/browsers')
  const open: any[] = body.browsers.flatMap((browser: any) => browser.open)
  const found = open.find(({ pages }) => pages.some(({ id }: any) => id === targetId))
  return { client, sessionId, targetId, evaluate, session: found.session as string }
}

describe('the list of browsers', () => {
  it('has the pages of each session, for those who may see it', async () => {
    const { session, targetId } = await browsing('/form', '?key=listed')
    const pagesFor = async (who: Who): Promise<any> => {
      const { body } = await call(who, 'GET', '/v1/browsers')
      return body.browsers
        .flatMap((browser: any) => browser.open)
        .find((open: any) => open.session === session)
    }
    const expected = {
      key: 'cdp:chromium:listed',
      clients: 1,
      pages: [{ id: targetId, type: 'page', title: 'a form', url: `${site.url}/form` }],
    }
    await until(async () => (await pagesFor('alice')).pages[0].title === 'a form')
    for (const who of ['alice', 'watcher', 'root'] as const) {
      expect(await pagesFor(who)).toMatchObject(expected)
    }
    for (const who of ['bob', 'other'] as const) expect(await pagesFor(who)).toBeUndefined()
  })
})

/** Width and height of a JPEG, as its frame header has them. */
function sizeOf(jpeg: Buffer): readonly [number, number] {
  for (let at = 2; at < jpeg.length;) {
    const [marker = 0, length] = [jpeg[at + 1], jpeg.readUInt16BE(at + 2)]
    if (marker >= 0xc0 && marker <= 0xc2) {
      return [jpeg.readUInt16BE(at + 7), jpeg.readUInt16BE(at + 5)]
    }
    at += 2 + length
  }
  throw new Error('no JPEG')
}

describe('a picture of a page', () => {
  it('is a JPEG of bounded size, which the page and its clients do not notice', async () => {
    const { client, sessionId, evaluate, session } = await browsing()
    const size = { width: 2_560, height: 1_600, deviceScaleFactor: 1, mobile: false }
    await client.send('Emulation.setDeviceMetricsOverride', size, sessionId)
    // The page has the new size once it has been drawn twice.
    const drawn = 'requestAnimationFrame(() => requestAnimationFrame(() => { drawn = innerWidth }))'
    await evaluate(`window.drawn = 0; ${drawn}`)
    await until(async () => (await evaluate('drawn')) === 2_560)
    await evaluate('window.resized = 0; onresize = () => { resized += 1 }')
    const told = client.messages.length
    const { status, type, bytes } = await call(
      'watcher',
      'GET',
      `/v1/browsers/${session}/screenshot`,
    )
    expect([status, type]).toEqual([200, 'image/jpeg'])
    expect(sizeOf(bytes)).toEqual([1_280, 800])
    expect(await evaluate('[resized, innerWidth].join()')).toBe('0,2560')
    expect(client.messages.slice(told).filter(({ method }) => method !== undefined)).toEqual([])
  })

  it('is one picture for all who ask at once, however many', async () => {
    const { session } = await browsing()
    const path = `/v1/browsers/${session}/screenshot`
    const all = await Promise.all(Array.from({ length: 20 }, () => call('alice', 'GET', path)))
    expect(new Set(all.map(({ status }) => status))).toEqual(new Set([200]))
    expect(new Set(all.map(({ bytes }) => bytes.toString('base64'))).size).toBe(1)
  })

  it('is of the page that is named, and of no page of another session', async () => {
    const { session, targetId } = await browsing()
    const far = await browsing('/far')
    const path = `/v1/browsers/${session}/screenshot`
    expect((await call('alice', 'GET', `${path}?page=${targetId}`)).status).toBe(200)
    const { status, body } = await call('alice', 'GET', `${path}?page=${far.targetId}`)
    expect([status, body.code]).toEqual([404, 'target_unknown'])
  })

  it('is for those only who may see the session and its browser', async () => {
    const { session } = await browsing()
    const path = `/v1/browsers/${session}/screenshot`
    const codeFor = async (who: Who, of = path) => (await call(who, 'GET', of)).body?.code
    expect(await codeFor('bob')).toBe('session_unknown')
    expect(await codeFor('bob', '/v1/browsers/none/screenshot')).toBe('session_unknown')
    expect(await codeFor('other')).toBe('browser_unknown')
    expect(await codeFor('root')).toBeUndefined()
  })

  it('does not wait for a page that does not answer', async () => {
    const { client, sessionId, session, evaluate } = await browsing()
    await client.send('Runtime.enable', {}, sessionId)
    void evaluate('console.log(1); for (;;);').catch(() => undefined)
    await client.until(({ method }) => method === 'Runtime.consoleAPICalled')
    const { status, body } = await call('alice', 'GET', `/v1/browsers/${session}/screenshot`)
    expect([status, body.code]).toEqual([503, 'browser_gone'])
    await client.send('Runtime.terminateExecution', {}, sessionId)
    expect((await call('alice', 'GET', `/v1/browsers/${session}/screenshot`)).status).toBe(200)
  })
})

describe('taking over by hand', () => {
  const ticketFor = (who: Who, session: string) =>
    call(who, 'POST', `/v1/browsers/${session}/ticket`)

  it('is possible with a ticket for a session without a key, beside its client', async () => {
    const { client, session, targetId, evaluate } = await browsing()
    const { status, body } = await ticketFor('alice', session)
    expect([status, body.session, body.key]).toEqual([201, session, undefined])
    const person = await RawCdp.open(body.webSocketUrl)
    clients.push(person)
    const { targetInfos } = await person.send('Target.getTargets')
    expect(targetInfos.map((info: any) => info.targetId)).toContain(targetId)
    const { sessionId } = await person.send('Target.attachToTarget', { targetId, flatten: true })
    await person.send('Page.enable', {}, sessionId)
    await person.send('Page.startScreencast', { format: 'jpeg' }, sessionId)
    await person.until(({ method }) => method === 'Page.screencastFrame')
    const mouse = { x: 20, y: 20, button: 'left', clickCount: 1 }
    for (const type of ['mousePressed', 'mouseReleased']) {
      await person.send('Input.dispatchMouseEvent', { type, ...mouse }, sessionId)
    }
    await person.send('Input.insertText', { text: 'by hand' }, sessionId)
    expect(await evaluate('document.querySelector("input").value')).toBe('by hand')
    person.close()
    await person.closed
    expect(await evaluate('1 + 1')).toBe(2)
    expect(client.messages.some(({ method }) => method === 'Inspector.detached')).toBe(false)
  })

  it('is possible at a page alone, as its address says', async () => {
    const { session, targetId } = await browsing()
    const { body } = await ticketFor('agentless', session)
    const [base, query] = body.webSocketUrl.split('?')
    const page = await RawCdp.open(`${base}/devtools/page/${targetId}?${query}`)
    clients.push(page)
    const { result } = await page.send('Runtime.evaluate', { expression: 'document.title' })
    expect(result.value).toBe('a form')
  })

  it('needs the right to use the session', async () => {
    const { session } = await browsing()
    const codeFor = async (who: Who) => (await ticketFor(who, session)).body.code
    expect(await codeFor('watcher')).toBe('forbidden')
    expect(await codeFor('bob')).toBe('session_unknown')
    expect(await codeFor('other')).toBe('browser_unknown')
    expect(await codeFor('root')).toBeUndefined()
    await fetch(`${server.server.url}/v1/sessions/${session}/shares`, {
      method: 'POST',
      headers: { ...bearer('root'), 'content-type': 'application/json' },
      body: JSON.stringify({ with: 'bob', scopes: ['watch'] }),
    })
    expect((await call('bob', 'GET', `/v1/browsers/${session}/screenshot`)).status).toBe(200)
    expect(await codeFor('bob')).toBe('forbidden')
  })

  it('is over with the session: no other one takes its place', async () => {
    const { client, session } = await browsing()
    const { body } = await ticketFor('alice', session)
    client.close()
    const isOpen = async () => {
      const { body: state } = await call('alice', 'GET', `/v1/sessions/${session}`)
      return state.closed === null
    }
    await until(async () => !(await isOpen()))
    await expect(RawCdp.open(body.webSocketUrl)).rejects.toThrow(/409|410|404/)
    const { body: list } = await call('root', 'GET', '/v1/browsers')
    const open = list.browsers.flatMap((browser: any) => browser.open)
    expect(open.map((one: any) => one.session)).not.toContain(session)
  })
})

it('works through a node that does not have the browser', async () => {
  const database = await openTestDatabase()
  const store = database.freshUrl()
  const start = (): Promise<TestServer> =>
    serve({ store, isNode: true, browsers: { chromium: CHROMIUM } })
  const [owner, other] = [await start(), await start()]
  const url = `${owner.url.replace('http', 'ws')}/cdp/chromium`
  const client = await RawCdp.open(url)
  const { browsers } = (await owner.call('GET', '/v1/browsers')).body
  const [{ session, pages }] = browsers[0].open
  const picture = await fetch(`${other.url}/v1/browsers/${session}/screenshot`)
  expect(picture.status).toBe(200)
  expect(sizeOf(Buffer.from(await picture.arrayBuffer()))[0]).toBeGreaterThan(100)
  const { body } = await other.call('POST', `/v1/browsers/${session}/ticket`, { body: {} })
  const far = body.webSocketUrl.replace(/^ws:\/\/[^/]+/, other.url.replace('http', 'ws'))
  const person = await RawCdp.open(far)
  const { targetInfos } = await person.send('Target.getTargets')
  expect(targetInfos.map((info: any) => info.targetId)).toContain(pages[0].id)
  person.close()
  client.close()
  await Promise.all([owner.close(), other.close()])
  await database.close()
})
