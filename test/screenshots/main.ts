/**
 * `npm run screenshots`: starts a server with demonstration data, and writes a picture of every view
 * of the inspector into docs/images, in light, in dark, and as wide as a phone. They are made with
 * the fonts of this machine, and made smaller by pngquant, if it is there.
 */
import { execFileSync } from 'node:child_process'
import { mkdirSync, statSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { chromium, type Browser, type BrowserContext, type Page } from 'playwright-core'
import { openHoldfast } from 'holdfast'
import { startServer } from 'holdfast/server'
import { launchChromium } from '../support/chromium.ts'
import { ROOT } from '../support/repository.ts'
import { coder, demonstrate, type Demonstration } from './demonstration.ts'
import { hourOf } from './hour.ts'
import { SHOP } from './shop.ts'

const { values } = parseArgs({
  options: { only: { type: 'string' }, out: { type: 'string', default: 'docs/images' } },
})
const folder = join(ROOT, values.out)

const WIDE = { width: 1_200, height: 780 }
const PHONE = { width: 390, height: 780 }
const FORMS = [
  { name: 'light', colorScheme: 'light', viewport: WIDE },
  { name: 'dark', colorScheme: 'dark', viewport: WIDE },
  { name: 'phone', colorScheme: 'light', viewport: PHONE },
] as const

type Shot = {
  readonly name: string
  readonly path: string
  /** Shown once it is ready. */
  readonly ready: string
  readonly act?: (page: Page) => Promise<void>
}

const shotsOf = ({ main, busy, lanes }: Demonstration, browserSession: string): readonly Shot[] => [
  { name: 'home', path: '/', ready: '.chart-figure' },
  { name: 'sessions', path: '/sessions', ready: '.session-row' },
  { name: 'conversation', path: `/session/${main}`, ready: '.turn table' },
  { name: 'timeline', path: `/session/${lanes}/timeline`, ready: '.panel[data-tab=timeline] *' },
  { name: 'queue', path: `/session/${busy}/queue`, ready: '.queue li' },
  { name: 'log', path: `/session/${main}/log`, ready: '.log-line' },
  { name: 'attachments', path: `/session/${lanes}/attachments`, ready: '.attachments' },
  { name: 'new-session', path: '/new', ready: 'h1' },
  { name: 'browsers', path: '/browsers', ready: '.browser-card img' },
  { name: 'browser', path: `/browsers/${browserSession}`, ready: '.picture img' },
  { name: 'nodes', path: '/nodes', ready: '[data-node]' },
  { name: 'reload-test', path: '/reload-test', ready: 'h1' },
  {
    name: 'palette',
    path: '/sessions',
    ready: '.session-row',
    act: async (page) => {
      await page.keyboard.press('Control+k')
      await page.keyboard.type('pay')
      await page.locator('.palette [role=option]').first().waitFor()
    },
  },
]

/** The charts need an hour to fill; pictures show one that is made up. */
async function withAnHour(context: BrowserContext): Promise<void> {
  await context.route('**/v1/stats*', async (route) => {
    const response = await route.fetch()
    const stats = (await response.json()) as { minutes: { at: number }[] }
    await route.fulfill({ response, json: { ...stats, minutes: hourOf(stats.minutes) } })
  })
}

/** A person who takes part, so that the session has an attachment. */
async function takePart(front: Browser, url: string, session: string): Promise<void> {
  const page = await front.newPage()
  await page.goto(`${url}/#/session/${session}`)
  await page.getByRole('button', { name: 'Take part' }).click()
}

async function take(front: Browser, url: string, shots: readonly Shot[]): Promise<void> {
  for (const { name: form, ...options } of FORMS) {
    const context = await front.newContext({ ...options, reducedMotion: 'reduce' })
    await withAnHour(context)
    for (const { name, path, ready, act } of shots) {
      if (values.only !== undefined && !name.startsWith(values.only)) continue
      const page = await context.newPage()
      await page.goto(`${url}/#${path}`)
      try {
        await page.locator(ready).first().waitFor({ timeout: 4_000 })
        await act?.(page)
      } catch (error) {
        console.log(`${name}: ${(error as Error).message.split('\n')[0]}`)
      }
      await page.evaluate('new Promise((done) => setTimeout(done, 400))')
      await save(page, join(folder, `${name}-${form}.png`))
      await page.close()
    }
    await context.close()
  }
}

async function save(page: Page, file: string): Promise<void> {
  await page.screenshot({ path: file })
  try {
    execFileSync('pngquant', ['--force', '--skip-if-larger', '--output', file, '128', file])
  } catch (error) {
    // 98: it would be larger. Otherwise pngquant is not there, and the picture stays as it is.
    if ((error as { status?: number }).status === 99) throw error
  }
  console.log(`${file.slice(ROOT.length)} ${Math.round(statSync(file).size / 1024)} kB`)
}

/** At an address that looks like one. It ends with the program. */
async function serveShop(): Promise<string> {
  const shop = createServer((_, response) => {
    response.writeHead(200, { 'content-type': 'text/html' }).end(SHOP)
  })
  shop.unref()
  await new Promise<void>((resolve) => shop.listen(0, '127.0.0.1', resolve))
  return `http://localhost:${(shop.address() as { port: number }).port}/checkout`
}

const holdfast = await openHoldfast({
  store: 'memory:',
  agents: { coder, analyst: coder, support: coder, writer: coder },
})
const server = await startServer({
  holdfast,
  browsers: { chromium: { program: 'chromium' } },
})
mkdirSync(folder, { recursive: true })
const front = await launchChromium()
try {
  const demonstration = await demonstrate(server.url)
  const program = await chromium.connectOverCDP(`${server.url}/cdp/chromium?key=checkout-test`)
  await program
    .contexts()[0]
    ?.pages()[0]
    ?.goto(await serveShop())
  const { browsers } = (await (await fetch(`${server.url}/v1/browsers`)).json()) as {
    browsers: { open: { session: string }[] }[]
  }
  const session = browsers[0]?.open[0]?.session ?? ''
  await takePart(front, server.url, demonstration.lanes)
  await take(front, server.url, shotsOf(demonstration, session))
  await program.close()
} finally {
  await front.close()
  await server.close({ drainMs: 0, closeHoldfast: true })
}
