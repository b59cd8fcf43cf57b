/** More bytes than anybody can take at once: whoever sends them waits, and nobody else notices. */
import { afterEach, describe, expect, it } from 'vitest'
import { HeldConnection } from '../../src/cdp/index.ts'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'
import type { TestServerOptions } from '../support/server.ts'
import { browserPids } from '../support/browser-pids.ts'
import { RawCdp } from '../support/raw-cdp.ts'

let server: CdpServer

afterEach(() => server.close())

async function start(options: TestServerOptions = {}): Promise<void> {
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

/** Large commands without end, always so many at once: each reply is answered with one more. */
class Flood {
  readonly values: unknown[] = []
  /** Resolves at the first reply. */
  readonly begun: Promise<void>
  readonly #send: (id: number) => void
  #isOver = false
  #sent = 0
  #onBegun!: () => void
  #onLast: () => void = () => undefined

  constructor(send: (id: number) => void) {
    this.#send = send
    this.begun = new Promise((resolve) => {
      this.#onBegun = resolve
    })
    for (let n = 0; n < WINDOW; n += 1) this.#sendNext()
  }

  #sendNext(): void {
    this.#send(FIRST_ID + this.#sent)
    this.#sent += 1
  }

  take({ id, result }: { readonly id?: number; readonly result?: any }): void {
    if ((id ?? 0) < FIRST_ID) return
    this.values.push(result.result.value)
    this.#onBegun()
    if (!this.#isOver) this.#sendNext()
    if (this.values.length === this.#sent) this.#onLast()
  }

  /** Resolves when everything is answered. */
  async end(): Promise<void> {
    this.#isOver = true
    await new Promise<void>((resolve) => {
      this.#onLast = resolve
    })
  }

  /** What the replies must be: one for each command, in their order. */
  get expected(): unknown[] {
    return Array.from({ length: this.#sent }, (_, n) => CHARS + FIRST_ID + n)
  }
}

/**
 * Round trips one after the other, and how many of the flood's replies came meanwhile: that does not
 * depend on how fast anything is. The browser answers them by itself, however busy the pages are.
 */
async function overtakenBy(flood: Flood, { client, sessionId }: Page): Promise<number> {
  await flood.begun
  const before = flood.values.length
  for (let n = 0; n < ROUND_TRIPS; n += 1) {
    const { currentIndex } = await client.send('Page.getNavigationHistory', {}, sessionId)
    expect(currentIndex).toBe(0)
  }
  return flood.values.length - before
}

/** More than the line takes at once, in messages that are no larger than that. */
const TIGHT: TestServerOptions = {
  browserLimits: { unreadBytesMax: 500_000 },
  cdpLimits: { underwayBytesMax: 200_000, signBytes: 50_000, messageBytesMax: 1_000_000 },
}
const CHARS = 200_000
/** Of the flood's commands, which are answered in the end; others have smaller ids. */
const FIRST_ID = 1_000
/** How many of them are sent before the first of them is answered. */
const WINDOW = 30
const ROUND_TRIPS = 20
/** Each waits for what is on its way already, up to five of them; behind all it would wait for 30. */
const OVERTAKEN_MAX = 6 * ROUND_TRIPS

describe('a client that sends more than the browser can take', () => {
  it('waits until the browser has it, gets every reply, and makes nobody else wait', async () => {
    await start(TIGHT)
    const [flooder, other] = [await openPage(), await openPage()]
    const flood = new Flood((id) => flooder.client.say(large(id, flooder.sessionId)))
    flooder.client.socket.on('message', (text: Buffer) => flood.take(JSON.parse(text.toString())))
    expect(await overtakenBy(flood, other)).toBeLessThan(OVERTAKEN_MAX)
    await flood.end()
    expect(flood.values).toEqual(flood.expected)
    for (const { client } of [flooder, other]) client.close()
  })

  it('may be one that comes back: it waits just so', async () => {
    await start(TIGHT)
    const other = await openPage('?key=both')
    const held = await HeldConnection.open(server.url, { key: 'both' })
    const params = { targetId: other.targetId, flatten: true }
    const attached = new Promise<string>((resolve) => {
      held.onMessage = (text) => {
        const { id, result } = JSON.parse(text) as { id?: number; result?: any }
        if (id === 1) resolve(String(result.sessionId))
      }
    })
    held.send(JSON.stringify({ id: 1, method: 'Target.attachToTarget', params }))
    const sessionId = await attached
    const flood = new Flood((id) => held.send(large(id, sessionId)))
    held.onMessage = (text) => flood.take(JSON.parse(text))
    held.drop()
    expect(await overtakenBy(flood, other)).toBeLessThan(OVERTAKEN_MAX)
    await flood.end()
    expect(flood.values).toEqual(flood.expected)
    held.close()
    other.client.close()
  })

  it('does not hide that the browser reads no more', async () => {
    await start({ browserLimits: { healthMs: 100, healthAnswerMs: 5_000 } })
    const [flooder, other] = [await openPage(), await openPage()]
    for (const pid of browserPids()) process.kill(pid, 'SIGSTOP')
    for (let n = 0; n < WINDOW; n += 1) flooder.client.say(large(n, flooder.sessionId))
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
