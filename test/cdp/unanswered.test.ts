/** What would get no answer of the browser, and who waits for too many: neither waits for ever. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp } from '../support/raw-cdp.ts'

let server: CdpServer

beforeAll(async () => {
  const cdpLimits = { pendingMax: 20, pendingTargetMax: 5, pendingBytesMax: 1_000_000 }
  server = await serveCdp({ cdpLimits })
})
afterAll(() => server.close())

async function openPage() {
  const client = await RawCdp.open(server.socketUrl)
  const { targetId } = await client.send('Target.createTarget', { url: 'about:blank' })
  const { sessionId } = await client.send('Target.attachToTarget', { targetId, flatten: true })
  return { client, targetId: String(targetId), sessionId: String(sessionId) }
}

async function waiting(): Promise<number | undefined> {
  return (await server.server.browserCounts())?.waiting
}

const LIST = (depth: number): string => `${'['.repeat(depth)}${']'.repeat(depth)}`

describe('what Chromium would answer without an id', () => {
  it.each([
    ['deep lists', LIST(300), 'JSON: stack limit exceeded'],
    ['very deep lists', LIST(200_000), 'JSON: stack limit exceeded'],
    ['deep objects', `${'{"a":'.repeat(299)}1${'}'.repeat(299)}`, 'JSON: stack limit exceeded'],
    ['a number without end', '1e999', 'JSON: invalid number'],
    ['a number of many digits', '1'.repeat(400), 'JSON: invalid number'],
  ])('is refused to the one who asked: %s', async (_, value, message) => {
    const { client, sessionId } = await openPage()
    const params = `{"expression":"1","x":${value}}`
    const error = { code: -32700, message }
    client.say(
      `{"id":90,"method":"Runtime.evaluate","sessionId":"${sessionId}","params":${params}}`,
    )
    expect(await client.until(({ id }) => id === 90)).toEqual({ id: 90, error, sessionId })
    client.say(`{"params":${params},"id":91,"method":"Schema.getDomains"}`)
    expect(await client.until(({ id }) => id === 91)).toEqual({ id: 91, error })
    // A name with an escape, so that it is taken apart.
    client.say(`{"id":92,"m\\u0065thod":"Schema.getDomains","params":${params}}`)
    expect(await client.until(({ id }) => id === 92)).toEqual({ id: 92, error })
    expect(await waiting()).toBe(0)
    client.close()
  })

  it('is not refused as long as Chromium takes it', async () => {
    const { client, sessionId } = await openPage()
    const values = [LIST(299), '1.7976931348623157e308', '1e-999', '"\\ud800"', '"\\u0000"']
    for (const [n, value] of values.entries()) {
      const params = `{"expression":"${n}","x":${value},"x":${value}}`
      client.say(
        `{"id":${90 + n},"method":"Runtime.evaluate","params":${params},"sessionId":"${sessionId}"}`,
      )
      const { result } = await client.until(({ id }) => id === 90 + n)
      expect(result.result.value).toBe(n)
    }
    client.close()
  })

  it('does not take the memory of the server, however large it is', async () => {
    const [client, other] = [await openPage(), await openPage()]
    const before = process.memoryUsage().heapTotal
    for (const [id, method, value] of [
      [90, 'Runtime.evaluate', LIST(10_000_000)],
      [91, 'Browser.getVersion', `[${'{},'.repeat(7_000_000)}1]`],
    ] as const) {
      client.client.say(`{"id":${id},"method":"${method}","params":{"x":${value}}}`)
      const { error } = await client.client.until((message) => message['id'] === id)
      expect([-32700, -32600]).toContain(error.code)
      expect((await other.client.send('Browser.getVersion')).product).toMatch(/Chrome/)
    }
    // Taken apart these are some 500 MB each.
    expect(process.memoryUsage().heapTotal - before).toBeLessThan(200_000_000)
    for (const each of [client, other]) each.client.close()
  })
})

describe('who waits for too much', () => {
  /** A page that answers nothing more. */
  async function hungPage() {
    const page = await openPage()
    const hang = { expression: 'for (;;);' }
    const say = (id: number, params: object): void => {
      const command = { id, method: 'Runtime.evaluate', params, sessionId: page.sessionId }
      page.client.say(JSON.stringify(command))
    }
    say(100, hang)
    return { ...page, say }
  }

  it('in bytes is refused large commands, and can still end what it waits for', async () => {
    const { client, targetId, say } = await hungPage()
    for (const id of [101, 102, 103, 104]) say(id, { expression: 'x'.repeat(400_000) })
    const { error } = await client.until(({ id }) => id === 104)
    expect(error).toMatchObject({ code: -32000, message: expect.stringContaining('bytes') })
    expect(await client.send('Target.closeTarget', { targetId })).toEqual({ success: true })
    await client.until(({ method }) => method === 'Target.detachedFromTarget')
    await expect.poll(waiting).toBe(0)
    client.close()
  })

  it('in commands is refused more of them, and can still end what it waits for', async () => {
    const { client, targetId, say } = await hungPage()
    for (let id = 101; id < 125; id += 1) say(id, { expression: '1' })
    const { error } = await client.until(({ id }) => id === 124)
    expect(error).toMatchObject({ code: -32000, message: expect.stringContaining('commands') })
    expect(await client.send('Target.closeTarget', { targetId })).toEqual({ success: true })
    await client.until(({ method }) => method === 'Target.detachedFromTarget')
    await expect.poll(waiting).toBe(0)
    client.close()
  })
})
