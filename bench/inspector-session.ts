/**
 * One session in the inspector, in Chromium: how soon a conversation of many turns shows its end, what
 * reading it from the end to its beginning costs, and whether the page keeps up with a fast agent.
 */
import { builtinAgents, openHoldfast, type Agent, type Holdfast } from 'holdfast'
import { startServer, type HoldfastServer } from 'holdfast/server'
import type { CDPSession, Page } from 'playwright-core'
import { launchChromium } from '../test/support/chromium.ts'
import type { Results } from './results.ts'

export type InspectorBench = {
  readonly folder: string
  readonly seconds: number
  readonly rounds: number
  readonly results: Results
}

const DELTAS_PER_SECOND = 1_000
/** Of the answer that is streamed, a part at a time. */
const PARTS = [
  'The ',
  '**lease** ',
  'of ',
  'node `a` ',
  'is over, ',
  'so ',
  'another ',
  'node may ',
  'own it.\n\n',
]

/** Its id is the position of its first event: the session's creation and its agent come before. */
const FIRST_TURN = 't2'

const ANSWER = [
  'Done. The **owner** holds a `lease`:',
  '- it renews it once a second',
  '- another node waits until it is over',
  '```ts\nconst lease = await store.claim(session, epoch + 1)\n```',
].join('\n\n')

/** Answers at once, with a tool call. */
const worker: Agent = async function* ({ text }) {
  const call = { id: 'x', name: 'Bash', kind: 'execute', input: { command: `test ${text}` } }
  yield { type: 'activity', kind: 'tool', data: { ...call, status: 'running' } }
  yield { type: 'activity', kind: 'tool', data: { id: 'x', status: 'done', output: 'passed' } }
  return `${ANSWER}\n\n${text}`
}

/** Says so many parts a second, for so many seconds. */
const talker: Agent = async function* ({ text }) {
  const seconds = Number(text)
  const begin = performance.now()
  for (let said = 0; said < seconds * DELTAS_PER_SECOND; said += 1) {
    const due = begin + (said / DELTAS_PER_SECOND) * 1_000
    const early = due - performance.now()
    if (early > 1) await new Promise((resolve) => setTimeout(resolve, early))
    yield PARTS[said % PARTS.length] ?? ''
  }
}

/** What the page counts while it is measured: its tasks over 50 ms, and when a turn is in sight. */
const WATCH = `
  globalThis.watched = {
    tasks: [],
    inSight: (turn) => new Promise((resolve) => {
      const look = () => {
        const box = document.querySelector('[data-turn="' + turn + '"]')?.getBoundingClientRect()
        const isInSight = box !== undefined && box.bottom > 0 && box.top < innerHeight
        if (isInSight) resolve(performance.now())
        else requestAnimationFrame(look)
      }
      look()
    }),
    scroll: async (pixels, ms) => {
      const end = performance.now() + ms
      let steps = 0
      for (; performance.now() < end; steps += 1) {
        document.querySelector('.conversation').scrollBy(0, pixels)
        await new Promise(requestAnimationFrame)
      }
      return steps
    },
  }
  new PerformanceObserver((list) => {
    watched.tasks.push(...list.getEntries().map((entry) => Math.round(entry.duration)))
  }).observe({ type: 'longtask' })
`

export async function benchInspectorSession(options: InspectorBench, turns: number): Promise<void> {
  const { folder } = options
  const agents = { ...builtinAgents, worker, talker }
  const holdfast = await openHoldfast({ store: `sqlite:${folder}/inspector.db`, agents })
  const server = await startServer({ holdfast, port: 0 })
  const browser = await launchChromium()
  try {
    const session = await longSession(holdfast, turns)
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 } })
    await context.addInitScript(WATCH)
    const page = await context.newPage()
    const devtools = await context.newCDPSession(page)
    await benchOpening(options, { page, server, session }, turns)
    await benchReading(options, { page, devtools }, turns)
    await benchDeltas(options, { page, server, holdfast })
  } finally {
    await browser.close()
    await server.close({ closeHoldfast: true })
  }
}

type LongSession = { readonly id: string; readonly last: string }

async function longSession(holdfast: Holdfast, turns: number): Promise<LongSession> {
  const session = await holdfast.resolve({ key: 'long', agent: 'worker' })
  let last = ''
  for (let n = 1; n <= turns; n += 1) last = (await session.turn(`task ${n}`)).id
  return { id: session.id, last }
}

type Opening = {
  readonly page: Page
  readonly server: HoldfastServer
  readonly session: LongSession
}

/** From the beginning of the navigation, as a person waits for it. */
async function benchOpening(
  { rounds, results }: InspectorBench,
  { page, server, session }: Opening,
  turns: number,
): Promise<void> {
  console.log(`\nA conversation of ${turns.toLocaleString('en')} turns in the inspector:`)
  const times: number[] = []
  for (let round = 0; round < Math.max(3, rounds); round += 1) {
    await page.goto('about:blank')
    await page.goto(`${server.url}/#/session/${session.id}`, { waitUntil: 'commit' })
    times.push(await page.evaluate<number>(`watched.inSight('${session.last}')`))
  }
  console.log(`  its last turn is in sight after ${times.map((t) => t.toFixed(0)).join(', ')} ms`)
  results.judge(`opening ${turns} turns at their end, ms`, times, { most: 500 })
}

type Reading = { readonly page: Page; readonly devtools: CDPSession }

/** A reader holds Page Up for a while, then goes to the first turn by its address, and on from there. */
async function benchReading(
  { seconds, results }: InspectorBench,
  { page, devtools }: Reading,
  turns: number,
): Promise<void> {
  const before = await memory(devtools)
  await page.evaluate('watched.tasks = []')
  const pages = await page.evaluate<number>(`watched.scroll(-700, ${seconds * 1_000})`)
  const tasks = await longTasks(page)
  console.log(`  ${pages} screens read backwards in ${seconds} s, ${describe(tasks)}`)
  const begin = performance.now()
  await page.evaluate(`location.hash += '?turn=${FIRST_TURN}'`)
  await page.evaluate(`watched.inSight('${FIRST_TURN}')`)
  const ms = performance.now() - begin
  await page.evaluate(`watched.scroll(700, ${seconds * 1_000})`)
  const after = await memory(devtools)
  console.log(`  its first turn is in sight ${ms.toFixed(0)} ms after a jump there`)
  console.log(`  memory ${before.toFixed(1)} MB at first, ${after.toFixed(1)} MB after all that`)
  results.judge(`longest task while ${turns} turns are read, ms`, tasks.max, { most: 50 })
  results.judge(`memory after ${turns} turns were read, MB`, after, { most: 50 })
}

type Streaming = {
  readonly page: Page
  readonly server: HoldfastServer
  readonly holdfast: Holdfast
}

async function benchDeltas(
  { seconds, results }: InspectorBench,
  { page, server, holdfast }: Streaming,
): Promise<void> {
  const session = await holdfast.resolve({ key: 'fast', agent: 'talker' })
  await session.turn('0')
  await page.goto('about:blank')
  await page.goto(`${server.url}/#/session/${session.id}`)
  await page.locator('.badge[data-state=live]').waitFor()
  await page.evaluate('watched.tasks = []')
  const began = performance.now()
  await session.turn(String(seconds))
  const rate = (seconds * DELTAS_PER_SECOND) / ((performance.now() - began) / 1_000)
  await page.locator('.turn[data-state=done]').nth(1).waitFor()
  const tasks = await longTasks(page)
  console.log(`\nAn answer of ${rate.toFixed(0)} deltas a second, for ${seconds} s:`)
  console.log(`  ${describe(tasks)}`)
  results.judge('longest task at 1,000 deltas a second, ms', tasks.max, { most: 50 })
}

type LongTasks = { readonly count: number; readonly max: number }

/** After the page had time to report them. */
async function longTasks(page: Page): Promise<LongTasks> {
  await page.waitForTimeout(500)
  const tasks = await page.evaluate<number[]>('watched.tasks')
  return { count: tasks.length, max: Math.max(0, ...tasks) }
}

const describe = ({ count, max }: LongTasks): string =>
  count === 0 ? 'no task over 50 ms' : `${count} tasks over 50 ms, the longest ${max} ms`

/** Of the page's heap after a collection, in MB. */
async function memory(devtools: CDPSession): Promise<number> {
  await devtools.send('HeapProfiler.collectGarbage')
  await devtools.send('Performance.enable')
  const { metrics } = await devtools.send('Performance.getMetrics')
  return (metrics.find(({ name }) => name === 'JSHeapUsedSize')?.value ?? 0) / 1e6
}
