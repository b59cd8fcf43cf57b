/**
 * The list of sessions in the inspector, in Chromium: how soon it is there among very many sessions,
 * and whether it stays smooth and small while all of them are scrolled through and others change.
 */
import { openHoldfast, type Holdfast } from 'holdfast'
import { startServer } from 'holdfast/server'
import { openSqlite } from '../src/stores/sqlite/driver.ts'
import { launchChromium } from '../test/support/chromium.ts'
import type { InspectorBench } from './inspector-session.ts'
import { fillSqlite } from './list.ts'

/** Turns a second while the list is scrolled. */
const TURNS_PER_SECOND = 40

const WATCH = `
  globalThis.watched = { tasks: [], mutations: 0 }
  new PerformanceObserver((list) => {
    watched.tasks.push(...list.getEntries().map((entry) => Math.round(entry.duration)))
  }).observe({ type: 'longtask' })
  watched.rows = (count) => new Promise((resolve) => {
    const look = () => {
      if (document.querySelectorAll('.session-row').length >= count) resolve(performance.now())
      else requestAnimationFrame(look)
    }
    look()
  })
  watched.scroll = async (pixels, most) => {
    const list = document.querySelector('.list')
    let [last, still] = [-1, 0]
    const end = performance.now() + most
    while (still < 100 && performance.now() < end) {
      list.scrollBy(0, pixels)
      await new Promise(requestAnimationFrame)
      still = list.scrollTop === last ? still + 1 : 0
      last = list.scrollTop
    }
    return Math.round(list.scrollHeight / 44)
  }
`

export async function benchInspectorList(bench: InspectorBench, count: number): Promise<void> {
  const { folder, rounds, results } = bench
  const file = `${folder}/inspector-list.db`
  await fillSqlite(file, count)
  const database = openSqlite(file)
  // Their turns are in no log: a server would go on with them.
  database.exec(`UPDATE sessions SET pending = 0, status = 'idle' WHERE pending = 1`)
  database.close()
  const holdfast = await openHoldfast({ store: `sqlite:${file}` })
  const server = await startServer({ holdfast, port: 0 })
  const browser = await launchChromium()
  const busy = { isOver: false }
  try {
    console.log(`\nA list of ${count.toLocaleString('en')} sessions in the inspector:`)
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 } })
    await context.addInitScript(WATCH)
    const page = await context.newPage()
    const times: number[] = []
    for (let round = 0; round < Math.max(3, rounds); round += 1) {
      await page.goto('about:blank')
      await page.goto(`${server.url}/#/sessions?state=all`, { waitUntil: 'commit' })
      times.push(await page.evaluate<number>('watched.rows(15)'))
    }
    console.log(`  it is there after ${times.map((time) => time.toFixed(0)).join(', ')} ms`)
    results.judge(`list of ${count} sessions in sight, ms`, times, { most: 500 })
    const devtools = await context.newCDPSession(page)
    await devtools.send('HeapProfiler.collectGarbage')
    const before = await page.evaluate<number>('performance.memory.usedJSHeapSize')
    await page.evaluate('watched.tasks.length = 0')
    const turns = keepBusy(holdfast, busy)
    const rows = await page.evaluate<number>('watched.scroll(1500, 120000)')
    busy.isOver = true
    await turns
    const tasks = await page.evaluate<number[]>('watched.tasks')
    const nodes = await page.evaluate<number>('document.querySelectorAll("*").length')
    await devtools.send('HeapProfiler.collectGarbage')
    const after = await page.evaluate<number>('performance.memory.usedJSHeapSize')
    const longest = Math.max(0, ...tasks)
    console.log(`  scrolled through ${rows} rows: ${tasks.length} long tasks, ${nodes} elements`)
    results.judge(`longest task while scrolling, ms`, longest, { most: 50 })
    results.judge(`memory of all rows, MB`, (after - before) / 1e6, { most: 100 })
  } finally {
    busy.isOver = true
    await browser.close()
    await server.close({ closeHoldfast: true })
  }
}

async function keepBusy(holdfast: Holdfast, busy: { readonly isOver: boolean }): Promise<void> {
  for (let turn = 0; !busy.isOver; turn += 1) {
    await holdfast.turn({ key: `busy-${turn % 50}` }, 'hello')
    await new Promise((resolve) => setTimeout(resolve, 1_000 / TURNS_PER_SECOND))
  }
}
