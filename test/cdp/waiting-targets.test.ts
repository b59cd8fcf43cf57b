/**
 * New windows and workers of one client while others attach to everything by themselves: those of
 * a client that does not wait load, and those of a client that waits run no sooner than it says.
 */
import { chromium, type Page } from 'playwright-core'
import puppeteer from 'puppeteer-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { serveCdp, Site, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp } from '../support/raw-cdp.ts'
import { isWhole } from '../support/whole.ts'

/** Every kind of crowd, and thirty windows: `npm run e2e:browsers`. Else the ones that differ most. */
const ROUNDS = isWhole ? 10 : 1

let server: CdpServer
let site: Site
let leave: (() => unknown)[] = []

async function leaveAll(): Promise<void> {
  for (const each of leave.splice(0)) await each()
}

beforeAll(async () => {
  site = await new Site().start()
  site.pages['/page'] = '<title>/page</title><body><script>early = window.mark</script>'
  site.pages['/shared.js'] = 'onconnect = ({ ports: [port] }) => port.postMessage("shared")'
  site.pages['/service.js'] = 'onfetch = () => undefined'
  server = await serveCdp()
})
afterEach(leaveAll)
afterAll(async () => {
  await server.close()
  await site.close()
})

const AUTO_ATTACH = { autoAttach: true, flatten: true }

async function raw(): Promise<RawCdp> {
  const client = await RawCdp.open(server.socketUrl)
  leave.push(() => client.close())
  return client
}

async function attachingRaw(waitForDebuggerOnStart: boolean): Promise<RawCdp> {
  const client = await raw()
  await client.send('Target.setAutoAttach', { ...AUTO_ATTACH, waitForDebuggerOnStart })
  return client
}

/** Clients that are connected, do nothing, and are attached to every new target by Chromium. */
const BYSTANDERS: Readonly<Record<string, () => Promise<unknown>>> = {
  'idle Playwright': async () => {
    const browser = await chromium.connectOverCDP(server.url)
    leave.push(() => browser.close())
  },
  'idle Puppeteer': async () => {
    const browser = await puppeteer.connect({ browserWSEndpoint: server.socketUrl })
    leave.push(() => browser.disconnect())
  },
  'raw that waits and never runs': () => attachingRaw(true),
  'raw that does not wait': () => attachingRaw(false),
}
const KINDS = Object.keys(BYSTANDERS)

const CROWDS: [number, string][] = isWhole
  ? [[0, ''], ...KINDS.flatMap((kind): [number, string][] => [1, 3].map((n) => [n, kind]))]
  : [
      [1, 'idle Playwright'],
      [1, 'idle Puppeteer'],
      [3, 'raw that waits and never runs'],
    ]

/** Ways in which a page opens another: with access to it, without, and by a link. */
const WAYS = [
  (url: string) => `void open('${url}')`,
  (url: string) => `void open('${url}', '', 'noopener')`,
  (url: string) => `{
    const link = document.createElement('a')
    Object.assign(link, { href: '${url}', target: '_blank' })
    document.body.append(link)
    link.click()
  }`,
] as const

async function openPage(client: RawCdp): Promise<(expression: string) => Promise<any>> {
  const { targetId } = await client.send('Target.createTarget', { url: `${site.url}/page` })
  const { sessionId } = await client.send('Target.attachToTarget', { targetId, flatten: true })
  const evaluate = async (expression: string): Promise<any> => {
    const params = { expression, userGesture: true, awaitPromise: true }
    const { result } = await client.send('Runtime.evaluate', params, sessionId as string)
    return result.value
  }
  // The empty document before it is complete too.
  await expect
    .poll(() => evaluate('`${document.title} ${document.readyState}`'))
    .toBe('/page complete')
  return evaluate
}

/** Titles that are there only when a page has loaded. */
async function titles(client: RawCdp): Promise<string[]> {
  const { targetInfos } = await client.send('Target.getTargets', { filter: [{ type: 'page' }] })
  const found = targetInfos.map(({ title }: { title: string }) => title)
  return found.filter((title: string) => title === '/page')
}

describe.each(CROWDS)('beside %i %s', (count, kind) => {
  let bystanders: typeof leave = []

  beforeAll(async () => {
    for (let n = 0; n < count; n += 1) await BYSTANDERS[kind]?.()
    bystanders = leave.splice(0)
  })
  afterAll(async () => {
    leave = bystanders
    await leaveAll()
  })

  const owners: [string, () => Promise<RawCdp>][] = [
    ['does not attach by itself', raw],
    ['attaches and does not wait', () => attachingRaw(false)],
  ]
  it.each(isWhole || count > 1 ? owners : owners.slice(0, 1))(
    'windows and workers of a client that %s load',
    async (__, connect) => {
      const client = await connect()
      const evaluate = await openPage(client)
      for (const way of WAYS) await evaluate(way(`${site.url}/page`))
      await expect.poll(() => titles(client)).toEqual(['/page', '/page', '/page', '/page'])
      const shared = `new Promise((resolve) => {
      new SharedWorker('/shared.js').port.onmessage = ({ data }) => resolve(data)
    })`
      expect(await evaluate(shared)).toBe('shared')
      const service = `navigator.serviceWorker.register('/service.js')
      .then(() => navigator.serviceWorker.ready).then(() => 'ready')`
      expect(await evaluate(service)).toBe('ready')
    },
  )

  it('Playwright’s init script is in every window that its page opens', async () => {
    const browser = await chromium.connectOverCDP(server.url)
    leave.push(() => browser.close())
    const context = await browser.newContext()
    await context.addInitScript('window.mark = 1')
    const page = await context.newPage()
    await page.goto(`${site.url}/page`)
    const marks: unknown[] = []
    for (let round = 0; round < ROUNDS; round += 1) marks.push(...(await marksOf(page)))
    expect(marks).toEqual(Array.from({ length: ROUNDS * WAYS.length }, () => 1))
  })

  it.runIf(isWhole)('Puppeteer’s windows load', async () => {
    const browser = await puppeteer.connect({ browserWSEndpoint: server.socketUrl })
    leave.push(() => browser.close())
    const page = await browser.newPage()
    await page.goto(`${site.url}/page`)
    for (const way of WAYS) await page.evaluate(way(`${site.url}/page`))
    const loaded = async (): Promise<string[]> => {
      const pages = await browser.pages()
      const found = await Promise.all(pages.map((each) => each.title()))
      return found.filter((title) => title === '/page')
    }
    await expect.poll(loaded).toEqual(['/page', '/page', '/page', '/page'])
  })
})

/** What the first script in each new window found. */
async function marksOf(page: Page): Promise<unknown[]> {
  const marks: unknown[] = []
  for (const way of WAYS) {
    const [popup] = await Promise.all([
      page.context().waitForEvent('page'),
      page.evaluate(way(`${site.url}/page`)),
    ])
    await popup.waitForLoadState()
    marks.push(await popup.evaluate('window.early'))
    await popup.close()
  }
  return marks
}

describe('a client that leaves while its window waits for it', () => {
  it.each([
    ['by closing its connection', (client: RawCdp) => client.socket.terminate()],
    [
      'by detaching',
      (client: RawCdp, sessionId: string) => client.ask('Target.detachFromTarget', { sessionId }),
    ],
  ])('%s: the window loads', async (_, go) => {
    const key = `?key=${Math.random()}`
    const stays = await RawCdp.open(`${server.socketUrl}${key}`)
    const client = await RawCdp.open(`${server.socketUrl}${key}`)
    leave.push(() => stays.send('Browser.close'))
    const evaluate = await openPage(stays)
    await client.send('Target.setAutoAttach', { ...AUTO_ATTACH, waitForDebuggerOnStart: true })
    const opened = evaluate(`open('${site.url}/page'); 7`)
    const { params } = await client.until(
      ({ method, params: { targetInfo } = {} }) =>
        method === 'Target.attachedToTarget' && targetInfo?.openerId !== undefined,
    )
    await go(client, params.sessionId)
    expect(await opened).toBe(7)
    await expect.poll(() => titles(stays)).toEqual(['/page', '/page'])
    client.close()
  })
})

it('nothing is left of any of them', async () => {
  await expect.poll(() => server.server.browserCounts()).toMatchObject({ clients: 0, waiting: 0 })
})
