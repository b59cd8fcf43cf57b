/**
 * The CDP door against Chromium itself and against a proxy that reads nothing, in one run: round
 * trips one at a time and 64 in flight, large replies and large commands, processor time, memory.
 */
import { WebSocket } from 'ws'
import { startBareChromium } from '../test/support/bare-chromium.ts'
import { Child } from './child.ts'
import { drive, percentile, type Usage } from './measure.ts'
import type { Results } from './results.ts'

const IN_FLIGHT = 64
const LARGE_CHARS = 5_000_000

export type CdpBench = {
  readonly seconds: number
  readonly rounds: number
  readonly results: Results
}

type Message = { readonly id?: number; readonly result?: Readonly<Record<string, string>> }

/** One page, over one socket. */
class Page {
  readonly #socket: WebSocket
  readonly #pending = new Map<number, (message: Message) => void>()
  #id = 0
  #session: string | undefined

  constructor(url: string) {
    this.#socket = new WebSocket(url, { perMessageDeflate: false, maxPayload: 0 })
    this.#socket.on('message', (data: Buffer) => {
      // A large one is not parsed: this is not about the client.
      if (data.length > 1_000_000) return this.#settle(Number(idOf(data)), {})
      const message = JSON.parse(data.toString()) as Message
      this.#settle(message.id ?? 0, message)
    })
  }

  #settle(id: number, message: Message): void {
    this.#pending.get(id)?.(message)
    this.#pending.delete(id)
  }

  static async open(url: string): Promise<Page> {
    const page = new Page(url)
    await new Promise((resolve, reject) => {
      page.#socket.once('open', resolve)
      page.#socket.once('error', reject)
    })
    const created = await page.#ask('Target.createTarget', { url: 'about:blank' })
    const targetId = created.result?.['targetId']
    const attached = await page.#ask('Target.attachToTarget', { targetId, flatten: true })
    page.#session = attached.result?.['sessionId']
    return page
  }

  #ask(method: string, params: object): Promise<Message> {
    this.#id += 1
    const [id, sessionId] = [this.#id, this.#session]
    this.#socket.send(JSON.stringify({ id, method, params, sessionId }))
    return new Promise((resolve) => this.#pending.set(id, resolve))
  }

  evaluate(expression: string): Promise<Message> {
    return this.#ask('Runtime.evaluate', { expression })
  }

  close(): void {
    this.#socket.close()
  }
}

function idOf(data: Buffer): string {
  return /"id":(\d+)/.exec(data.toString('latin1', 0, 40))?.[1] ?? ''
}

type Figures = {
  readonly p50: number
  readonly perSecond: number
  readonly down: number
  readonly up: number
  readonly cpuMicros: number
  readonly grownBytes: number
}

const PLACES = ['Chromium', 'raw proxy', 'Holdfast'] as const

async function measure(url: string, seconds: number, child: Child | null): Promise<Figures> {
  const usage = async (): Promise<Usage> =>
    child === null ? { cpuMicros: 0, lagP99: 0, rss: 0 } : child.ask<Usage>('usage')
  const page = await Page.open(url)
  await drive(1, 0.3, () => page.evaluate('1+1'))
  const before = await usage()
  const single = await drive(1, seconds, () => page.evaluate('1+1'))
  const { cpuMicros } = await usage()
  const many = await drive(IN_FLIGHT, seconds, () => page.evaluate('1+1'))
  const large = `'x'.repeat(${LARGE_CHARS})`
  const down = await drive(1, seconds, () => page.evaluate(large))
  const text = `'${'x'.repeat(LARGE_CHARS)}'.length`
  const up = await drive(1, seconds, () => page.evaluate(text))
  const after = await usage()
  page.close()
  return {
    p50: percentile(single.latencies, 0.5),
    perSecond: many.turns / many.seconds,
    down: percentile(down.latencies, 0.5),
    up: percentile(up.latencies, 0.5),
    cpuMicros: cpuMicros / single.turns,
    grownBytes: after.rss - before.rss,
  }
}

function describe(name: string, { p50, perSecond, down, up, cpuMicros }: Figures): string {
  return [
    `  ${name.padEnd(10)} p50 ${(p50 * 1_000).toFixed(0)} µs`,
    `${IN_FLIGHT} in flight ${Math.round(perSecond).toLocaleString('en')}/s`,
    `5 MB down ${down.toFixed(0)} ms, up ${up.toFixed(0)} ms`,
    `CPU ${cpuMicros.toFixed(1)} µs`,
  ].join(', ')
}

export async function benchCdp({ seconds, rounds, results }: CdpBench): Promise<void> {
  console.log(
    '\nCDP: round trips of 1+1 and large messages, direct, through a raw proxy, and here:',
  )
  const bare = await startBareChromium()
  const proxy = new Child('cdp-raw-proxy', [bare.socketUrl])
  const holdfast = new Child('cdp-holdfast', [])
  const places = {
    Chromium: { url: bare.socketUrl, child: null },
    'raw proxy': { url: await proxy.next<string>(), child: proxy },
    Holdfast: { url: await holdfast.next<string>(), child: holdfast },
  }
  const figures: Record<(typeof PLACES)[number], Figures[]> = {
    Chromium: [],
    'raw proxy': [],
    Holdfast: [],
  }
  try {
    for (let round = 0; round < rounds; round += 1) {
      for (const place of PLACES) {
        const { url, child } = places[place]
        const measured = await measure(url, seconds, child)
        figures[place].push(measured)
        console.log(describe(place, measured))
      }
    }
  } finally {
    await proxy.stop()
    await holdfast.stop()
    await bare.close()
  }
  judge(figures, results)
}

/** The median over the rounds of Holdfast's figure by the raw proxy's of the same round. */
function judge(
  figures: Record<(typeof PLACES)[number], readonly Figures[]>,
  results: Results,
): void {
  const ratios = (place: 'Chromium' | 'raw proxy', name: keyof Figures): readonly number[] =>
    figures.Holdfast.map((ours, n) => ours[name] / (figures[place][n]?.[name] ?? ours[name]))
  results.judge('CDP round trip, of direct Chromium', ratios('Chromium', 'p50'), { most: 1.2 })
  results.judge('CDP round trip, of a raw proxy', ratios('raw proxy', 'p50'), { most: 1.1 })
  const inFlight = `CDP commands, ${IN_FLIGHT} in flight`
  results.judge(`${inFlight}, of direct Chromium`, ratios('Chromium', 'perSecond'), { least: 1 })
  results.judge(`${inFlight}, of a raw proxy`, ratios('raw proxy', 'perSecond'), { least: 0.9 })
  results.judge('CDP 5 MB down, time of direct Chromium', ratios('Chromium', 'down'), { most: 1 })
  results.judge('CDP 5 MB up, time of direct Chromium', ratios('Chromium', 'up'), { most: 1 })
  const grown = Math.min(...figures.Holdfast.slice(1).map(({ grownBytes }) => grownBytes)) / 1e6
  if (figures.Holdfast.length > 1)
    results.judge('CDP memory grown in a round, MB', grown, { most: 50 })
}
