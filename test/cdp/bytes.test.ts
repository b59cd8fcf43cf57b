/** More bytes than anybody can take at once: whoever sends them waits, and nobody else notices. */
import { afterEach, describe, expect, it } from 'vitest'
import { HeldConnection } from '../../src/cdp/index.ts'
import { serveCdp, type CdpServer, type CdpServerOptions } from '../support/cdp-server.ts'
import { browserPids } from '../support/browser-pids.ts'
import { RawCdp } from '../support/raw-cdp.ts'

let server: CdpServer

afterEach(() => server.close())

async function start(options: CdpServerOptions = {}): Promise<void> {
  server = await serveCdp(options)
}

type Page = { readonly client: RawCdp; readonly targetId: string; readonly sessionId: string }

async function openPage(query = ''): Promise<Page> {
  const client = await RawCdp.open(`${server.socketUrl}${query}`)
  const { targetId } = await client.send('Target.createTarget', { url: 'about:blank' })
  const { sessionId } = await client.send('Target.attachToTarget', { targetId, flatten: true })
  return { client, targetId: String(targetId), sessionId: String(sessionId) }
}

/** A large command, whose reply is small. */
function large(id: number, sessionId: string): string {
  const params = { expression: `'${'x'.repeat(CHARS)}'.length + ${id}` }
  return JSON.stringify({ id, method: 'Runtime.evaluate', params, sessionId })
}

/** Round trips one after the other, until told to stop; how many there were. */
function roundTrips({ client, sessionId }: Page): () => Promise<number> {
  let isOver = false
  const count = (async () => {
    for (let n = 0; ; n += 1) {
      if (isOver) return n
      const { result } = await client.send('Runtime.evaluate', { expression: `${n}` }, sessionId)
      expect(result.value).toBe(n)
    }
  })()
  return () => {
    isOver = true
    return count
  }
}

/** More than the line takes at once, in messages that are no larger than that. */
const TIGHT: CdpServerOptions = {
  browserLimits: { unreadBytesMax: 500_000 },
  cdpLimits: { underwayBytesMax: 200_000, signBytes: 50_000, messageBytesMax: 1_000_000 },
}
const CHARS = 200_000
const FLOOD = Array.from({ length: 30 }, (_, n) => 1_000 + n)

describe('a client that sends more than the browser can take', () => {
  it('waits until the browser has it, gets every reply, and makes nobody else wait', async () => {
    await start(TIGHT)
    const [flooder, other] = [await openPage(), await openPage()]
    const stop = roundTrips(other)
    for (const id of FLOOD) flooder.client.say(large(id, flooder.sessionId))
    await flooder.client.until(({ id }) => id === FLOOD.at(-1))
    expect(await stop()).toBeGreaterThan(3)
    const replies = flooder.client.messages.filter(({ id }) => id >= 1_000)
    expect(replies.map(({ result }) => result.result.value as unknown)).toEqual(
      FLOOD.map((id) => CHARS + id),
    )
    for (const { client } of [flooder, other]) client.close()
  })

  it('may be one that comes back: it waits just so', async () => {
    await start(TIGHT)
    const other = await openPage('?key=both')
    const held = await HeldConnection.open(server.url, { key: 'both' })
    const replies: { id?: number; result?: any }[] = []
    const done = new Promise<void>((resolve) => {
      held.onMessage = (text) => {
        const message = JSON.parse(text) as (typeof replies)[number]
        if (message.id === 1) flood(message.result.sessionId)
        if ((message.id ?? 0) >= 1_000) replies.push(message)
        if (message.id === FLOOD.at(-1)) resolve()
      }
    })
    const flood = (sessionId: string): void => {
      for (const id of FLOOD) held.send(large(id, sessionId))
      held.drop()
    }
    const stop = roundTrips(other)
    const params = { targetId: other.targetId, flatten: true }
    held.send(JSON.stringify({ id: 1, method: 'Target.attachToTarget', params }))
    await done
    expect(await stop()).toBeGreaterThan(3)
    expect(replies.map(({ id }) => id)).toEqual(FLOOD)
    held.close()
    other.client.close()
  })

  it('does not hide that the browser reads no more', async () => {
    await start({ browserLimits: { healthMs: 100, healthAnswerMs: 1_000 } })
    const [flooder, other] = [await openPage(), await openPage()]
    for (const pid of browserPids()) process.kill(pid, 'SIGSTOP')
    for (const id of FLOOD) flooder.client.say(large(id, flooder.sessionId))
    expect(await flooder.client.closed).toBe(4520)
    expect(await other.client.closed).toBe(4520)
    await expect.poll(() => browserPids()).toEqual([])
    const next = await openPage()
    next.client.close()
  })

  it('is refused what would grow too large on its way, and may send the largest', async () => {
    await start(TIGHT)
    const { client } = await openPage()
    // Four characters become twenty-one.
    const growing = `{"url":"about:blank","x":[${'1e20,'.repeat(50_000)}1]}`
    client.say(`{"id":7,"method":"Target.createTarget","params":${growing}}`)
    expect((await client.until(({ id }) => id === 7))['error'].code).toBe(-32600)
    const largest = { unknown: 'x'.repeat(999_900) }
    expect((await client.send('Browser.getVersion', largest)).product).toMatch(/Chrome/)
    client.close()
  })
})

describe('what is too large to be passed on', () => {
  it('is an error for the one who asked for it, and nothing for anybody else', async () => {
    await start({ browserLimits: { messageBytesMax: 2_000_000 } })
    const [client, other] = [await openPage(), await openPage()]
    const evaluate = (expression: string) =>
      client.client.ask('Runtime.evaluate', { expression }, client.sessionId)
    for (const chars of [1_000_000, 5_000_000, 1_000_001, 20_000_000, 1_000_002]) {
      const { result, error } = await evaluate(`'x'.repeat(${chars})`)
      if (chars < 2_000_000) expect(result.result.value).toHaveLength(chars)
      else expect(error).toMatchObject({ code: -32000, message: expect.stringContaining('large') })
    }
    expect((await other.client.send('Browser.getVersion')).product).toMatch(/Chrome/)
    for (const each of [client, other]) each.client.close()
  })

  it('ends the session that an event of that size was for, and no other', async () => {
    await start({ browserLimits: { messageBytesMax: 2_000_000 } })
    const { client, targetId, sessionId } = await openPage()
    const second = await client.send('Target.attachToTarget', { targetId, flatten: true })
    await client.send('Runtime.enable', {}, sessionId)
    await client.send('Runtime.addBinding', { name: 'tell' }, sessionId)
    const expression = `tell('x'.repeat(5e6)); 1 + 1`
    const told = await client.send('Runtime.evaluate', { expression }, second.sessionId)
    expect(told.result.value).toBe(2)
    const gone = await client.until(({ method }) => method === 'Target.detachedFromTarget')
    expect(gone['params']).toMatchObject({ sessionId, targetId })
    expect(client.events('Inspector.detached')).toEqual([
      { method: 'Inspector.detached', params: { reason: 'message_too_large' }, sessionId },
    ])
    const { error } = await client.ask('Runtime.evaluate', { expression: '1' }, sessionId)
    expect(error.code).toBe(-32001)
    client.close()
  })

  it('ends a client that is connected to the page itself, and says why', async () => {
    await start({ browserLimits: { messageBytesMax: 2_000_000 } })
    const other = await openPage('?key=page')
    const page = await RawCdp.open(`${server.socketUrl}/devtools/page/${other.targetId}?key=page`)
    const reason = new Promise((resolve) => {
      page.socket.on('close', (_, text: Buffer) => resolve(text.toString()))
    })
    await page.send('Runtime.enable')
    await page.send('Runtime.addBinding', { name: 'tell' })
    await other.client.send(
      'Runtime.evaluate',
      { expression: `tell('x'.repeat(5e6))` },
      other.sessionId,
    )
    expect(await page.closed).toBe(1009)
    expect(await reason).toBe('message_too_large')
    expect((await other.client.send('Browser.getVersion')).product).toMatch(/Chrome/)
    other.client.close()
  })
})
