/**
 * The protocol's own rules: the same conversation with bare Chromium and through the door must be
 * the same, but for the names of things.
 */
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import { startBareChromium, type BareChromium } from '../support/bare-chromium.ts'
import { serveCdp, Site, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp, type Message } from '../support/raw-cdp.ts'

let server: CdpServer
let bare: BareChromium
let site: Site

beforeAll(async () => {
  site = await new Site().start()
  ;[server, bare] = await Promise.all([serveCdp(), startBareChromium()])
})
afterAll(async () => {
  await Promise.all([server.close(), bare.close(), site.close()])
})

/** Stands before Chromium and notes the names of sessions that it gives. */
async function startSpy(address: string) {
  const sessions = new Set<string>()
  const proxy = new WebSocketServer({ port: 0, host: '127.0.0.1' })
  await once(proxy, 'listening')
  proxy.on('connection', (socket) => {
    const upstream = new WebSocket(address)
    const isOpen = once(upstream, 'open')
    socket.on('message', (data: Buffer) => void isOpen.then(() => upstream.send(data.toString())))
    upstream.on('message', (data: Buffer) => {
      const text = data.toString()
      for (const [, name = ''] of text.matchAll(/"sessionId":"(\w+)"/g)) sessions.add(name)
      socket.send(text)
    })
    socket.on('close', () => upstream.close())
  })
  const { port } = proxy.address() as AddressInfo
  const close = async (): Promise<void> => {
    for (const socket of proxy.clients) socket.terminate()
    await new Promise((resolve) => proxy.close(resolve))
  }
  return { sessions, url: `ws://127.0.0.1:${port}/devtools/browser/spied`, close }
}

type Conversation = (client: RawCdp) => Promise<unknown>

async function both(talk: Conversation): Promise<{ chrome: unknown; door: unknown }> {
  const run = async (url: string): Promise<unknown> => {
    const client = await RawCdp.open(url)
    try {
      return named(await talk(client))
    } finally {
      client.close()
    }
  }
  return { chrome: await run(bare.socketUrl), door: await run(server.socketUrl) }
}

/** Every id of 32 hexadecimal digits by the order in which it first appears. */
function named(value: unknown): unknown {
  const names = new Map<string, string>()
  const text = JSON.stringify(value).replaceAll(/[0-9A-F]{32}/g, (id) => {
    if (!names.has(id)) names.set(id, `#${names.size + 1}`)
    return names.get(id) ?? ''
  })
  return JSON.parse(text)
}

/** What is sent, and the first thing that is answered. */
function probe(text: string): Conversation {
  return async (client) => {
    client.say(text)
    return client.until(() => true)
  }
}

async function newPage(client: RawCdp, url = 'about:blank') {
  const { targetId } = await client.send('Target.createTarget', { url })
  const { sessionId } = await client.send('Target.attachToTarget', { targetId, flatten: true })
  return { targetId: targetId as string, sessionId: sessionId as string }
}

/** Errors, replies and events by what a client branches on. */
function outline({ id, method, params, error, result, sessionId }: Message): object {
  return {
    ...(id === undefined ? {} : { id }),
    ...(method === undefined ? {} : { method }),
    ...(sessionId === undefined ? {} : { sessionId }),
    ...(error === undefined ? {} : { code: error.code }),
    ...(result === undefined ? {} : { result }),
    ...(params?.sessionId === undefined ? {} : { about: params.sessionId }),
  }
}

describe('a message', () => {
  it.each([
    ['that is no JSON', '{"id":1,'],
    ['that is a number', '7'],
    ['without an id', '{"method":"Browser.getVersion"}'],
    ['with a fractional id', '{"id":1.5,"method":"Browser.getVersion"}'],
    ['with an id that is too large', '{"id":4294967296,"method":"Browser.getVersion"}'],
    ['with a text for its id', '{"id":"1","method":"Browser.getVersion"}'],
    ['without a method', '{"id":1}'],
    ['with a number for its session', '{"id":1,"method":"Browser.getVersion","sessionId":1}'],
    ['with another key', '{"id":1,"method":"Browser.getVersion","more":1}'],
    ['in a session that is not there', '{"id":1,"method":"Page.enable","sessionId":"0"}'],
    ['of an unknown method', '{"id":1,"method":"Nothing.here"}'],
    ['of an unknown method of a known domain', '{"id":1,"method":"Target.nothing"}'],
    ['for a page, sent to the browser', '{"id":1,"method":"Page.enable"}'],
    ['about an unknown target', '{"id":1,"method":"Target.closeTarget","params":{"targetId":"0"}}'],
    ['with wrong params', '{"id":1,"method":"Target.createTarget","params":{"url":7}}'],
  ])('%s is answered as Chrome answers it', async (_, text) => {
    const { chrome, door } = await both(async (client) =>
      outline((await probe(text)(client)) as Message),
    )
    expect(door).toEqual(chrome)
  })

  it('may have its keys in any order, a negative id, and a large body', async () => {
    const { chrome, door } = await both(async (client) => {
      const { sessionId } = await newPage(client)
      const [long, id] = [`"é\\"${'x'.repeat(100_000)}"`, -2_147_483_648]
      const params = { params: { expression: `${long}.length` } }
      const text = JSON.stringify({ method: 'Runtime.evaluate', ...params, sessionId, id })
      client.say(text)
      return client.until((message) => message['id'] === id)
    })
    expect(door).toEqual(chrome)
    expect(JSON.stringify(door)).toContain('100002')
  })

  it('closes the connection if it is binary', async () => {
    const client = await RawCdp.open(server.socketUrl)
    client.say(Buffer.from('{"id":1,"method":"Browser.getVersion"}'))
    expect(await client.closed).toBe(1003)
  })
})

describe('a session', () => {
  it('is announced before the reply, and ended before the reply', async () => {
    const { chrome, door } = await both(async (client) => {
      const { targetId } = await client.send('Target.createTarget', { url: 'about:blank' })
      const { sessionId } = await client.send('Target.attachToTarget', { targetId, flatten: true })
      await client.send('Target.detachFromTarget', { sessionId })
      await client.ask('Page.enable', {}, sessionId)
      return client.messages.map(outline)
    })
    expect(door).toEqual(chrome)
  })

  it('belongs to the session that attached it, which alone may detach it', async () => {
    const { chrome, door } = await both(async (client) => {
      const { targetId, sessionId } = await newPage(client)
      const inner = await client.send(
        'Target.attachToTarget',
        { targetId, flatten: true },
        sessionId,
      )
      await client.ask('Target.detachFromTarget', { sessionId: inner.sessionId })
      await client.send('Target.detachFromTarget', { sessionId })
      await client.ask('Page.enable', {}, inner.sessionId)
      return client.messages.map(outline)
    })
    expect(door).toEqual(chrome)
  })

  it('is only flat', async () => {
    const client = await RawCdp.open(server.socketUrl)
    const { targetId, sessionId } = await newPage(client)
    const autoAttach = { autoAttach: true, waitForDebuggerOnStart: false }
    const message = '{"id":7,"method":"Page.enable"}'
    const refused = [
      await client.ask('Target.attachToTarget', { targetId }),
      await client.ask('Target.setAutoAttach', autoAttach, sessionId),
      await client.ask('Target.sendMessageToTarget', { sessionId, message }),
    ]
    expect(refused.map(({ error }) => error.code)).toEqual([-32602, -32602, -32601])
    expect(refused[0]?.['error'].message).toContain('set flatten to true')
    client.close()
  })

  it('ends with its target, and every one of its sessions is told', async () => {
    const { chrome, door } = await both(async (client) => {
      const { targetId } = await newPage(client)
      await client.send('Target.attachToTarget', { targetId, flatten: true })
      await client.send('Target.closeTarget', { targetId })
      const isDetached = ({ method }: Message): boolean => method === 'Target.detachedFromTarget'
      await client.until(() => client.messages.filter(isDetached).length === 2)
      return client.messages.filter(isDetached).map(outline)
    })
    expect(door).toEqual(chrome)
  })

  it('has its own domains, its own events, and workers and frames of its own', async () => {
    site.pages['/work'] = '<script>new Worker("/worker.js")</script>'
    site.pages['/worker.js'] = 'postMessage(1)'
    const { chrome, door } = await both(async (client) => {
      const { targetId, sessionId } = await newPage(client)
      const { sessionId: quiet } = await client.send('Target.attachToTarget', {
        targetId,
        flatten: true,
      })
      const autoAttach = { autoAttach: true, waitForDebuggerOnStart: false, flatten: true }
      await client.send('Target.setAutoAttach', autoAttach, sessionId)
      await client.send('Network.enable', {}, sessionId)
      await client.send('Page.enable', {}, sessionId)
      await client.send('Page.navigate', { url: `${site.url}/work` }, sessionId)
      const isWorker = ({ method, params }: Message): boolean =>
        method === 'Target.attachedToTarget' && params.targetInfo.type === 'worker'
      const { params } = await client.until(isWorker)
      await client.until(({ method }) => method === 'Page.loadEventFired')
      const expression = 'typeof importScripts'
      const value = await client.send('Runtime.evaluate', { expression }, params.sessionId)
      const heard = client.messages.filter((message) => message['sessionId'] === quiet)
      const events = client.messages.filter((message) => message['sessionId'] === sessionId)
      const methods = new Set(events.map(({ method }) => method as unknown))
      return { value, heard, sent: methods.has('Network.requestWillBeSent') }
    })
    expect(door).toEqual(chrome)
    expect(door).toMatchObject({ heard: [], sent: true })
  })

  it('has a name that the browser never gave, and the browser’s own stays here', async () => {
    const spy = await startSpy(bare.socketUrl)
    const spied = await serveCdp({ browsers: { chromium: { address: spy.url } } })
    const client = await RawCdp.open(spied.socketUrl)
    site.pages['/work'] = '<script>new Worker("/worker.js")</script>'
    const { targetId, sessionId } = await newPage(client, `${site.url}/work`)
    const autoAttach = { autoAttach: true, waitForDebuggerOnStart: false, flatten: true }
    await client.send('Target.setAutoAttach', autoAttach, sessionId)
    await client.until(({ params }) => params?.targetInfo?.type === 'worker')
    const attach = { targetId, flatten: true }
    for (const parent of [undefined, sessionId]) {
      await client.send('Target.attachToTarget', attach)
      await client.ask('Target.attachToTarget', attach, parent)
    }
    await client.send('Target.closeTarget', { targetId })
    await client.until(({ method }) => method === 'Target.detachedFromTarget')
    expect(spy.sessions.size).toBeGreaterThan(5)
    const told = JSON.stringify(client.messages)
    expect([...spy.sessions].filter((name) => told.includes(name))).toEqual([])
    client.close()
    await spied.close()
    await spy.close()
  })

  it('survives hundreds of others that come and go, and nothing of them stays', async () => {
    const client = await RawCdp.open(server.socketUrl)
    const { targetId, sessionId } = await newPage(client)
    const names = new Set<string>()
    for (let round = 0; round < 10; round += 1) {
      const attached = await Promise.all(
        Array.from({ length: 30 }, () =>
          client.send('Target.attachToTarget', { targetId, flatten: true }),
        ),
      )
      for (const session of attached) names.add(session.sessionId)
      const values = await Promise.all(
        attached.map((session, n) =>
          client.send('Runtime.evaluate', { expression: `${n}` }, session.sessionId),
        ),
      )
      expect(values.map(({ result }) => result.value)).toEqual(attached.map((__, n) => n))
      await Promise.all(attached.map((session) => client.send('Target.detachFromTarget', session)))
    }
    expect(names.size).toBe(300)
    const { result } = await client.send('Runtime.evaluate', { expression: '1' }, sessionId)
    expect(result.value).toBe(1)
    client.close()
  })
})
