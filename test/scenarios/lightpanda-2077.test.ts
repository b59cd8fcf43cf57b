/**
 * Lightpanda #2077: `Target.attachToTarget` returned the session that was there already. Playwright
 * put a new session in the place of the page's own, whose replies nobody awaited any more: the next
 * `goto` ended in `assert(!object.id)`. The report's four lines, on a double that has the bug (and
 * on one that has what is left of it since), bare and through Holdfast.
 */
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runGuarded } from '../support/guarded.ts'
import { startBareChromium, type BareChromium } from '../support/bare-chromium.ts'
import { serveCdp, Site } from '../support/cdp-server.ts'
import { LightpandaDouble, type Quirk } from '../support/lightpanda-double.ts'
import { someOf, trafficUnderTest } from '../support/nodes-under-test.ts'
import { RawCdp } from '../support/raw-cdp.ts'

const QUIRKS = someOf<Quirk>(['before', 'since'])

let bare: BareChromium
let site: Site

beforeAll(async () => {
  ;[bare, site] = await Promise.all([startBareChromium(), new Site().start()])
})
afterAll(async () => {
  await Promise.all([bare.close(), site.close()])
})

const PROGRAM = fileURLToPath(new URL('../support/lightpanda-scenario.mjs', import.meta.url))

type Outcome = { readonly said: readonly string[]; readonly failed: boolean; readonly why: string }

/** Runs the report's lines; the one that attaches, as often as is wanted. */
async function scenario(address: string, attaches: number): Promise<Outcome> {
  const args = [PROGRAM, address, site.url, String(attaches)]
  const ended = await runGuarded(process.execPath, args, { limitMs: 100_000 }).then(
    ({ stdout }) => ({ failed: false, stdout, stderr: '' }),
    (error: { stdout: string; stderr: string }) => ({ ...error, failed: true }),
  )
  return { said: ended.stdout.trim().split('\n'), failed: ended.failed, why: ended.stderr }
}

/** What is said when all is well. */
function allWell(attaches: number): readonly string[] {
  const sessions = Array.from({ length: attaches - 1 }, (_, n) => `session says ${n + 1}`)
  return ['first goto', ...sessions, 'second goto: /other']
}

describe.each(QUIRKS)('a backend as Lightpanda was %s #2077', (quirk) => {
  // Without Holdfast there are no nodes.
  it.runIf(trafficUnderTest() === null)('breaks Playwright when it is used bare', async () => {
    const double = await LightpandaDouble.start(bare.socketUrl, quirk)
    const { said, failed, why } = await scenario(double.url, 2)
    await double.close()
    expect(failed).toBe(true)
    expect(said).toContain('first goto')
    expect(said).not.toContain('second goto: /other')
    expect(why).toContain('Assertion error')
  })

  it('works through Holdfast, with any number of sessions', async () => {
    const double = await LightpandaDouble.start(bare.socketUrl, quirk)
    const server = await serveCdp({ browsers: { chromium: { address: double.url, repair: true } } })
    const { said, why } = await scenario(server.url, 12)
    await server.close()
    await double.close()
    expect(said, why).toEqual(allWell(12))
  })
})

describe.each(QUIRKS)('sessions on a backend as it was %s', (quirk) => {
  it('have their own domains, events and clients, although the backend has not', async () => {
    const double = await LightpandaDouble.start(bare.socketUrl, quirk)
    const server = await serveCdp({ browsers: { chromium: { address: double.url, repair: true } } })
    const [client, other] = [
      await RawCdp.open(server.socketUrl),
      await RawCdp.open(server.socketUrl),
    ]
    const { targetId } = await client.send('Target.createTarget', { url: 'about:blank' })
    const { targetId: foreign } = await other.send('Target.createTarget', { url: 'about:blank' })
    const attach = { targetId, flatten: true }
    const sessions = await Promise.all(
      [1, 2, 3].map(() => client.send('Target.attachToTarget', attach)),
    )
    const [one, two, three] = sessions.map(({ sessionId }) => sessionId as string)
    await client.send('Page.enable', {}, one)
    await client.send('Network.enable', {}, one)
    await client.send('Runtime.enable', {}, one)
    await client.send('Runtime.enable', {}, two)
    await client.send('Page.navigate', { url: `${site.url}/page` }, two)
    await client.until(({ method }) => method === 'Page.loadEventFired')
    const heard = (session: string | undefined): Set<unknown> =>
      new Set(
        client.messages
          .filter(({ sessionId, method }) => sessionId === session && method !== undefined)
          .map(({ method }) => String(method).split('.')[0]),
      )
    expect(heard(one)).toEqual(new Set(['Page', 'Network', 'Runtime']))
    expect(heard(two)).toEqual(new Set(['Runtime']))
    expect(heard(three)).toEqual(new Set())
    const names = [one, two, three, targetId, foreign]
    expect(new Set(names).size).toBe(5)
    for (const name of names) expect(name).toMatch(/^[0-9A-F]{32}$/)
    expect(await client.ask('Target.attachToTarget', { targetId: foreign })).toHaveProperty('error')
    await client.send('Target.detachFromTarget', { sessionId: one })
    const { result } = await client.send('Runtime.evaluate', { expression: '2' }, three)
    expect(result.value).toBe(2)
    expect(JSON.stringify(client.messages)).not.toMatch(/"(B?SID|FID|BID)-/)
    client.close()
    other.close()
    await server.close()
    await double.close()
  })
})

describe('a backend that does it right', () => {
  it('passes bare and through Holdfast', async () => {
    const server = await serveCdp({ browsers: { chromium: { address: bare.socketUrl } } })
    const ended = await Promise.all([scenario(bare.socketUrl, 3), scenario(server.url, 12)])
    expect(ended.map(({ said }) => said)).toEqual([allWell(3), allWell(12)])
    await server.close()
  })
})
