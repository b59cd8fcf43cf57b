/** Whoever has no business here, whoever floods, and whoever looks where nothing is of its own. */
import { createHash } from 'node:crypto'
import { request } from 'node:http'
import type { Socket } from 'node:net'
import { chromium } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { TokenList } from '../../src/server/tokens.ts'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp } from '../support/raw-cdp.ts'

const TOKEN = 'hf_the-token-of-this-test'
const WATCHER = 'hf_who-may-only-watch'

let server: CdpServer

beforeAll(async () => {
  const entry = (name: string, token: string, scopes: any) => ({
    name,
    id: `id-${name}`,
    sha256: createHash('sha256').update(token).digest('hex'),
    scopes,
  })
  const list = new TokenList([entry('a', TOKEN, ['talk']), entry('b', WATCHER, ['watch'])])
  const tokens = {
    scopesOf: (token: string, now: number) => list.scopesOf(token, now),
    close: () => undefined,
  }
  server = await serveCdp({ tokens, cdpLimits: { unreadBytesMax: 4_000_000 } })
})
afterAll(() => server.close())
// A client that has left is not gone at once.
afterEach(async () => {
  await expect
    .poll(async () => (await server.holdfast.list({ state: 'open' })).sessions)
    .toEqual([])
})

/** The status that a request gets. */
function status(path: string, headers: Record<string, string> = {}): Promise<number> {
  const { port } = server.server
  return new Promise((resolve, reject) => {
    const sent = request({ port, host: '127.0.0.1', path, headers }, (response) => {
      response.resume()
      resolve(response.statusCode ?? 0)
    })
    sent.on('error', reject).end()
  })
}

async function refused(query: string, headers: Record<string, string> = {}): Promise<boolean> {
  const client = new RawCdp(`${server.socketUrl}${query}`, { headers })
  return (await client.closed) === 1006
}

function bearer(token: string): Record<string, string> {
  return { authorization: `Bearer ${token}` }
}

function open(path = ''): Promise<RawCdp> {
  return RawCdp.open(`${server.socketUrl}${path}`, { headers: bearer(TOKEN) })
}

/** The beginning of a masked text frame of this length. */
function header(length: number): Buffer {
  const frame = Buffer.alloc(14)
  frame.set([0x81, 0xff])
  frame.writeBigUInt64BE(BigInt(length), 2)
  return frame
}

describe('who is not let in', () => {
  it('has no token, a wrong one, or one that is not for this', async () => {
    const path = '/cdp/chromium/json/version'
    expect(await status(path)).toBe(401)
    expect(await status(path, bearer('wrong'))).toBe(401)
    expect(await status(path, bearer(WATCHER))).toBe(403)
    expect(await refused('')).toBe(true)
    expect(await refused('', bearer('wrong'))).toBe(true)
    expect(await refused('/held', bearer(WATCHER))).toBe(true)
  })

  it('calls the server by a strange name, or is a page of another origin', async () => {
    const path = '/cdp/chromium/json/version'
    const origin = 'http://evil.example'
    expect(await status(path, { ...bearer(TOKEN), host: 'evil.example' })).toBe(403)
    expect(await status(path, { ...bearer(TOKEN), origin })).toBe(403)
    expect(await refused('', { ...bearer(TOKEN), origin })).toBe(true)
  })

  it('looks for a browser, an address or a parameter that is not there', async () => {
    const auth = bearer(TOKEN)
    expect(await status('/cdp/nothing/json/version', auth)).toBe(404)
    expect(await status('/cdp/constructor/json/version', auth)).toBe(404)
    expect(await status('/cdp/chromium/json/nothing', auth)).toBe(404)
    expect(await status('/cdp/chromium/json/version?what=1', auth)).toBe(422)
    expect(await refused('/devtools/browser/wrong', auth)).toBe(true)
    expect(await refused('/devtools/page/wrong', auth)).toBe(true)
    expect(await refused('?what=1', auth)).toBe(true)
    expect((await server.holdfast.list({ state: 'open' })).sessions).toEqual([])
  })
})

describe('a good token', () => {
  it('lets a stock client in by its header', async () => {
    const browser = await chromium.connectOverCDP(server.url, { headers: bearer(TOKEN) })
    const page = await browser.contexts()[0]!.newPage()
    expect(await page.evaluate('1 + 1')).toBe(2)
    await browser.close()
  })

  it('is never in a log, a session or a refusal', async () => {
    const { sessions } = await server.holdfast.list({ state: 'closed' })
    expect(sessions.length).toBeGreaterThan(0)
    expect(JSON.stringify(sessions)).not.toContain(TOKEN)
    for (const path of ['/json/nothing', `/json/version?token=${TOKEN}`]) {
      const response = await fetch(`${server.url}${path}`, { headers: bearer(TOKEN) })
      expect(response.status).toBeOneOf([400, 404])
      expect(await response.text()).not.toContain(TOKEN)
    }
  })
})

describe('a client that means no good', () => {
  it('gets nowhere with guessed and foreign names of sessions, at any rate', async () => {
    const [one, other] = [await open(), await open()]
    const { targetId } = await one.send('Target.createTarget', { url: 'about:blank' })
    const { sessionId } = await one.send('Target.attachToTarget', { targetId, flatten: true })
    const guesses = [sessionId, sessionId.toLowerCase(), targetId, '', '0'.repeat(32), '__proto__']
    const floods = Array.from({ length: 2_000 }, (_, n) =>
      other.ask('Runtime.evaluate', { expression: '1' }, guesses[n % guesses.length]),
    )
    const codes = new Set((await Promise.all(floods)).map(({ error }) => error.code as unknown))
    expect(codes).toEqual(new Set([-32001]))
    const { result } = await one.send('Runtime.evaluate', { expression: '5' }, sessionId)
    expect(result.value).toBe(5)
    one.close()
    other.close()
  })

  it.each([
    ['is not masked', Buffer.from([0x81, 0x02, 0x7b, 0x7d]), 1002],
    ['has an opcode that is not there', Buffer.from([0x83, 0x80, 0, 0, 0, 0]), 1002],
    ['is no UTF-8', Buffer.from([0x81, 0x81, 0, 0, 0, 0, 0xff]), 1007],
    ['says that it is larger than may be', header(2 ** 40), 1009],
  ])('is closed when a frame %s, and the others go on', async (_, frame, code) => {
    const [bad, other] = [await open(), await open()]
    // What `ws` itself would never send.
    ;(bad.socket as unknown as { _socket: Socket })._socket.write(frame)
    expect(await bad.closed).toBe(code)
    expect((await other.send('Browser.getVersion')).product).toMatch(/Chrome/)
    other.close()
  })

  it.each(['', '/held'])(
    'is cut off when it floods with pings, and the others go on: %s',
    async (path) => {
      const bad = await open(path)
      const other = await open()
      for (let n = 0; n < 2_000; n += 1) bad.socket.ping('', undefined, () => undefined)
      expect(await bad.closed).toBe(1008)
      expect((await other.send('Browser.getVersion')).product).toMatch(/Chrome/)
      other.close()
    },
  )

  it('is cut off when it does not read, and the others go on', async () => {
    const [deaf, other] = [await open(), await open()]
    const { targetId } = await deaf.send('Target.createTarget', { url: 'about:blank' })
    const { sessionId } = await deaf.send('Target.attachToTarget', { targetId, flatten: true })
    deaf.socket.pause()
    const params = { expression: `'x'.repeat(2_000_000)` }
    for (let n = 0; n < 20; n += 1) {
      deaf.say(JSON.stringify({ id: 100 + n, method: 'Runtime.evaluate', params, sessionId }))
    }
    const { sessions } = await server.holdfast.list({ state: 'open' })
    expect(sessions).toHaveLength(2)
    await Promise.race(
      sessions.map(async ({ id }) => {
        for await (const event of server.holdfast.session(id).events()) {
          if (event.type === 'session.closed') return
        }
      }),
    )
    expect((await other.send('Browser.getVersion')).product).toMatch(/Chrome/)
    deaf.socket.resume()
    expect(await deaf.closed).toBe(1006)
    other.close()
  })
})
