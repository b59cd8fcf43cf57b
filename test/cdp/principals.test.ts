/** Two principals on one browser: neither sees, reaches or ends what is the other's. */
import { createHash } from 'node:crypto'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { hasSeveralPrincipals, TokenList, type TokenEntry } from '../../src/server/tokens.ts'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp, type Message } from '../support/raw-cdp.ts'

const entry = (principal: string): TokenEntry => ({
  name: principal,
  id: `id-${principal}`,
  sha256: createHash('sha256').update(`hf_${principal}`).digest('hex'),
  scopes: ['talk', 'manage'],
  principal,
})
const as = (who: string) => ({ headers: { authorization: `Bearer hf_${who}` } })

class Tokens extends TokenList {
  close(): void {}
  add(...entries: readonly TokenEntry[]): void {
    this.replace(entries)
  }
}

let server: CdpServer
let ownPort: number

beforeAll(async () => {
  server = await serveCdp({ tokens: new Tokens([entry('alice'), entry('bob')]) })
  ownPort = await server.server.listenCdp('chromium', 0)
})
afterAll(() => server.close())

async function json(who: string, path: string, method = 'GET', base = server.url): Promise<any> {
  const response = await fetch(`${base}${path}`, { method, ...as(who) })
  const text = await response.text()
  return response.ok && text.startsWith('[') ? JSON.parse(text) : { status: response.status, text }
}

async function ids(who: string, path: string, base?: string): Promise<string[]> {
  return (await json(who, path, 'GET', base)).map(({ id }: { id: string }) => id)
}

/** The HTTP status by which a socket is refused. */
function refusal(url: string, who: string): Promise<number> {
  const client = new RawCdp(url, as(who))
  return new Promise((resolve) => {
    client.socket.on('unexpected-response', (_, { statusCode }) => resolve(statusCode ?? 0))
  })
}

/** The first frame that answers a resumable connection. */
async function hello(url: string, who: string, frame: object = {}): Promise<Message> {
  const client = await RawCdp.open(url, as(who))
  client.say(`#${JSON.stringify({ type: 'hello', v: 2, ...frame })}`)
  const answer = await client.frame()
  client.socket.terminate()
  return answer
}

describe('two principals', () => {
  it.each(['/json/list', '/json/list?key=same'])('have pages of their own at %s', async (path) => {
    for (const base of [server.url, `http://127.0.0.1:${ownPort}`]) {
      const [mine, theirs] = [await ids('alice', path, base), await ids('bob', path, base)]
      expect(mine.length * theirs.length).toBeGreaterThan(0)
      expect(mine.filter((id) => theirs.includes(id))).toEqual([])
    }
  })

  it('cannot show or close a page of the other, whichever key they name', async () => {
    const [page] = await ids('alice', '/json/list?key=mine')
    for (const query of ['', '?key=mine', '?key=cdp:chromium:mine']) {
      for (const action of ['activate', 'close']) {
        expect((await json('bob', `/json/${action}/${page}${query}`)).status).toBe(404)
      }
      const url = `${server.socketUrl}/devtools/page/${page}${query}`
      expect(await refusal(url, 'bob')).toBe(404)
      const answer = await hello(url.replace('/devtools/', '/held/'), 'bob')
      expect(answer).toMatchObject({ type: 'refuse', code: 'target_unknown' })
    }
    expect(await ids('alice', '/json/list?key=mine')).toContain(page)
  })

  it('see only their own targets and contexts with the same key', async () => {
    const [alice, bob] = await Promise.all(
      ['alice', 'bob'].map((who) => RawCdp.open(`${server.socketUrl}?key=team`, as(who))),
    )
    const { targetId } = await alice!.send('Target.createTarget', { url: 'about:blank' })
    const { browserContextId } = await alice!.send('Target.createBrowserContext')
    await bob!.send('Target.setDiscoverTargets', { discover: true, filter: [{}] })
    const { targetInfos } = await bob!.send('Target.getTargets')
    expect(JSON.stringify([targetInfos, bob!.messages])).not.toContain(targetId)
    for (const [method, params] of [
      ['Target.attachToTarget', { targetId, flatten: true }],
      ['Target.closeTarget', { targetId }],
      ['Target.disposeBrowserContext', { browserContextId }],
      ['Storage.getCookies', { browserContextId }],
    ] as const) {
      expect(await bob!.ask(method, params)).toHaveProperty('error')
    }
    await bob!.send('Browser.close')
    expect(await bob!.closed).toBe(4410)
    expect((await alice!.send('Browser.getVersion')).product).toMatch(/Chrome/)
    alice!.close()
  })

  it('get tickets for sessions of their own', async () => {
    const made = await fetch(`${server.url}/ticket?key=same`, { method: 'POST', ...as('bob') })
    const { ticket } = (await made.json()) as { ticket: string }
    const listed = await fetch(`${server.url}/json/list?ticket=${ticket}`)
    const pages = ((await listed.json()) as { id: string }[]).map(({ id }) => id)
    expect(pages).toEqual(await ids('bob', '/json/list?key=same'))
    const theirs = await ids('alice', '/json/list?key=same')
    expect(pages.filter((id) => theirs.includes(id))).toEqual([])
  })

  it('cannot resume a held connection of the other', async () => {
    const url = `${server.socketUrl}/held?key=kept`
    const welcome = await hello(url, 'alice')
    expect(welcome['type']).toBe('welcome')
    const { session, resume: token, attachment } = welcome
    const auth = { resume: { attachment, token } }
    const back = { session: session.id, received: 0, take: true, auth }
    expect(await hello(url, 'bob', back)).toMatchObject({ type: 'refuse' })
    expect(await hello(url, 'alice', back)).toMatchObject({ type: 'welcome', attachment })
  })

  it('do not see the browser sessions of the other', async () => {
    const list = async (who: string): Promise<string> =>
      (await fetch(`${server.server.url}/v1/sessions`, as(who))).text()
    const mine = JSON.parse(await list('alice')).sessions as { id: string }[]
    expect(mine.length).toBeGreaterThan(0)
    const theirs = await list('bob')
    for (const { id } of mine) expect(theirs).not.toContain(id)
  })
})

describe('several principals', () => {
  let site: Server
  let hits = 0

  beforeAll(async () => {
    site = createServer((_, response) => {
      hits += 1
      response.end('inside')
    })
    await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve))
  })
  afterAll(() => {
    site.closeAllConnections()
    site.close()
  })

  /** What becomes of a page that opens loopback. */
  async function visit(on: CdpServer, who: string): Promise<string> {
    const client = await RawCdp.open(on.socketUrl, as(who))
    const { targetId } = await client.send('Target.createTarget', { url: 'about:blank' })
    const { sessionId } = await client.send('Target.attachToTarget', { targetId, flatten: true })
    const url = `http://127.0.0.1:${(site.address() as AddressInfo).port}/`
    const { errorText = 'open' } = await client.send('Page.navigate', { url }, sessionId)
    client.close()
    return String(errorText)
  }

  it('are those of a source that has them, or cannot tell', () => {
    const source = { scopesOf: () => null, close: () => undefined }
    const lists = [[entry('alice')], [entry('alice'), { ...entry('alice'), name: 'phone' }]]
    for (const entries of lists) expect(hasSeveralPrincipals(new Tokens(entries))).toBe(false)
    expect(hasSeveralPrincipals(new Tokens([entry('alice'), entry('bob')]))).toBe(true)
    const { principal: _, ...nobody } = entry('none')
    expect(hasSeveralPrincipals(new Tokens([entry('alice'), nobody]))).toBe(true)
    expect([null, undefined, source].map((each) => hasSeveralPrincipals(each))).toEqual([
      ...[false, false, false],
    ])
    expect(hasSeveralPrincipals({ ...source, accessOf: () => null })).toBe(true)
  })

  it('keep their pages from this machine, without any configuration', async () => {
    hits = 0
    expect(await visit(server, 'alice')).toBe('net::ERR_SOCKS_CONNECTION_FAILED')
    expect(hits).toBe(0)
  })

  it('may be trusted with it', async () => {
    const browsers = { chromium: { program: 'chromium', egress: 'any' as const } }
    const tokens = new Tokens([entry('alice'), entry('bob')])
    const trusting = await serveCdp({ tokens, browsers })
    expect(await visit(trusting, 'alice')).toBe('open')
    await trusting.close()
  })

  it('count when there is a second one: new sessions get a browser with the rule', async () => {
    const tokens = new Tokens([entry('alice')])
    const growing = await serveCdp({ tokens })
    expect(await visit(growing, 'alice')).toBe('open')
    tokens.add(entry('alice'), entry('bob'))
    for (const who of ['alice', 'bob']) {
      expect(await visit(growing, who)).toBe('net::ERR_SOCKS_CONNECTION_FAILED')
    }
    await growing.close()
  })
})
