/** What the inspector shows of one session, tab by tab, in a real Chromium. */
import type { Browser, BrowserContext, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { builtinAgents, type Agent } from 'holdfast'
import { violationsInEveryForm } from '../support/axe.ts'
import { Complaints, launchChromium, SessionTab } from '../support/chromium.ts'
import { gate } from '../support/gate.ts'
import { serve, type TestServer } from '../support/server.ts'

/** Markup, an escape sequence, an override of the direction of text, and an address that runs. */
const HOSTILE = '<img src=x onerror=alert(1)>\u001B[31m\u202Egnp.exe [go](javascript:alert(1))'

let browser: Browser
let server: TestServer
let context: BrowserContext
let complaints: Complaints

let halted = gate()

/** Works until it may go on, or is stopped. */
const halting: Agent = async ({ text }, { signal }) => {
  const stopped = new Promise((resolve) => signal.addEventListener('abort', resolve))
  await Promise.race([halted.opened, stopped])
  return text
}

/** Thinks, plans, uses tools, asks, and fails with its own words. */
const busy: Agent = async function* ({ text }, { ask }) {
  yield { type: 'activity', kind: 'thought', data: { text } }
  yield { type: 'activity', kind: 'plan', data: { entries: [{ content: text, status: text }] } }
  const diff = [{ path: text, before: 'a\n', after: `${text}\n` }]
  const call = { id: 'x', name: text, title: text, kind: 'edit', input: { text }, diff }
  yield { type: 'activity', kind: 'tool', data: { ...call, status: 'running' } }
  yield { type: 'activity', kind: 'tool', data: { id: 'x', status: 'done', output: text } }
  yield { type: 'message', text }
  await ask({ kind: 'question', question: text, options: [{ id: 'yes', label: text }] })
  throw new Error(text)
}

beforeAll(async () => {
  browser = await launchChromium()
  server = await serve({
    agents: { ...builtinAgents, halting, busy },
    connectLimits: { probeMs: 6_000 },
  })
})
afterAll(async () => {
  await browser.close()
  await server.close()
})
beforeEach(async () => {
  halted = gate()
  context = await browser.newContext()
  context.setDefaultTimeout(40_000)
  complaints = new Complaints(context)
})
afterEach(async () => {
  await context.close()
  expect(complaints.own).toEqual([])
})

async function create(options: object = {}): Promise<string> {
  return (await server.post('/v1/sessions', options)).body.id as string
}

function post(session: string, input: string, headers = {}): Promise<any> {
  return server.post(`/v1/sessions/${session}/turns`, { input }, headers)
}

const EXACTLY = { exact: true }
const LATER = { prefer: 'respond-async' }

async function open(session: string, tab = ''): Promise<Page> {
  const page = await context.newPage()
  await page.goto(`${server.url}/#/session/${session}/${tab}`)
  await new SessionTab(page).is('live')
  return page
}

/** A session with all that tabs show, each text of it hostile. */
async function hostileSession(): Promise<string> {
  const session = await create({ key: HOSTILE, labels: { note: HOSTILE }, agent: 'busy' })
  const driver = new SessionTab(await open(session))
  await driver.takePart()
  const asked = post(session, HOSTILE)
  await driver.page.locator('.ask').getByRole('button').first().click()
  expect((await asked).status).toBe(200)
  return session
}

describe('the timeline', () => {
  it('shows turns, waiting, asks, clients and events as bars that lead to them', async () => {
    const session = await create({ agent: 'halting' })
    const page = await open(session, 'timeline')
    const first = await post(session, 'first', LATER)
    const second = await post(session, 'second', LATER)
    const [one, two] = [first.body.turn.id as string, second.body.turn.id as string]
    const bars = page.locator('.timeline .bar')
    await page.getByRole('link', { name: 'Turn t2 “first”: running' }).waitFor()
    await page.getByRole('link', { name: `Turn ${two} “second”: waits for its turn` }).waitFor()
    await server.delete(`/v1/sessions/${session}/turns/${two}`)
    const event = page.locator('[data-row=events] .bar[data-kind=interruption]')
    expect(await event.getAttribute('aria-label')).toContain(`Turn ${two} was cancelled`)
    halted.open()
    const done = page.locator(`[data-row=turns] .bar[data-kind=done]`)
    expect(await done.getAttribute('aria-label')).toMatch(/“first”: done after \d/)
    expect(await bars.count()).toBeGreaterThan(3)
    await done.click()
    await page.locator(`.turn[data-turn=${one}]`).waitFor()
    expect(page.url()).toContain(`?turn=${one}`)
    await page.goBack()
    await event.click()
    await page.locator('.log-entry[data-type="turn.cancelled"][data-open]').waitFor()
  })

  it('is zoomed and moved by wheel, by hand and by keys, and its address says to where', async () => {
    const session = await create()
    for (const text of ['one', 'two', 'three']) await post(session, text)
    const page = await open(session, 'timeline')
    const plot = page.locator('.timeline-plot')
    const place = async () => (await page.locator('.bar[data-kind=session]').boundingBox())?.x ?? 0
    await page.locator('.bar[data-kind=session]').waitFor()
    const begin = await place()
    const box = (await plot.boundingBox()) ?? { x: 0, y: 0, width: 0, height: 0 }
    const middle = { x: box.x + box.width / 2, y: box.y + box.height - 2 }
    await page.mouse.move(middle.x, middle.y)
    await page.mouse.wheel(0, 100)
    await expect.poll(place).toBeGreaterThan(begin)
    const zoomed = await place()
    await page.mouse.down()
    await page.mouse.move(middle.x + 30, middle.y)
    await page.mouse.move(middle.x + 60, middle.y)
    await page.mouse.up()
    await expect.poll(async () => Math.round((await place()) - zoomed)).toBe(60)
    await page.locator('.timeline').focus()
    await page.keyboard.press('ArrowRight')
    await expect.poll(place).toBeLessThan(zoomed)
    await page.waitForURL(/from=\d+&to=\d+/)
    const moved = await place()
    await page.reload()
    await page.locator('.bar[data-kind=session]').waitFor()
    await expect.poll(async () => Math.abs((await place()) - moved)).toBeLessThan(3)
    await page.keyboard.press('0')
    await page.getByRole('button', { name: 'Show all' }).click()
    await expect.poll(place).not.toBe(moved)
  })
})

describe('a long session', () => {
  let long: string
  const TURNS = 700
  beforeAll(async () => {
    long = await create({ key: 'long' })
    const session = server.holdfast.session(long)
    for (let n = 1; n <= TURNS; n += 1) await session.turn(`message ${n}`)
  })

  it('opens at its end, goes to its first turn by address, and back to its end', async () => {
    const page = await open(long)
    const question = (n: number) => page.locator('.question').getByText(`message ${n}`, EXACTLY)
    const isSeen = async (n: number) => {
      const top = (await question(n).boundingBox())?.y ?? -1
      return top > 0 && top < 700
    }
    await question(TURNS).waitFor()
    await expect.poll(() => isSeen(TURNS)).toBe(true)
    await page.goto(`${page.url()}?turn=t2`)
    await page.locator('.turn[data-turn=t2]').waitFor()
    await expect.poll(() => isSeen(1)).toBe(true)
    await page.getByRole('button', { name: 'To the end' }).click()
    await expect.poll(() => isSeen(TURNS)).toBe(true)
    await new SessionTab(page).write('one more')
    await page.locator('.bubble.assistant', { hasText: 'one more' }).waitFor()
  })

  it('has a log that is read where a reader goes, and filtered as far as it is read', async () => {
    const page = await open(long, 'log')
    await page.getByLabel('Go to event').last().fill('500')
    await page.getByLabel('Go to event').last().press('Enter')
    const event = page.locator('.log-entry[data-seq="500"][data-open]')
    await event.waitFor()
    await expect.poll(async () => (await event.boundingBox())?.y ?? -1).toBeGreaterThan(0)
    expect(page.url()).toContain('event=500')
    await page.reload()
    await event.waitFor()
    await page.getByRole('searchbox').fill('message 7"')
    await page.locator('.log-entry[data-type="turn.started"]').first().waitFor()
    expect(await page.locator('.log-entry').count()).toBe(2)
  })

  it('has a timeline that reads back as far as it is zoomed out', async () => {
    const page = await open(long, 'timeline')
    const first = page.locator('.bar[data-kind=session]')
    await page.locator('.bar[data-kind=done]').first().waitFor()
    await page.getByRole('button', { name: 'Show all' }).click()
    await first.waitFor()
    await page.locator('.bar[data-count]').first().waitFor()
  })
})

describe('every tab', () => {
  it('shows hostile text as text, to everybody', { timeout: 200_000 }, async () => {
    const session = await hostileSession()
    const page = await open(session)
    for (const name of ['Conversation', 'Timeline', 'Queue', 'Log', 'Attachments']) {
      await page.getByRole('tab', { name }).click()
      await page.locator(`.panel[data-tab=${name.toLowerCase()}]`).waitFor()
      expect(await violationsInEveryForm(page), name).toEqual([])
      const text = await page.locator('main').innerText()
      for (const sign of ['\u001B', '\u202E']) expect(text, name).not.toContain(sign)
      expect(await page.locator('main img, main a[href^=javascript]').count(), name).toBe(0)
    }
  })
})
