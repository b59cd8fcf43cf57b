/** Browsers behind several nodes: a client reaches its browser through whichever it comes to. */
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { chromium } from 'playwright-core'
import puppeteer from 'puppeteer-core'
import type { TokenSource } from 'holdfast/server'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { HeldConnection, playwrightTransport } from '../../src/cdp/index.ts'
import { CHROMIUM, Site } from '../support/cdp-server.ts'
import { serve, type TestServer } from '../support/server.ts'
import { CommandLine } from '../support/command-line.ts'
import { gate, until } from '../support/gate.ts'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'
import { RawCdp } from '../support/raw-cdp.ts'

let database: TestDatabase
let site: Site
let owner: TestServer
let other: TestServer
let balancer: Balancer

let store: string

beforeAll(async () => {
  database = await openTestDatabase()
  site = await new Site().start()
  store = database.freshUrl()
  ;[owner, other] = await Promise.all([startNode(), startNode()])
  balancer = await Balancer.before([owner, other])
})
afterAll(async () => {
  await balancer.close()
  await Promise.all([owner.close(), other.close()])
  await site.close()
  await database.close()
})

function startNode(): Promise<TestServer> {
  return serve({ store, isNode: true, browsers: { chromium: CHROMIUM } })
}

/** Connections go to the nodes in turn, as a load balancer has it that knows of no sessions. */
class Balancer {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #next = 0

  private constructor(nodes: readonly TestServer[]) {
    this.#server = createServer((near) => {
      const far = connect(nodes[this.#next++ % nodes.length]!.server.port, '127.0.0.1')
      for (const socket of [near, far]) {
        this.#sockets.add(socket)
        socket.on('error', () => undefined)
        socket.on('close', () => (near.destroy(), far.destroy()))
      }
      near.pipe(far).pipe(near)
    })
  }

  static async before(nodes: readonly TestServer[]): Promise<Balancer> {
    const balancer = new Balancer(nodes)
    await new Promise<void>((resolve) => balancer.#server.listen(0, '127.0.0.1', resolve))
    return balancer
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/cdp/chromium`
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    await new Promise((resolve) => this.#server.close(resolve))
  }
}

const socketUrl = ({ url }: { url: string }, rest = ''): string =>
  `${url.replace('http', 'ws')}/cdp/chromium${rest}`

async function clientsOn(node: TestServer): Promise<number> {
  return (await node.server.browserCounts())?.clients ?? 0
}

/** A browser session of this key, which `owner` owns, with one page in it. */
async function pageOnOwner(key: string): Promise<{ target: string; client: RawCdp }> {
  const client = await RawCdp.open(socketUrl(owner, `?key=${key}`))
  const { targetId } = await client.send('Target.createTarget', { url: 'about:blank' })
  return { target: targetId as string, client }
}

async function socketsPassedOn(node: TestServer): Promise<number> {
  const { text } = await node.call('GET', '/metrics')
  return Number(/^holdfast_forwards_total\{.*"sockets"\} (\d+)$/m.exec(text)?.[1])
}

describe('a client that names a key', () => {
  it('finds the pages of its session through another node, by socket and by /json', async () => {
    const { target, client } = await pageOnOwner('alice')
    const elsewhere = await RawCdp.open(socketUrl(other, '?key=alice'))
    const { targetInfos } = await elsewhere.send('Target.getTargets')
    expect(targetInfos.map((info: any) => info.targetId)).toContain(target)
    const list = await other.call('GET', '/cdp/chromium/json/list?key=alice')
    expect(list.body[0]).toMatchObject({ id: target, url: 'about:blank' })
    const page = await RawCdp.open(list.body[0].webSocketDebuggerUrl as string)
    expect(page.socket.url).toContain(other.url.replace('http', 'ws'))
    expect((await page.send('Runtime.evaluate', { expression: '6 * 7' })).result.value).toBe(42)
    const made = await other.call('PUT', '/cdp/chromium/json/new?key=alice&about:blank')
    await other.call('GET', `/cdp/chromium/json/close/${made.body.id}?key=alice`)
    expect([await clientsOn(owner), await clientsOn(other)]).toEqual([3, 0])
    for (const one of [page, elsewhere, client]) one.close()
    await until(async () => (await clientsOn(owner)) === 0)
  })

  it('gets in through another node by a ticket that one node made', async () => {
    const { target, client } = await pageOnOwner('ticket')
    const { body } = await owner.call('POST', '/cdp/chromium/ticket?key=ticket')
    const ticket = `?ticket=${body.ticket}`
    const list = await other.call('GET', `/cdp/chromium/json/list${ticket}`)
    expect(list.body[0]).toMatchObject({ id: target })
    const sockets = [
      await RawCdp.open(list.body[0].webSocketDebuggerUrl as string),
      await RawCdp.open(socketUrl(other, ticket)),
    ]
    expect([await clientsOn(owner), await clientsOn(other)]).toEqual([3, 0])
    for (const each of [client, ...sockets]) each.close()
    await until(async () => (await clientsOn(owner)) === 0)
  })

  it('is told of a page that is not there as by the owner itself', async () => {
    const { client } = await pageOnOwner('bob')
    const lost = new RawCdp(socketUrl(other, '/devtools/page/NONE?key=bob'))
    const status = await new Promise((resolve) =>
      lost.socket.on('unexpected-response', (_, { statusCode }) => resolve(statusCode)),
    )
    expect(status).toBe(404)
    const gone = await other.call('GET', '/cdp/chromium/json/close/NONE?key=bob')
    expect(gone.status).toBe(404)
    client.close()
    await until(async () => (await clientsOn(owner)) === 0)
  })

  it('works with Puppeteer through a balancer, large messages and all', async () => {
    const { client } = await pageOnOwner('carol')
    const browserWSEndpoint = `${balancer.url.replace('http', 'ws')}?key=carol`
    const browsers = await Promise.all([1, 2].map(() => puppeteer.connect({ browserWSEndpoint })))
    const titles = await Promise.all(
      browsers.map(async (browser) => {
        const page = await browser.newPage()
        await page.goto(`${site.url}/here`)
        const large = await page.evaluate((size) => 'x'.repeat(size), 3_000_000)
        return [await page.title(), large.length]
      }),
    )
    expect(titles).toEqual([
      ['/here', 3_000_000],
      ['/here', 3_000_000],
    ])
    for (const browser of browsers) await browser.disconnect()
    client.close()
    await until(async () => (await clientsOn(owner)) === 0)
  })

  it('reaches it on a port of its own too', async () => {
    const { target, client } = await pageOnOwner('shared')
    const port = await other.server.listenCdp('chromium', 0)
    const list: any = await (await fetch(`http://127.0.0.1:${port}/json/list`)).json()
    expect(list[0]).toMatchObject({ id: target })
    const page = await RawCdp.open(list[0].webSocketDebuggerUrl as string)
    expect((await page.send('Runtime.evaluate', { expression: '6 * 7' })).result.value).toBe(42)
    const held = await HeldConnection.open(`http://127.0.0.1:${port}`)
    expect([await clientsOn(owner), await clientsOn(other)]).toEqual([3, 0])
    for (const one of [held, page, client]) one.close()
    await until(async () => (await clientsOn(owner)) === 0)
  })
})

describe('an address that one node hands out', () => {
  it('is good at another', async () => {
    const [one, two] = await Promise.all(
      [owner, other].map((node) => node.call('GET', '/cdp/chromium/json/version')),
    )
    const path = (url: string): string => new URL(url).pathname
    expect(path(one!.body.webSocketDebuggerUrl)).toBe(path(two!.body.webSocketDebuggerUrl))
    const client = await RawCdp.open(
      `${other.url.replace('http', 'ws')}${path(one!.body.webSocketDebuggerUrl)}`,
    )
    expect(await client.send('Browser.getVersion')).toHaveProperty('product')
    client.close()
  })
})

describe('a client that comes back', () => {
  it('gets to its browser through whichever node its next connection finds', async () => {
    const transport = await playwrightTransport(balancer.url)
    const browser = await chromium.connectOverCDP(transport)
    const page = await (await browser.newContext()).newPage()
    const titles: string[] = []
    for (let n = 0; n < 8; n += 1) {
      await page.goto(`${site.url}/page-${n}`)
      transport.connection.drop()
      titles.push(await page.title())
    }
    expect(titles).toEqual(Array.from({ length: 8 }, (_, n) => `/page-${n}`))
    const passedOn = await Promise.all([owner, other].map((node) => socketsPassedOn(node)))
    expect(Math.max(...passedOn)).toBeGreaterThan(0)
    const session = transport.connection.session ?? ''
    await browser.close()
    await until(async () => {
      const { row } = await other.holdfast.session(session).read(0, 0)
      return row?.state === 'closed'
    })
  })

  it('is not cut off by the end of the node that it came through', async () => {
    const { client } = await pageOnOwner('dora')
    const leaving = await startNode()
    const two = await Balancer.before([leaving, owner])
    const held = await HeldConnection.open(two.url, { key: 'dora' })
    expect(await socketsPassedOn(leaving)).toBe(1)
    await leaving.close()
    expect(await versionBy(held)).toContain('product')
    held.close()
    client.close()
    await two.close()
  })

  function versionBy(connection: HeldConnection): Promise<string> {
    return new Promise((resolve, reject) => {
      connection.onMessage = (text) => {
        if (text.includes('"id":77')) resolve(text)
      }
      connection.onClosed = reject
      connection.send(JSON.stringify({ id: 77, method: 'Browser.getVersion' }))
    })
  }
})

it('shows the browsers of a node as those of that node', async () => {
  const client = await RawCdp.open(`${owner.url.replace('http', 'ws')}/cdp/chromium`)
  for (const node of [owner, other]) {
    const { body } = await node.call('GET', '/v1/browsers')
    expect(body.node).toBe(node.holdfast.authority.node)
    expect(body.browsers.length).toBeLessThan(2)
    const command = new CommandLine(['sessions', '--url', node.url], {})
    expect(await command.exited, command.stderr).toBe(0)
    expect(command.stdout).toContain(`on node ${body.node}; ask each other node for its own`)
  }
  client.close()
})

describe('a node that is about to stop', () => {
  it('passes clients on, by key too, while its last turns end', async () => {
    const over = gate()
    const held = (): Promise<void> => over.opened
    const leaving = await serve({
      store,
      isNode: true,
      browsers: { chromium: CHROMIUM },
      agents: { held },
    })
    const body = { input: 'work', agent: 'held' }
    const headers = { prefer: 'respond-async' }
    const turn = await leaving.call('POST', '/v1/keys/busy/turns', { body, headers })
    expect(turn.status).toBe(202)
    const closing = leaving.server.close({ drainMs: 60_000, closeHoldfast: true })
    await until(() => leaving.holdfast.authority.draining)
    const client = await RawCdp.open(socketUrl(leaving, '?key=late'))
    expect(await client.send('Browser.getVersion')).toHaveProperty('product')
    expect(await clientsOn(leaving)).toBe(0)
    client.close()
    over.open()
    await closing
  })
})

it('ends the socket of a client whose token the node in front has taken back', async () => {
  const token = 'hf_the-token-of-this-test'
  /** The tokens of one node: a copy that may be older than that of another. */
  const copy = () => {
    const state = { isRevoked: false }
    const tokens: TokenSource = {
      scopesOf: () => (state.isRevoked ? null : ['watch', 'talk']),
      revision: () => Number(state.isRevoked),
      close: () => undefined,
    }
    return { state, tokens }
  }
  const [near, far] = [copy(), copy()]
  const node = { store: database.freshUrl(), isNode: true, browsers: { chromium: CHROMIUM } }
  const behind = await serve({ ...node, tokens: far.tokens })
  const front = await serve({ ...node, tokens: near.tokens })
  const headers = { authorization: `Bearer ${token}` }
  const first = await RawCdp.open(socketUrl(behind, '?key=a'), { headers })
  const through = await RawCdp.open(socketUrl(front, '?key=a'), { headers })
  await through.send('Target.getTargets')
  near.state.isRevoked = true
  await through.closed
  expect(first.socket.readyState).toBe(first.socket.OPEN)
  first.close()
  await Promise.all([behind.close(), front.close()])
})
