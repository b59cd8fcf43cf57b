/** What the inspector shows of one session, tab by tab, in a real Chromium. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser, BrowserContext, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { builtinAgents, type Agent } from 'holdfast'
import { violationsInEveryForm } from '../support/axe.ts'
import { Complaints, launchChromium, SessionTab } from '../support/chromium.ts'
import { gate } from '../support/gate.ts'
import { serve, type TestServer } from '../support/server.ts'

/** Markup, an escape sequence, an override of the direction of text, and an address that runs. */
const HOSTILE = '<img src=x onerror=alert(1)>\u001B[31m\u202Egnp.exe [go](javascript:alert(1))'

// A page that lives is not taken for a silent one, however busy the machine is.
const connectLimits = { probeMs: 6_000 }

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

/** Hears no stop. */
const deaf: Agent = async () => {
  await halted.opened
  return 'done'
}

let attempts = 0

/** Fails at first. */
const flaky: Agent = async () => {
  attempts += 1
  if (attempts === 1) throw new Error('not this time')
  return 'now'
}

/** Says how it is told to work. */
const modal: Agent = Object.assign(
  (async (_turn, { settings }) => JSON.stringify(settings)) satisfies Agent,
  { capabilities: { settings: ['mode', 'instructions'], modes: ['plan', 'act'] } } as const,
)

beforeAll(async () => {
  browser = await launchChromium()
  server = await serve({
    agents: { ...builtinAgents, halting, busy, modal, deaf, flaky },
    connectLimits,
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

const focusedLabel = (page: Page): Promise<string | null> =>
  page.evaluate<string | null>('document.activeElement?.getAttribute("aria-label")')

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
    await page.waitForURL(/from=\d+&to=\d+/)
    const zoomed = await place()
    let address = page.url()
    await page.mouse.down()
    await page.mouse.move(middle.x + 30, middle.y)
    await page.mouse.move(middle.x + 60, middle.y)
    await page.mouse.up()
    await expect.poll(async () => Math.round((await place()) - zoomed)).toBe(60)
    await expect.poll(() => page.url()).not.toBe(address)
    address = page.url()
    await page.locator('.timeline').focus()
    await page.keyboard.press('ArrowRight')
    await expect.poll(place).toBeLessThan(zoomed)
    await expect.poll(() => page.url()).not.toBe(address)
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

describe('the queue', () => {
  it('moves own turns by buttons and by hand, and says why each waits', async () => {
    const session = await create({ agent: 'halting' })
    for (const text of ['runs', 'one', 'two', 'three']) await post(session, text, LATER)
    const page = await open(session, 'queue')
    const texts = () => page.locator('.queue-text').allTextContents()
    await expect.poll(texts).toEqual(['one', 'two', 'three'])
    const rows = page.locator('.queue li')
    expect(await rows.nth(1).textContent()).toMatch(/1 is before it\. A session runs one turn at/)
    await rows.first().getByRole('button', { name: 'down' }).click()
    await expect.poll(texts).toEqual(['two', 'one', 'three'])
    await expect.poll(() => focusedLabel(page)).toMatch(/^Move t\d+ (up|down)$/)
    await rows.last().dragTo(rows.first())
    await expect.poll(texts).toEqual(['three', 'two', 'one'])
    const { queued } = (await server.get(`/v1/sessions/${session}`)).body
    expect(queued.map(({ mayMove }: any) => mayMove)).toEqual([true, true, true])
    halted.open()
    await page.getByText('Nothing waits.').waitFor()
    await page.getByRole('tab', { name: 'Conversation' }).click()
    const answers = () => page.locator('.bubble.assistant').allTextContents()
    await expect.poll(answers).toEqual(['runs', 'three', 'two', 'one'])
  })
})

describe('attachments', () => {
  it('says how far each client has read the log, and how many only watch', async () => {
    const session = await create()
    const driver = new SessionTab(await open(session))
    await driver.takePart()
    await driver.say('hello')
    const page = await open(session, 'attachments')
    await page.getByText('has all 5 events').waitFor()
    await page.getByText('1 watcher now').waitFor()
    const { attachments, seq } = (await server.get(`/v1/sessions/${session}`)).body
    expect(attachments).toMatchObject([{ state: 'live', cursor: seq }])
    await driver.page.close()
    await page.getByText('does not follow the log now').waitFor()
  })
})

describe('the settings', () => {
  it('are changed where the agent takes them, and shown', async () => {
    const session = await create({ agent: 'modal' })
    const page = await open(session)
    await page.getByLabel('More actions').click()
    await page.getByRole('button', { name: 'Settings…' }).click()
    await page.getByLabel('Mode').selectOption('plan')
    await page.getByLabel('Instructions').fill('Be brief.')
    expect(await page.getByLabel('Working folder').count()).toBe(0)
    await page.getByRole('button', { name: 'Save' }).click()
    await page.locator('.facts').getByText('mode plan').waitFor()
    await new SessionTab(page).say('go')
    const said = await page.locator('.bubble.assistant').textContent()
    expect(JSON.parse(said ?? '')).toEqual({ mode: 'plan', instructions: 'Be brief.' })
  })
})

describe('what a person writes', () => {
  it('is kept over a reload and a refusal', async () => {
    const session = await create({ agent: 'halting' })
    const page = await open(session)
    const box = page.getByLabel('What to say')
    await box.fill('not yet sent')
    await page.reload()
    await new SessionTab(page).is('live')
    expect(await box.inputValue()).toBe('not yet sent')
    const long = 'x'.repeat(2_000_000)
    await box.evaluate((area: any, text: string) => {
      area.value = text
      area.dispatchEvent(new area.ownerDocument.defaultView.Event('input', { bubbles: true }))
    }, long)
    await page.getByRole('button', { name: 'Send' }).click()
    await page.getByRole('alert').filter({ hasText: 'Not sent' }).waitFor()
    expect((await box.inputValue()).length).toBe(long.length)
  })

  it('runs in silence with a sign of it, and a stop shows that it is under way', async () => {
    const session = await create({ agent: 'deaf' })
    const page = await open(session)
    await new SessionTab(page).write('go on')
    await page.locator('.working', { hasText: /Working\s+\d/ }).waitFor()
    await page.getByRole('button', { name: 'Stop the turn' }).click()
    await page.locator('.working', { hasText: 'Stopping…' }).waitFor()
    expect(await page.getByRole('button', { name: 'Stopping…' }).isDisabled()).toBe(true)
    halted.open()
    await page.locator('.turn[data-state=cancelled]').waitFor()
  })
})

describe('on a phone', () => {
  it('an ask leaves room for the conversation, and nothing covers the tabs', async () => {
    const session = await create({ agent: 'ask' })
    const page = await open(session)
    await page.setViewportSize({ width: 360, height: 640 })
    await post(session, 'a line\n'.repeat(60), LATER)
    await page.locator('.ask').waitFor()
    const log = page.getByRole('log')
    await log.evaluate('(log) => log.scrollTo(0, 0)')
    const toEnd = page.getByRole('button', { name: 'To the end' })
    await toEnd.waitFor()
    const [tabs, button, send] = await Promise.all(
      [
        page.getByRole('tablist'),
        toEnd,
        page.getByRole('button', { name: 'Send', ...EXACTLY }),
      ].map((place) => place.boundingBox()),
    )
    expect(button!.y).toBeGreaterThanOrEqual(tabs!.y + tabs!.height)
    expect(send!.y + send!.height).toBeLessThanOrEqual(640)
  })
})

describe('actions', () => {
  it('copy, export, fork, retry, share and revoke', async () => {
    await context.grantPermissions(['clipboard-read', 'clipboard-write'])
    const session = await create({ agent: 'flaky' })
    await post(session, 'fails')
    const page = await open(session)
    const copied = () => page.evaluate<string>('navigator.clipboard.readText()')
    const menu = async (name: string) => {
      await page.getByLabel('More actions').click()
      await page.locator('.menu').getByRole('button', { name }).click()
    }
    await menu('Copy id')
    await expect.poll(copied).toBe(session)
    await page.keyboard.press('Escape')
    for (const [name, suffix] of [
      ['Export the conversation', '.jsonl'],
      ['Export the log', '.events.jsonl'],
    ] as const) {
      const saved = page.waitForEvent('download')
      await menu(name)
      expect((await saved).suggestedFilename()).toBe(session + suffix)
      await page.keyboard.press('Escape')
    }
    await page.getByRole('button', { name: 'Copy this turn as curl' }).click()
    await expect.poll(copied).toContain(`/v1/sessions/${session}/turns`)
    await page.getByRole('button', { name: 'Retry' }).click()
    await page.locator('.turn[data-state=done]').waitFor()
    await page.getByRole('button', { name: 'Watch only' }).click()
    await page.getByText('Live, watching').waitFor()
    await page.getByRole('button', { name: 'Share' }).click()
    await page.getByRole('button', { name: 'Make a link' }).click()
    await page.locator('.made-link').getByRole('button', { name: 'Copy' }).click()
    await expect.poll(copied).toContain(`#/link/${session}/`)
    await page.getByRole('button', { name: /^Revoke/ }).click()
    await page.getByText('There are none.').waitFor()
    expect((await server.get(`/v1/sessions/${session}/links`)).body.links).toEqual([])
    await page.keyboard.press('Escape')
    await page.locator('.turn[data-state=done]').getByRole('button', { name: 'Fork' }).click()
    await page.getByText('Not forked').waitFor()
    complaints.forgive(/422|409/)
  })
})

describe('a huge text', () => {
  it('is shown in part, in every tab, and in whole on request', async () => {
    const session = await create({ agent: 'halting' })
    const huge = `${'x'.repeat(400_000)} ${'word '.repeat(20_000)}`
    await post(session, huge, LATER)
    await post(session, huge, LATER)
    const page = await open(session)
    const chars = () => page.locator('main').evaluate((main: any) => main.textContent.length)
    for (const name of ['Conversation', 'Timeline', 'Queue', 'Log']) {
      await page.getByRole('tab', { name }).click()
      await page.locator(`.panel[data-tab=${name.toLowerCase()}]`).waitFor()
      expect(await chars(), name).toBeLessThan(60_000)
    }
    await page.locator('.log-entry[data-type="turn.queued"]').last().click()
    await page.getByRole('button', { name: 'Show all' }).click()
    await expect.poll(chars).toBeGreaterThan(huge.length)
    halted.open()
    await page.getByRole('tab', { name: 'Conversation' }).click()
    await page.locator('.turn[data-state=done]').first().waitFor()
    expect(await chars()).toBeLessThan(600_000)
  })
})

describe('every tab', () => {
  it('finds a server again that was started anew, and shows what happens then', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-inspector-'))
    const start = (port: number) =>
      serve({ store: `sqlite:${join(folder, 'holdfast.db')}`, port, connectLimits })
    let own = await start(0)
    const { port, url } = own
    const { id } = (await own.post('/v1/sessions', { key: 'survivor' })).body
    const pages = new Map<string, Page>()
    for (const tab of ['conversation', 'timeline', 'queue', 'log', 'attachments']) {
      const page = await context.newPage()
      await page.goto(`${url}/#/session/${id}/${tab}`)
      await new SessionTab(page).is('live')
      pages.set(tab, page)
    }
    await own.close()
    for (const page of pages.values()) await new SessionTab(page).is('reconnecting')
    own = await start(port)
    for (const page of pages.values()) await new SessionTab(page).is('live')
    await own.post(`/v1/sessions/${id}/turns`, { input: 'after' })
    const shown = (tab: string, selector: string) => pages.get(tab)?.locator(selector).waitFor()
    await shown('conversation', '.turn[data-state=done]')
    await shown('timeline', '.timeline .bar[data-kind=done]')
    await shown('log', '.log-entry[data-type="turn.done"]')
    for (const [tab, page] of pages) {
      await page.reload()
      await new SessionTab(page).is('live')
      expect(await page.locator('.session').getAttribute('data-tab')).toBe(tab)
      await page.close()
    }
    await own.close()
    await rm(folder, { recursive: true })
  })

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
