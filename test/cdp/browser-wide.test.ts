/** What all clients of one browser would have in common, and who may use it: whoever is alone. */
import { execFileSync } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createServer as createSecureServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chromium, type Browser, type Page } from 'playwright-core'
import puppeteer from 'puppeteer-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { serveCdp, Site, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp } from '../support/raw-cdp.ts'

let shared: CdpServer
let own: CdpServer
let site: Site

beforeAll(async () => {
  site = await new Site().start()
  site.pages['/note'] = '<title>note</title><textarea autofocus></textarea>'
  ;[shared, own] = await Promise.all([
    serveCdp(),
    serveCdp({ browsers: { chromium: { program: 'chromium', own: true } } }),
  ])
})
afterAll(async () => {
  await Promise.all([shared.close(), own.close(), site.close()])
})

async function noteOf(server: CdpServer): Promise<{ browser: Browser; page: Page }> {
  const browser = await chromium.connectOverCDP(server.url)
  const page = await browser.contexts()[0]!.newPage()
  // The clipboard is there for pages that came over a safe way.
  await page.goto(`${site.url.replace('127.0.0.1', 'localhost')}/note`)
  return { browser, page }
}

/** What is refused, as whoever asked is told. */
function failure(asked: Promise<unknown>): Promise<string> {
  return asked.then(
    () => 'was not refused',
    (error: Error) => error.message,
  )
}

describe('the clipboard', () => {
  it('of a shared browser can be read by nobody: it may be somebody else’s', async () => {
    const [one, other] = await Promise.all([noteOf(shared), noteOf(shared)])
    await one.page.locator('textarea').fill('a secret')
    await one.page.keyboard.press('Control+A')
    await one.page.keyboard.press('Control+C')
    const { page } = other
    const reasons = [
      await failure(page.context().grantPermissions(['clipboard-read'])),
      await failure(page.keyboard.press('Control+V')),
      await failure(page.keyboard.press('Shift+Insert')),
    ]
    for (const reason of reasons) expect(reason).toContain('--own-browsers')
    const session = await page.context().newCDPSession(page)
    const keys: [string, object][] = [
      ['Input.dispatchKeyEvent', { type: 'keyDown', commands: ['Paste'] }],
      ['Input.dispatchKeyEvent', { type: 'keyDown', commands: ['selectAll', 'pasteAsPlainText'] }],
      ['Input.dispatchKeyEvent', { type: 'keyDown', key: 'Paste', code: 'Paste' }],
      ['Input.dispatchKeyEvent', { type: 'keyDown', key: 'Paste' }],
      ['Input.dispatchKeyEvent', { type: 'rawKeyDown', modifiers: 6, windowsVirtualKeyCode: 86 }],
      ['Browser.setPermission', granted({ name: 'clipboard-read' })],
      [
        'Browser.setPermission',
        granted({ name: 'clipboard-write', allowWithoutSanitization: true }),
      ],
      ['Browser.grantPermissions', { permissions: ['displayCapture', 'clipboardReadWrite'] }],
    ]
    for (const [method, params] of keys) {
      const reason = await failure(session.send(method as any, params as any))
      expect(reason, `${method} ${JSON.stringify(params)}`).toContain('--own-browsers')
    }
    const read = await page.evaluate(`navigator.clipboard.readText().catch(({ name }) => name)`)
    expect([read, await page.locator('textarea').inputValue()]).toEqual(['NotAllowedError', ''])
    await Promise.all([one.browser.close(), other.browser.close()])
  })

  it('of what is selected is not pasted by the middle button, which works for all else', async () => {
    const [one, other] = await Promise.all([noteOf(shared), noteOf(shared)])
    await one.page.locator('textarea').fill('secret')
    await one.page.locator('textarea').dblclick({ position: { x: 12, y: 12 } })
    const selected = await one.page.evaluate(`getSelection().toString()`)
    const { page } = other
    const clicked = page.evaluate(`new Promise((resolve) =>
      addEventListener('auxclick', ({ button }) => setTimeout(() => resolve(button), 50)))`)
    await page.locator('textarea').click({ button: 'middle' })
    expect([selected, await clicked]).toEqual(['secret', 1])
    expect(await page.locator('textarea').inputValue()).toBe('')
    await Promise.all([one.browser.close(), other.browser.close()])
  })

  it('is no reason to refuse a letter, another key, or a permission that is taken away', async () => {
    const { browser, page } = await noteOf(shared)
    await page.keyboard.type('VvV')
    await page.keyboard.press('Control+A')
    await page.keyboard.press('Delete')
    await page.keyboard.press('v')
    expect(await page.locator('textarea').inputValue()).toBe('v')
    await page.context().grantPermissions(['geolocation', 'clipboard-write'])
    const session = await page.context().newCDPSession(page)
    const permission = { name: 'clipboard-read' }
    await session.send('Browser.setPermission', { permission, setting: 'denied' })
    await browser.close()
  })

  it('belongs to whoever has the browser alone', async () => {
    const { browser, page } = await noteOf(own)
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
    await page.evaluate(`navigator.clipboard.writeText('mine')`)
    await page.locator('textarea').focus()
    await page.keyboard.press('Control+V')
    expect(await page.locator('textarea').inputValue()).toBe('mine')
    expect(await page.evaluate('navigator.clipboard.readText()')).toBe('mine')
    await browser.close()
  })
})

function granted(permission: object): object {
  return { permission, setting: 'granted' }
}

/** Commands about the whole browser, each of which somebody else would notice or be seen by. */
const BROWSER_WIDE: [string, object][] = [
  ['Emulation.addScreen', { left: 800, top: 0, width: 100, height: 100 }],
  ['Emulation.updateScreen', { screenId: '1', width: 100 }],
  ['Emulation.setPrimaryScreen', { screenId: '1' }],
  ['Emulation.removeScreen', { screenId: '1' }],
  ['Memory.simulatePressureNotification', { level: 'critical' }],
  ['Memory.setPressureNotificationsSuppressed', { suppressed: true }],
  ['Memory.getBrowserSamplingProfile', {}],
  ['Tracing.start', {}],
  ['Tracing.requestMemoryDump', {}],
  ['SystemInfo.getInfo', {}],
  ['SystemInfo.getProcessInfo', {}],
  ['BluetoothEmulation.enable', { state: 'powered-on', leSupported: true }],
  ['SmartCardEmulation.enable', {}],
  ['Browser.crash', {}],
  ['Browser.crashGpuProcess', {}],
  ['Browser.getHistograms', {}],
  ['Browser.getBrowserCommandLine', {}],
  ['Browser.addMockCamera', {}],
  ['Browser.setGlobalPrivacyControl', { enabled: true }],
  ['Browser.addPrivacySandboxEnrollmentOverride', { url: 'https://a.example' }],
  ['Target.setRemoteLocations', { locations: [] }],
  ['Target.exposeDevToolsProtocol', { targetId: '0' }],
  ['Target.openDevTools', { targetId: '0' }],
  ['Tethering.bind', { port: 9000 }],
  ['Extensions.loadUnpacked', { path: '/' }],
  ['PWA.install', { manifestId: 'https://a.example' }],
  ['Cast.enable', {}],
]

async function pageOf(server: CdpServer) {
  const client = await RawCdp.open(server.socketUrl)
  const { targetId } = await client.send('Target.createTarget', { url: 'about:blank' })
  const { sessionId } = await client.send('Target.attachToTarget', { targetId, flatten: true })
  return { client, sessionId: sessionId as string }
}

describe('a command about the whole browser', () => {
  it('is refused where others are, in the browser’s session and in a page’s', async () => {
    const [one, other] = await Promise.all([pageOf(shared), pageOf(shared)])
    const before = await other.client.send('Emulation.getScreenInfos', {}, other.sessionId)
    for (const [method, params] of BROWSER_WIDE) {
      for (const session of [undefined, one.sessionId]) {
        const { error } = await one.client.ask(method, params, session)
        // Refused here, with the way out: Chrome has its own words.
        expect(error, method).toMatchObject({ code: -32_000 })
        expect(error.message, method).toMatch(/is not allowed here: .*--own-browsers$/)
      }
    }
    const after = await other.client.send('Emulation.getScreenInfos', {}, other.sessionId)
    expect(after).toEqual(before)
    one.client.close()
    other.client.close()
  })

  it('is for a client that has the browser alone: Chrome itself answers', async () => {
    const { client, sessionId } = await pageOf(own)
    const screen = { left: 800, top: 0, width: 100, height: 100 }
    const { screenInfo } = await client.send('Emulation.addScreen', screen, sessionId)
    expect(screenInfo.width).toBe(100)
    expect((await client.send('SystemInfo.getProcessInfo')).processInfo.length).toBeGreaterThan(0)
    expect((await client.send('Browser.getHistograms')).histograms).toBeInstanceOf(Array)
    expect((await client.send('Emulation.getScreenInfos')).screenInfos).toHaveLength(2)
    await client.send('Fetch.enable', { patterns: [] })
    await client.send('Security.setIgnoreCertificateErrors', { ignore: true })
    await client.send('Memory.simulatePressureNotification', { level: 'moderate' }, sessionId)
    const deadly = ['Browser.crash', 'Browser.crashGpuProcess']
    for (const [method, params] of BROWSER_WIDE.filter(([name]) => !deadly.includes(name))) {
      const { error } = await client.ask(method, params)
      expect(error?.message ?? '', method).not.toMatch(/not allowed here|--own-browsers/)
    }
    await client.send('Tracing.end')
    await client.until(({ method }) => method === 'Tracing.tracingComplete')
    client.close()
  })

  it('opens pages of the browser itself there, and nowhere else', async () => {
    const [alone, other] = await Promise.all([pageOf(own), pageOf(shared)])
    const url = 'chrome://version/'
    const { targetId } = await alone.client.send('Target.createTarget', { url })
    await alone.client.send('Page.navigate', { url }, alone.sessionId)
    const urls = async (): Promise<string[]> => {
      const { targetInfos } = await alone.client.send('Target.getTargets')
      return targetInfos.map((info: any) => info.url as string)
    }
    await expect.poll(async () => (await urls()).filter((each) => each === url)).toHaveLength(2)
    await alone.client.send('Target.attachToTarget', { targetId, flatten: true })
    const { status } = await fetch(`${own.url}/json/new?${url}`, { method: 'PUT' })
    expect(status).toBe(200)
    for (const [method, session] of [['Target.createTarget'], ['Page.navigate', other.sessionId]]) {
      const { error } = await other.client.ask(String(method), { url }, session)
      expect(error.message).toMatch(/--own-browsers$/)
    }
    alone.client.close()
    other.client.close()
  })
})

describe('of a shared browser', () => {
  it('the root is refused what is common, and says how it can be had', async () => {
    const { client } = await pageOf(shared)
    expect((await client.send('Emulation.getScreenInfos')).screenInfos).toHaveLength(1)
    const refused: [string, object][] = [
      ['Fetch.enable', {}],
      ['Security.enable', {}],
      ['Emulation.setAutomationOverride', { enabled: true }],
      ['Storage.clearDataForOrigin', { origin: 'http://a.example', storageTypes: 'all' }],
    ]
    for (const [method, params] of refused) {
      const { error } = await client.ask(method, params)
      expect(error.message, method).toMatch(/in the session of a page, or see --own-browsers$/)
    }
    client.close()
  })

  it('a client that accepts insecure certificates does so for its own pages only', async () => {
    const insecure = createSecureServer(await selfSigned(), (_, response) =>
      response.writeHead(200, { 'content-type': 'text/html' }).end('<title>insecure</title>'),
    )
    await new Promise<void>((resolve) => insecure.listen(0, '127.0.0.1', resolve))
    const url = `https://127.0.0.1:${(insecure.address() as AddressInfo).port}/`
    const connect = (acceptInsecureCerts: boolean) =>
      puppeteer.connect({ browserWSEndpoint: shared.socketUrl, acceptInsecureCerts })
    const [careless, careful] = await Promise.all([connect(true), connect(false)])
    const [one, other] = await Promise.all([careless.newPage(), careful.newPage()])
    await one.goto(url)
    expect(await one.title()).toBe('insecure')
    expect(await failure(other.goto(url))).toContain('ERR_CERT')
    const popup = new Promise<any>((resolve) => one.once('popup', resolve))
    await one.evaluate(`void open('${url}')`)
    await expect.poll(async () => (await popup).title()).toBe('insecure')
    await Promise.all([careless.close(), careful.close()])
    insecure.closeAllConnections()
    insecure.close()
  })

  it('a list of permissions is granted but for the clipboard, and the page is told', async () => {
    const { browser, page } = await noteOf(shared)
    const told: string[] = []
    page.on('console', (message) => told.push(message.text()))
    await page.context().grantPermissions(['geolocation', 'clipboard-read'])
    const state = (name: string): Promise<unknown> =>
      page.evaluate(`navigator.permissions.query({ name: '${name}' }).then(({ state }) => state)`)
    expect(await state('geolocation')).toBe('granted')
    expect(await state('clipboard-read')).not.toBe('granted')
    await expect.poll(() => told).toEqual([expect.stringContaining('did not grant clipboard')])
    await browser.close()
  })
})

/** A certificate that nobody has signed but itself. */
async function selfSigned(): Promise<{ key: Buffer; cert: Buffer }> {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-certificate-'))
  const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')]
  const files = ['-nodes', '-keyout', key, '-out', cert]
  execFileSync('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-subj', '/CN=a', ...files], {
    stdio: 'ignore',
  })
  const made = { key: await readFile(key), cert: await readFile(cert) }
  await rm(folder, { recursive: true })
  return made
}
