/** What pages and clients of a browser with an egress rule reach: nothing that is not allowed. */
import { createSocket, type Socket as UdpSocket } from 'node:dgram'
import { createServer, type Server } from 'node:http'
import {
  createServer as createTcpServer,
  type AddressInfo,
  type Server as TcpServer,
} from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Diagnostic } from 'holdfast'
import type { EgressOption } from 'holdfast/server'
import { chromium } from 'playwright-core'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'
import { until } from '../support/gate.ts'
import { RawCdp } from '../support/raw-cdp.ts'

/** Stands for the internet here: an address of loopback that the tests allow. */
const PUBLIC = '127.0.0.2'
const PRIVATE = '127.0.0.1'

let site: Server
let victim: Server
let port: number
let hits: string[] = []
/** A port for what is no HTTP, and its connections. */
let raw: TcpServer
let rawPort: number
let connections = 0

const NAMES: Record<string, () => readonly string[]> = {
  'public.test': () => [PUBLIC],
  'inside.test': () => [PRIVATE],
  'mapped.test': () => [`::ffff:${PRIVATE}`],
  localhost: () => [PRIVATE],
  'localhost.': () => [PRIVATE],
  'any.localhost': () => [PRIVATE],
}

async function listening(server: TcpServer, host: string, at: number): Promise<number> {
  await new Promise<void>((resolve) => server.listen(at, host, resolve))
  return (server.address() as AddressInfo).port
}

beforeAll(async () => {
  victim = createServer((request, response) => {
    hits.push(request.url ?? '')
    response.setHeader('access-control-allow-origin', '*')
    response.end('secret')
  })
  victim.on('upgrade', (request, socket) => {
    hits.push(request.url ?? '')
    socket.destroy()
  })
  port = await listening(victim, PRIVATE, 0)
  raw = createTcpServer((socket) => {
    connections += 1
    socket.destroy()
  })
  rawPort = await listening(raw, PRIVATE, 0)
  site = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://site')
    const to = searchParams.get('to')
    if (to !== null) return void response.writeHead(302, { location: to }).end()
    const type = pathname.endsWith('.js') ? 'text/javascript' : 'text/html'
    const script = "onmessage = ({ data }) => { eval(data) }; postMessage('ready')"
    response.writeHead(200, { 'content-type': type })
    response.end(type === 'text/html' ? '<title>public</title><body>' : script)
  })
  await listening(site, PUBLIC, port)
})
afterAll(async () => {
  raw.close()
  for (const server of [site, victim]) {
    const closed = new Promise((resolve) => server.close(resolve))
    server.closeAllConnections()
    await closed
  }
})

/** A server with one browser, whose pages may reach these. */
class Guarded {
  readonly refused: string[] = []
  server!: CdpServer
  #client: RawCdp | null = null

  async start(egress: EgressOption | undefined, own = false): Promise<this> {
    this.server = await serveCdp({
      browsers: {
        chromium: { program: 'chromium', own, ...(egress === undefined ? {} : { egress }) },
      },
      resolveHost: async (name) => NAMES[name]?.() ?? [],
      onDiagnostic: ({ code, facts }: Diagnostic) => {
        if (code === 'egress_refused') this.refused.push(`${String(facts['host'])}:${port}`)
      },
    })
    return this
  }

  async client(): Promise<RawCdp> {
    this.#client ??= await RawCdp.open(this.server.socketUrl)
    return this.#client
  }

  /** A page of the public site, and its session. */
  async page(url = `http://public.test:${port}/`): Promise<string> {
    const client = await this.client()
    const { targetId } = await client.send('Target.createTarget', { url: 'about:blank' })
    const { sessionId } = await client.send('Target.attachToTarget', { targetId, flatten: true })
    await this.navigate(url, String(sessionId))
    return String(sessionId)
  }

  /** The error, if there is one. */
  async navigate(url: string, session?: string): Promise<string | undefined> {
    const client = await this.client()
    const sessionId = session ?? (await this.page())
    await client.send('Page.enable', {}, sessionId)
    const known = client.events('Page.loadEventFired').length
    const { errorText } = await client.send('Page.navigate', { url }, sessionId)
    if (errorText !== undefined) return String(errorText)
    await until(() => client.events('Page.loadEventFired').length > known)
    return undefined
  }

  async evaluate(expression: string, session?: string): Promise<unknown> {
    const client = await this.client()
    const sessionId = session ?? (await this.page())
    const params = { expression, awaitPromise: true, returnByValue: true, userGesture: true }
    const { result } = await client.send('Runtime.evaluate', params, sessionId)
    return result.value
  }

  async close(): Promise<void> {
    this.#client?.close()
    await this.server.close()
  }
}

/** What a page does to reach a URL; `base` is its own site. */
const WAYS: Record<string, (url: string, base: string) => string> = {
  navigation: (url) => `location.href = '${url}'; 1`,
  fetch: (url) => `fetch('${url}').catch(String).then(String)`,
  'fetch without CORS': (url) => `fetch('${url}', { mode: 'no-cors' }).catch(String).then(String)`,
  XMLHttpRequest: (url) => `x = new XMLHttpRequest(); x.open('GET', '${url}'); x.send(); 1`,
  redirect: (url, base) => `fetch('${base}/?to=${url}').catch(String).then(String)`,
  'redirected navigation': (url, base) => `location.href = '${base}/?to=${url}'; 1`,
  image: (url) => `new Image().src = '${url}'; 1`,
  script: (url) =>
    `document.head.append(Object.assign(document.createElement('script'), { src: '${url}' })); 1`,
  style: (url) => `document.body.style.background = 'url(${url})'; document.body.offsetWidth`,
  iframe: (url) =>
    `document.body.append(Object.assign(document.createElement('iframe'), { src: '${url}' })); 1`,
  'window.open': (url) => `window.open('${url}'); 1`,
  WebSocket: (url) => `new WebSocket('${url.replace('http', 'ws')}'); 1`,
  EventSource: (url) => `new EventSource('${url}'); 1`,
  beacon: (url) => `navigator.sendBeacon('${url}', 'x')`,
  form: (url) =>
    `f = Object.assign(document.createElement('form'), { action: '${url}', method: 'post' }); document.body.append(f); f.submit(); 1`,
  download: (url) =>
    `a = Object.assign(document.createElement('a'), { href: '${url}', download: 'x' }); document.body.append(a); a.click(); 1`,
  prefetch: (url) =>
    `document.head.append(Object.assign(document.createElement('link'), { rel: 'prefetch', href: '${url}' })); 1`,
  'fetch of a worker': (url) =>
    `w = new Worker('/w.js'); w.onmessage = () => w.postMessage("fetch('${url}')"); 1`,
  'import of a worker': (url) =>
    `w = new Worker('/w.js'); w.onmessage = () => w.postMessage("importScripts('${url}')"); 1`,
  'WebSocket of a worker': (url) =>
    `w = new Worker('/w.js'); w.onmessage = () => w.postMessage("new WebSocket('${url.replace('http', 'ws')}')"); 1`,
  'frame of a blob': (url) =>
    `f = document.createElement('iframe'); f.src = URL.createObjectURL(new Blob(['<img src="${url}">'], { type: 'text/html' })); document.body.append(f); 1`,
  'shared worker': (url) => `new SharedWorker('data:text/javascript,fetch("${url}")'); 1`,
  'TURN server': (url) =>
    `p = new RTCPeerConnection({ iceServers: [{ urls: 'turn:${new URL(url).host}?transport=tcp', username: 'u', credential: 'c' }] }); p.createDataChannel('x'); p.createOffer().then((o) => p.setLocalDescription(o)).then(() => 1)`,
}
describe('a page of a browser with an egress rule', () => {
  let guarded: Guarded
  let open: Guarded

  beforeAll(async () => {
    guarded = await new Guarded().start([PUBLIC])
    open = await new Guarded().start([PUBLIC, PRIVATE])
  })
  afterAll(async () => {
    await guarded.close()
    await open.close()
  })

  it.each(Object.keys(WAYS))('does not reach loopback by: %s', async (way) => {
    const base = `http://public.test:${port}`
    const attempt = (who: string): string => {
      const at = way === 'TURN server' ? rawPort : port
      return WAYS[way]!(`http://${PRIVATE}:${at}/${who}/${encodeURI(way)}`, base)
    }
    const arrived = (who: string): string[] => hits.filter((hit) => hit.startsWith(`/${who}/`))
    hits = []
    const known = guarded.refused.length
    await guarded.evaluate(attempt('guarded'))
    await until(() => guarded.refused.length > known)
    expect([arrived('guarded'), connections]).toEqual([[], 0])
    // The control: it is the rule that refuses it.
    await open.evaluate(attempt('open'))
    await until(() => arrived('open').length + connections > 0)
    expect(arrived('guarded')).toEqual([])
  })

  const REFUSED = 'net::ERR_SOCKS_CONNECTION_FAILED'

  it.each([
    ...[
      PRIVATE,
      'localhost',
      'localhost.',
      'any.localhost',
      '0x7f000001',
      '2130706433',
      '0177.0.0.1',
      '127.1',
      '0.0.0.0',
    ],
    ...[`[::ffff:${PRIVATE}]`, '[::1]', '[64:ff9b::7f00:1]', 'inside.test', 'mapped.test'],
  ])('does not reach this machine as %s', async (host) => {
    hits = []
    const known = guarded.refused.length
    expect(await guarded.navigate(`http://${host}:${port}/refused`)).toBe(REFUSED)
    expect(guarded.refused.length).toBeGreaterThan(known)
    expect(hits).not.toContain('/refused')
  })

  it.each([PRIVATE, 'localhost', '0x7f000001', '127.1', `[::ffff:${PRIVATE}]`, 'inside.test'])(
    'reaches it as %s if that is allowed',
    async (host) => {
      hits = []
      expect(await open.navigate(`http://${host}:${port}/spelled`)).toBeUndefined()
      expect(hits).toContain('/spelled')
    },
  )

  it.each([
    ...['169.254.169.254', '[fd00:ec2::254]', '[::ffff:169.254.169.254]', '2852039166'],
    ...['10.0.0.1', '192.168.0.1', '100.100.100.200', '[fe80::1]', '224.0.0.251'],
  ])('does not reach %s', async (host) => {
    const known = guarded.refused.length
    expect(await guarded.navigate(`http://${host}/latest/meta-data`)).toBe(REFUSED)
    expect(guarded.refused.length).toBeGreaterThan(known)
  })

  it('is not led inside by a name that resolves differently the next time', async () => {
    const answers = [PUBLIC]
    let asked = 0
    NAMES['rebind.test'] = () => {
      asked += 1
      return [answers.shift() ?? PRIVATE]
    }
    const session = await guarded.page(`http://rebind.test:${port}/`)
    expect(await guarded.evaluate('document.title', session)).toBe('public')
    expect(asked).toBeGreaterThan(0)
    answers.length = 0
    site.closeAllConnections()
    const known = guarded.refused.length
    const fetched = await guarded.evaluate(`fetch('/again').then(String, String)`, session)
    expect(fetched).toContain('TypeError')
    expect(guarded.refused.slice(known)).toContain(`rebind.test:${port}`)
    expect(hits).not.toContain('/again')
    const again = `fetch('/again').then((response) => response.status)`
    NAMES['rebind.test'] = () => [PUBLIC]
    expect(await guarded.evaluate(again, session)).toBe(200)
  })

  it('may reach those addresses of a name that are allowed, and only those', async () => {
    NAMES['both.test'] = () => [PRIVATE, PUBLIC]
    const session = await guarded.page(`http://both.test:${port}/both`)
    expect(await guarded.evaluate('document.title', session)).toBe('public')
    expect(hits).not.toContain('/both')
  })

  it('has WebSockets where it may go', async () => {
    const session = await guarded.page()
    const upgraded = new Promise((resolve) => {
      site.once('upgrade', (request, socket) => {
        resolve(request.headers.host)
        socket.destroy()
      })
    })
    await guarded.evaluate(`new WebSocket('ws://public.test:${port}/'); 1`, session)
    expect(await upgraded).toBe(`public.test:${port}`)
  })
})

describe('UDP', () => {
  let udp: UdpSocket
  let packets = 0

  beforeAll(async () => {
    udp = createSocket('udp4', () => (packets += 1))
    await new Promise<void>((resolve) => udp.bind(0, PRIVATE, resolve))
  })
  afterAll(() => udp.close())

  /** Resolves when the page has gathered its candidates. */
  function gather(): string {
    const urls = `['stun:${PRIVATE}:${udp.address().port}', 'stun:inside.test:${udp.address().port}']`
    return `new Promise((resolve) => {
      const connection = new RTCPeerConnection({ iceServers: [{ urls: ${urls} }] })
      const found = []
      connection.onicecandidate = ({ candidate }) => {
        if (candidate === null) resolve(found.length)
        else found.push(candidate.candidate)
      }
      connection.createDataChannel('x')
      connection.createOffer().then((offer) => connection.setLocalDescription(offer))
    })`
  }

  it('leaves a browser without a rule, and none with one', async () => {
    for (const [egress, isOpen] of [
      [[PUBLIC], false],
      ['any', true],
    ] as const) {
      packets = 0
      const browser = await new Guarded().start(egress)
      const client = await browser.client()
      const session = await browser.page(`http://${PUBLIC}:${port}/`)
      const params = { expression: gather(), awaitPromise: true, returnByValue: true }
      const gathered = client.send('Runtime.evaluate', params, session)
      if (isOpen) await until(() => packets > 0)
      else expect((await gathered).result.value).toBe(0)
      expect(packets > 0).toBe(isOpen)
      await browser.close()
    }
  })
})

describe.each([
  ['a shared browser', false],
  ['a browser of its own', true],
])('a client of %s', (_, own) => {
  let guarded: Guarded

  beforeAll(async () => {
    guarded = await new Guarded().start([PUBLIC], own)
  })
  afterAll(() => guarded.close())

  it.each<[string, object]>([
    ['Page.navigate', { url: 'file:///etc/passwd' }],
    ['Page.navigate', { url: ' f\tile:///etc/passwd' }],
    ['Page.navigate', { url: 'view-source:file:///etc/passwd' }],
    ['Page.navigate', { url: 'chrome://settings' }],
    ['Page.navigate', { url: 'filesystem:file:///temporary/x' }],
    ['Page.navigate', { url: 'view-source:chrome://version' }],
    ['Page.navigate', { url: 'view-source:view-source:file:///etc/passwd' }],
    ['Target.createTarget', { url: 'FILE:///etc/passwd' }],
    ['Target.createTarget', { url: 'devtools://devtools/bundled/inspector.html' }],
    ['Target.createBrowserContext', { proxyServer: 'direct://' }],
    ['Target.createBrowserContext', { proxyBypassList: PRIVATE }],
    ['Target.exposeDevToolsProtocol', { targetId: 'x' }],
    ['Network.loadNetworkResource', { url: 'file:///etc/passwd', options: {} }],
    ['Fetch.continueRequest', { requestId: 'x', url: 'file:///etc/passwd' }],
    ['Network.continueInterceptedRequest', { interceptionId: 'x', url: 'file:///etc/passwd' }],
    ['DOM.setFileInputFiles', { files: ['/etc/passwd'] }],
    ['Input.dispatchDragEvent', { type: 'drop', x: 1, y: 1, data: { files: ['/etc/passwd'] } }],
    ['Extensions.loadUnpacked', { path: '/tmp' }],
    ['PWA.launchFilesInApp', { manifestId: 'x', files: ['/etc/passwd'] }],
    ['Tethering.bind', { port: 3000 }],
  ])('may not send %s %j', async (method, params) => {
    const client = await guarded.client()
    const session = await guarded.page()
    for (const place of [undefined, session]) {
      const { error } = await client.ask(method, params, place)
      expect(error).toMatchObject({ code: -32000, message: expect.stringContaining('not allowed') })
    }
  })

  it('cannot open a file by /json/new, and can open a page', async () => {
    const put = (url: string): Promise<Response> =>
      fetch(`${guarded.server.url}/json/new?${url}`, { method: 'PUT' })
    expect((await put('file:///etc/passwd')).status).toBe(403)
    expect((await put(`http://public.test:${port}/`)).status).toBe(200)
  })

  it('reaches loopback by no command', async () => {
    hits = []
    const client = await guarded.client()
    const session = await guarded.page()
    const url = `http://${PRIVATE}:${port}/command`
    const { frameTree } = await client.send('Page.getFrameTree', {}, session)
    const frameId = String(frameTree.frame.id)
    const options = { disableCache: true, includeCredentials: false }
    const loaded = await client.send(
      'Network.loadNetworkResource',
      { frameId, url, options },
      session,
    )
    expect(loaded.resource.success).toBe(false)
    await client.send('Fetch.enable', {}, session)
    const fetched = guarded.evaluate(`fetch('/x').then((r) => r.text(), String)`, session)
    const paused = await client.until(({ method }) => method === 'Fetch.requestPaused')
    const { requestId } = paused['params']
    await client.send('Fetch.continueRequest', { requestId, url }, session)
    expect(await fetched).toContain('TypeError')
    await client.send('Fetch.disable', {}, session)
    const { browserContextId } = await client.send('Target.createBrowserContext')
    const known = guarded.refused.length
    await client.send('Target.createTarget', { url, browserContextId })
    await until(() => guarded.refused.length > known)
    expect(hits).toEqual([])
  })

  it('gets no file by a redirect that it makes up', async () => {
    const client = await guarded.client()
    const session = await guarded.page()
    for (const location of ['file:///etc/passwd', 'view-source:file:///etc/passwd']) {
      const patterns = [{ resourceType: 'Document' }]
      await client.send('Fetch.enable', { patterns }, session)
      const known = client.events('Fetch.requestPaused').length
      const navigated = client.ask('Page.navigate', { url: `http://public.test:${port}/` }, session)
      await until(() => client.events('Fetch.requestPaused').length > known)
      const { requestId } = client.events('Fetch.requestPaused')[known]!['params']
      const responseHeaders = [{ name: 'location', value: location }]
      const answer = { requestId, responseCode: 302, responseHeaders }
      await client.ask('Fetch.fulfillRequest', answer, session)
      await client.send('Fetch.disable', {}, session)
      expect((await navigated)['result'].errorText).toMatch(/^net::ERR_/)
      const text = await guarded.evaluate('String(document.all[0]?.textContent)', session)
      expect(text).not.toContain('root:')
    }
  })

  it('gets no file by a script with universal access', async () => {
    const client = await guarded.client()
    const session = await guarded.page()
    const { frameTree } = await client.send('Page.getFrameTree', {}, session)
    const world = { frameId: frameTree.frame.id, grantUniveralAccess: true }
    const { executionContextId } = await client.send('Page.createIsolatedWorld', world, session)
    for (const expression of [
      `fetch('file:///etc/passwd').then((r) => r.text(), String)`,
      `String(window.open('file:///etc/passwd'))`,
    ]) {
      const params = { expression, contextId: executionContextId, awaitPromise: true }
      const { result } = await client.send('Runtime.evaluate', params, session)
      expect(['null', 'TypeError: Failed to fetch']).toContain(result.value)
    }
  })

  it('works with Playwright, files that it uploads and downloads in a folder of ours', async () => {
    const browser = await chromium.connectOverCDP(guarded.server.url)
    const page = await browser.contexts()[0]!.newPage()
    await page.goto(`http://public.test:${port}/`)
    await page.setContent('<input type=file><a download="x" href="/">x</a>')
    await page.setInputFiles('input', {
      name: 'a',
      mimeType: 'text/plain',
      buffer: Buffer.from('a'),
    })
    expect(await page.evaluate('document.querySelector("input").files[0].size')).toBe(1)
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('a')])
    expect(await download.failure()).toBeNull()
    await browser.close()
  })

  it('has its downloads in the profile, wherever it wants them', async () => {
    const client = await guarded.client()
    const session = await guarded.page()
    const behavior = { behavior: 'allow', downloadPath: '/tmp', eventsEnabled: true }
    await client.send('Browser.setDownloadBehavior', behavior)
    const link = `Object.assign(document.createElement('a'), { download: 'x', href: '/' }).click()`
    await guarded.evaluate(link, session)
    const { params } = await client.until(
      ({ method, params: p }) => method === 'Browser.downloadProgress' && p.state !== 'inProgress',
    )
    expect(params.filePath).toMatch(/holdfast-browser-\w+\/downloads\/[\w-]+\/x/)
  })
})

it('opens files where nothing forbids it', async () => {
  const open = await new Guarded().start('any')
  expect(await open.navigate('file:///etc/passwd', await open.page('about:blank'))).toBeUndefined()
  await open.close()
})

it.each(['--proxy-server=x', '--proxy-pac-url=x', '--no-proxy-server', '--host-resolver-rules=x'])(
  'does not start with the rule and %s',
  async (flag) => {
    const browsers = { chromium: { program: 'chromium', args: [flag], egress: [] } }
    await expect(serveCdp({ browsers })).rejects.toThrow('browsers.chromium.egress must be any')
  },
)
