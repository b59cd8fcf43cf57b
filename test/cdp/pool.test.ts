/** The browsers themselves: when they start, how they end, and how many there are. */
import { afterEach, describe, expect, it } from 'vitest'
import { startBareChromium } from '../support/bare-chromium.ts'
import { browserPids } from '../support/browser-pids.ts'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'
import type { TestServerOptions } from '../support/server.ts'
import { RawCdp } from '../support/raw-cdp.ts'

let server: CdpServer

afterEach(() => server.close())

async function start(options: TestServerOptions = {}): Promise<void> {
  server = await serveCdp(options)
}

async function running(): Promise<number | undefined> {
  return (await server.server.browserCounts())?.browsers
}

describe('a browser', () => {
  it('is started by the first who needs it, and only once', async () => {
    await start()
    expect(await running()).toBe(0)
    const clients = await Promise.all([1, 2, 3].map(() => RawCdp.open(server.socketUrl)))
    expect(await running()).toBe(1)
    expect(browserPids()).toHaveLength(1)
    for (const client of clients) client.close()
  })

  it('that crashes is replaced, and every client and session is told why', async () => {
    const told: string[] = []
    await start({ onDiagnostic: ({ code }) => void told.push(code) })
    const client = await RawCdp.open(`${server.socketUrl}?key=crash`)
    await client.send('Target.createTarget', { url: 'about:blank' })
    const { sessions } = await server.holdfast.list({ state: 'open' })
    for (const pid of browserPids()) process.kill(pid, 'SIGKILL')
    expect(await client.closed).toBe(4520)
    const { closed } = await server.holdfast.session(sessions[0]!.id).state()
    expect(closed?.reason).toBe('browser_gone')
    const next = await RawCdp.open(`${server.socketUrl}?key=crash`)
    const { targetInfos } = await next.send('Target.getTargets')
    expect(targetInfos).toMatchObject([{ url: 'about:blank' }])
    next.close()
    const ofBrowsers = told.filter((code) => /^browser_(started|ended)$/.test(code))
    expect(ofBrowsers).toEqual(['browser_started', 'browser_ended', 'browser_started'])
  })

  it('may be one for each session, which ends with it', async () => {
    await start({ browsers: { chromium: { program: 'chromium', own: true } } })
    const [one, other] = await Promise.all([1, 2].map(() => RawCdp.open(server.socketUrl)))
    expect(browserPids()).toHaveLength(2)
    expect(await other!.ask('Tracing.getCategories')).toHaveProperty('result')
    one!.close()
    await expect.poll(() => browserPids().length).toBe(1)
    expect((await other!.send('Browser.getVersion')).product).toMatch(/Chrome/)
    other!.close()
  })

  it('that does not answer any more is stopped, and its clients are told', async () => {
    await start({ browserLimits: { healthMs: 100, healthAnswerMs: 5_000 } })
    const client = await RawCdp.open(server.socketUrl)
    for (const pid of browserPids()) process.kill(pid, 'SIGSTOP')
    expect(await client.closed).toBe(4520)
    await expect.poll(() => browserPids()).toEqual([])
  })

  it('that takes too much memory is stopped, and its clients are told', async () => {
    await start({ browserLimits: { memoryMs: 50, memoryBytesMax: 600e6 } })
    const client = await RawCdp.open(server.socketUrl)
    const { targetId } = await client.send('Target.createTarget', { url: 'about:blank' })
    const { sessionId } = await client.send('Target.attachToTarget', { targetId, flatten: true })
    // Without end, but no faster than a busy machine looks: 1 GB in a second.
    const grow = `for (self.all = []; ; ) {
      self.all.push(new Uint8Array(1e7).fill(1))
      for (const until = performance.now() + 10; performance.now() < until;);
    }`
    const params = { expression: grow }
    client.say(JSON.stringify({ id: 9, method: 'Runtime.evaluate', sessionId, params }))
    expect(await client.closed).toBe(4520)
    await expect.poll(() => browserPids()).toEqual([])
  })

  it('that nobody uses is stopped', async () => {
    await start({ browserLimits: { idleMs: 50 } })
    const client = await RawCdp.open(server.socketUrl)
    const [pid = 0] = browserPids()
    client.close()
    await expect.poll(running).toBe(0)
    await expect.poll(() => browserPids().includes(pid)).toBe(false)
    const next = await RawCdp.open(server.socketUrl)
    expect((await next.send('Browser.getVersion')).product).toMatch(/Chrome/)
    next.close()
  })

  it('is refused beyond the bound, and when it cannot be started', async () => {
    await start({
      browsers: {
        chromium: { program: 'chromium' },
        second: { program: 'chromium' },
        missing: { program: '/nowhere/chromium' },
        silent: { program: '/bin/true' },
      },
      browserLimits: { runningMax: 1 },
    })
    const statusOf = async (name: string): Promise<unknown> => {
      const response = await fetch(`${server.server.url}/cdp/${name}/json/version`)
      const { code } = (await response.json()) as { code?: string }
      return [response.status, code]
    }
    expect(await statusOf('missing')).toEqual([503, 'browser_gone'])
    expect(await statusOf('silent')).toEqual([503, 'browser_gone'])
    const client = await RawCdp.open(server.socketUrl)
    expect(await statusOf('second')).toEqual([429, 'too_many'])
    client.close()
  })

  it('may be one that somebody else runs, by either of its addresses', async () => {
    const bare = await startBareChromium()
    const http = `http://${new URL(bare.socketUrl).host}`
    await start({ browsers: { chromium: { address: bare.socketUrl }, other: { address: http } } })
    const [one, two, other] = await Promise.all([
      RawCdp.open(server.socketUrl),
      RawCdp.open(server.socketUrl),
      RawCdp.open(server.socketUrl.replace(/chromium$/, 'other')),
    ])
    const { targetId } = await one.send('Target.createTarget', { url: 'about:blank' })
    const { sessionId } = await one.send('Target.attachToTarget', { targetId, flatten: true })
    const { result } = await one.send('Runtime.evaluate', { expression: '6 * 7' }, sessionId)
    expect(result.value).toBe(42)
    for (const stranger of [two, other]) {
      const { targetInfos } = await stranger.send('Target.getTargets')
      expect(targetInfos.map((info: any) => info.targetId as unknown)).not.toContain(targetId)
      expect(await stranger.ask('Target.closeTarget', { targetId })).toHaveProperty('error')
    }
    await bare.close()
    expect(await one.closed).toBe(4520)
  })

  it('ends with its server, and leaves no process', async () => {
    await start()
    const client = await RawCdp.open(server.socketUrl)
    const pids = browserPids()
    expect(pids).toHaveLength(1)
    await server.close()
    expect(await client.closed).toBeGreaterThan(1000)
    await expect.poll(() => browserPids()).toEqual([])
  })
})
