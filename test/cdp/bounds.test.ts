/** Bounds hold for those too who ask for much at once, before the first answer has come. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp, type Message } from '../support/raw-cdp.ts'

let server: CdpServer

beforeAll(async () => {
  const cdpLimits = {
    targetsMax: 5,
    openingMax: 2,
    contextsMax: 4,
    sessionsMax: 8,
    clientsMax: 3,
    browserSessionsMax: 6,
    browserClientsMax: 8,
  }
  server = await serveCdp({ cdpLimits })
})
afterAll(() => server.close())

/** How many of them were not refused; the others all for the same reason. */
function granted(replies: readonly Message[], reason: RegExp): number {
  const refused = replies.filter(({ error }) => error !== undefined)
  for (const { error } of refused) {
    expect(error.code).toBe(-32_000)
    expect(error.message).toMatch(reason)
  }
  return replies.length - refused.length
}

function manyTimes<T>(count: number, one: (n: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_, n) => one(n)))
}

describe('a client that asks for all at once', () => {
  it('gets as many browser contexts as there may be', async () => {
    const client = await RawCdp.open(server.socketUrl)
    const replies = await manyTimes(20, () => client.ask('Target.createBrowserContext'))
    // The session's own counts too.
    expect(granted(replies, /too many browser contexts/)).toBe(3)
    const { browserContextIds } = await client.send('Target.getBrowserContexts')
    expect(browserContextIds).toHaveLength(3)
    await client.send('Target.disposeBrowserContext', { browserContextId: browserContextIds[0] })
    expect(await client.ask('Target.createBrowserContext')).toHaveProperty('result')
    client.close()
  })

  it('gets its browser contexts a few at a time, and others are heard meanwhile', async () => {
    const client = await RawCdp.open(server.socketUrl)
    /** Whether the browser's version is told before the last of the others. */
    const isHeard = async (others: Promise<unknown>): Promise<boolean> => {
      client.messages.length = 0
      await Promise.all([others, client.send('Browser.getVersion')])
      return client.messages.at(-1)?.['result'].product === undefined
    }
    const made = manyTimes(3, () => client.send('Target.createBrowserContext'))
    expect(await isHeard(made)).toBe(true)
    const { browserContextIds } = await client.send('Target.getBrowserContexts')
    const disposed = manyTimes(3, (n) =>
      client.send('Target.disposeBrowserContext', { browserContextId: browserContextIds[n] }),
    )
    expect(await isHeard(disposed)).toBe(true)
    expect((await client.send('Target.getBrowserContexts')).browserContextIds).toEqual([])
    client.close()
  })

  it('gets its pages a few at a time, and others are heard meanwhile', async () => {
    const client = await RawCdp.openEmpty(server.socketUrl)
    let opened = 0
    const pages = manyTimes(5, async () => {
      await client.send('Target.createTarget', { url: 'about:blank' })
      opened += 1
    })
    await client.send('Browser.getVersion')
    expect(opened).toBeLessThan(5)
    await pages
    expect((await client.send('Target.getTargets')).targetInfos).toHaveLength(5)
    client.close()
  })

  it('gets as many pages as there may be, also by /json/new', async () => {
    const client = await RawCdp.openEmpty(`${server.socketUrl}?key=pages`)
    const page = { url: 'about:blank' }
    const replies = await manyTimes(20, () => client.ask('Target.createTarget', page))
    expect(granted(replies, /too many pages/)).toBe(5)
    const [first, ...others] = replies.flatMap(({ result }) => (result ? [result.targetId] : []))
    for (const targetId of others) await client.send('Target.closeTarget', { targetId })
    await client.until(() => true)
    await expect
      .poll(async () => (await client.send('Target.getTargets')).targetInfos.length)
      .toBe(1)
    expect(first).toMatch(/^[0-9A-F]{32}$/)
    const made = await manyTimes(20, () =>
      fetch(`${server.url}/json/new?key=pages`, { method: 'PUT' }),
    )
    const statuses = made.map(({ status }) => status)
    expect(statuses.filter((status) => status === 200)).toHaveLength(4)
    expect(statuses.filter((status) => status === 429)).toHaveLength(16)
    const refused = made.find(({ status }) => status === 429)
    expect(await refused?.json()).toMatchObject({ code: 'too_many' })
    expect((await client.send('Target.getTargets')).targetInfos).toHaveLength(5)
    await client.send('Browser.close')
  })

  it('cannot make what it says too much for, and that does not count', async () => {
    const client = await RawCdp.openEmpty(server.socketUrl)
    const url = `data:text/html,${'x'.repeat(300_000)}`
    const replies = await manyTimes(8, () => client.ask('Target.createTarget', { url }))
    const deep = `{"url":"about:blank","x":${'['.repeat(99_999)}${']'.repeat(99_999)}}`
    for (let id = 100; id < 108; id += 1) {
      client.say(`{"id":${id},"method":"Target.createTarget","params":${deep}}`)
      replies.push(await client.until((message) => message['id'] === id))
    }
    const codes = new Set(replies.map(({ error }) => error.code as unknown))
    expect(codes).toEqual(new Set([-32_600, -32_700]))
    const { targetId } = await client.send('Target.createTarget', { url: url.slice(0, 200_000) })
    expect((await client.send('Target.getTargets')).targetInfos).toMatchObject([{ targetId }])
    client.close()
  })

  it('finds one first page, however many look for it', async () => {
    const lists = await manyTimes(8, async () => {
      const response = await fetch(`${server.url}/json?key=first`)
      return ((await response.json()) as { id: string }[]).map(({ id }) => id)
    })
    expect(new Set(lists.flat()).size).toBe(1)
    const client = await RawCdp.open(`${server.socketUrl}?key=first`)
    await client.send('Browser.close')
  })

  it('is told that it has too many sessions, instead of being given none', async () => {
    const client = await RawCdp.open(server.socketUrl)
    const { targetId } = await client.send('Target.createTarget', { url: 'about:blank' })
    const attach = { targetId, flatten: true }
    const replies = await manyTimes(12, () => client.ask('Target.attachToTarget', attach))
    expect(granted(replies, /too many sessions/)).toBe(8)
    const late = await client.ask('Target.attachToTarget', attach)
    expect(granted([late], /too many sessions/)).toBe(0)
    const browser = await client.ask('Target.attachToBrowserTarget')
    expect(granted([browser], /too many sessions/)).toBe(0)
    const names = replies.flatMap(({ result }) => (result ? [result.sessionId as string] : []))
    expect(new Set(names).size).toBe(8)
    for (const sessionId of names) await client.send('Target.detachFromTarget', { sessionId })
    client.close()
  })
})

/** What becomes of sockets that all come at once. */
async function arrivals(count: number, query: (n: number) => string) {
  const clients = Array.from({ length: count }, (_, n) => {
    const client = new RawCdp(`${server.socketUrl}${query(n)}`)
    const status = new Promise<number>((resolve) => {
      client.socket.on('open', () => resolve(101))
      client.socket.on('unexpected-response', (_request, response) => {
        resolve(response.statusCode ?? 0)
        client.socket.terminate()
      })
    })
    return { client, status }
  })
  const statuses = await Promise.all(clients.map(({ status }) => status))
  const leave = async (): Promise<void> => {
    for (const { client } of clients) client.close()
    await expect.poll(async () => (await server.server.browserCounts())?.clients).toBe(0)
  }
  return { admitted: statuses.filter((status) => status === 101).length, statuses, leave }
}

describe('clients that come all at once', () => {
  it('are let into one session up to its bound, and the others are told 429', async () => {
    const { admitted, statuses, leave } = await arrivals(9, () => '?key=crowded')
    expect(admitted).toBe(3)
    expect(new Set(statuses)).toEqual(new Set([101, 429]))
    await leave()
    await closeSessions()
  })

  it('are let into one browser up to its bound, with and without a key', async () => {
    const without = await arrivals(12, () => '')
    expect(without.admitted).toBe(6)
    expect(new Set(without.statuses)).toEqual(new Set([101, 429]))
    await without.leave()
    // Those who were refused left no session behind.
    await expect.poll(async () => (await openSessions()).length).toBe(0)
    const crowd = await arrivals(12, (n) => `?key=${n % 4}`)
    expect(crowd.admitted).toBe(8)
    await crowd.leave()
    await closeSessions()
  })
})

async function openSessions() {
  return (await server.holdfast.list({ state: 'open' })).sessions
}

async function closeSessions(): Promise<void> {
  for (const { id } of await openSessions()) await server.holdfast.session(id).close()
  await expect.poll(async () => (await server.server.browserCounts())?.sessions).toBe(0)
}
