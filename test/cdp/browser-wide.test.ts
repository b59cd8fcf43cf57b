/** What all clients of one browser would have in common, and who may use it: whoever is alone. */
import { chromium, type Browser, type Page } from 'playwright-core'
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
      ['Browser.grantPermissions', { permissions: ['geolocation', 'clipboardReadWrite'] }],
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
        expect(error?.code, method).toBeOneOf([-32_000, -32_601])
        // Refused here: Chrome has its own words.
        expect(error.message, method).toMatch(/wasn't found$|is not allowed here/)
      }
    }
    const after = await other.client.send('Emulation.getScreenInfos', {}, other.sessionId)
    expect(after).toEqual(before)
    one.client.close()
    other.client.close()
  })

  it('is for whoever has the browser alone, as far as the machine is not concerned', async () => {
    const { client, sessionId } = await pageOf(own)
    const screen = { left: 800, top: 0, width: 100, height: 100 }
    const { screenInfo } = await client.send('Emulation.addScreen', screen, sessionId)
    expect(screenInfo.width).toBe(100)
    expect((await client.send('SystemInfo.getProcessInfo')).processInfo.length).toBeGreaterThan(0)
    expect((await client.send('Browser.getHistograms')).histograms).toBeInstanceOf(Array)
    await client.send('Memory.simulatePressureNotification', { level: 'moderate' }, sessionId)
    const onTheMachine = ['Tethering.bind', 'Extensions.loadUnpacked', 'PWA.install', 'Cast.enable']
    for (const [method, params] of BROWSER_WIDE.filter(([name]) => onTheMachine.includes(name))) {
      expect((await client.ask(method, params))['error'].code, method).toBe(-32_601)
    }
    client.close()
  })
})
