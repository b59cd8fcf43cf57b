/** Every view of the inspector that is not inside one session, as a person meets it. */
import type { Browser, BrowserContext, Locator, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { builtinAgents, type Agent } from 'holdfast'
import type { Scope } from '../../src/core/access.ts'
import { axeViolations, violationsInEveryForm } from '../support/axe.ts'
import { Complaints, launchChromium } from '../support/chromium.ts'
import { until } from '../support/gate.ts'
import { openTestDatabase } from '../support/postgres.ts'
import { serve, type TestServer } from '../support/server.ts'

const HOSTILE = '<img src=x onerror=alert(1)>\u202Egnp.exe'
const HARMLESS = '<img src=x onerror=alert(1)>\uFFFDgnp.exe'

let browser: Browser
let server: TestServer
let context: BrowserContext
let complaints: Complaints

/** Asks to run what it is told. */
const careful: Agent = async ({ text }, { ask }) => {
  const diff = [{ path: `${text}.txt`, before: 'one\n', after: 'two\n' }]
  const { outcome } = await ask({
    ...{ kind: 'permission', question: text, options: ['allow', 'deny'] },
    detail: { tool: 'Bash', kind: 'execute', command: text, cwd: text, reason: text, diff },
  })
  return outcome
}

const failing: Agent = () => Promise.reject(new Error('it is broken'))

const agents = { ...builtinAgents, careful, failing }

beforeAll(async () => {
  browser = await launchChromium()
  server = await serve({ agents })
})
afterAll(async () => {
  await browser.close()
  await server.close()
})
beforeEach(async () => {
  context = await browser.newContext({ viewport: { width: 1280, height: 800 } })
  context.setDefaultTimeout(40_000)
  complaints = new Complaints(context)
})
afterEach(async () => {
  await context.close()
  expect(complaints.own).toEqual([])
  for (const { id, session } of (await server.get('/v1/asks')).body.asks) {
    await server.post(`/v1/sessions/${session.id}/asks/${id}`, { answer: 'deny' })
  }
})

/** Whether the parts of a row that can be seen are side by side. */
async function isOneLine(row: Locator): Promise<boolean> {
  const boxes = await Promise.all(
    (await row.locator('> *').all()).map((cell) => cell.boundingBox()),
  )
  const middles = boxes.flatMap((box) => (box === null ? [] : [box.y + box.height / 2]))
  return Math.max(...middles) - Math.min(...middles) < 4
}

async function visit(path: string): Promise<Page> {
  const page = await context.newPage()
  await page.goto(server.url + path)
  await page.locator('main h1').waitFor()
  return page
}

/** A session whose turn waits for an answer. */
async function asking(key: string, question = 'May I?', at = server): Promise<string> {
  const { id } = (await at.post('/v1/sessions', { key, agent: 'careful' })).body
  const async = { prefer: 'respond-async' }
  await at.post(`/v1/sessions/${id}/turns`, { input: question }, async)
  return id as string
}

const focused = (page: Page): Promise<string> =>
  page.evaluate<string>('document.activeElement.textContent')

describe('accessibility', () => {
  it('is checked: grey text and a nameless button are found', async () => {
    const page = await visit('/')
    await page.evaluate(`
      document.querySelector('h1').style.color = '#999'
      document.querySelector('main').append(document.createElement('button'))
    `)
    const rules = (await axeViolations(page)).map((line) => line.split(':')[0])
    expect(rules).toEqual(['button-name', 'color-contrast'])
  })

  it.each(['/#/sessions', '/#/new', '/#/nodes', '/#/browsers', '/#/reload-test'])(
    '%s has no violation of WCAG AA in light or dark, wide or on a phone',
    async (path) => {
      await server.post('/v1/sessions', { key: 'seen', labels: { team: 'docs' } })
      const page = await visit(path)
      expect(await violationsInEveryForm(page)).toEqual([])
    },
  )

  it('Home, the palette and the help have none either, with all that they can show', async () => {
    await asking('asks')
    const { id } = (await server.post('/v1/sessions', { key: 'fails', agent: 'failing' })).body
    await server.post(`/v1/sessions/${id}/turns`, { input: 'x' })
    const page = await visit('/')
    await page.locator('.ask').waitFor()
    await page.locator('.chart').first().waitFor()
    expect(await violationsInEveryForm(page)).toEqual([])
    await page.keyboard.press('?')
    await page.getByRole('dialog').waitFor()
    expect(await violationsInEveryForm(page)).toEqual([])
    await page.keyboard.press('Escape')
    await page.keyboard.press('Control+k')
    await page.getByRole('option').first().waitFor()
    expect(await violationsInEveryForm(page)).toEqual([])
  })
})

describe('Home', () => {
  it('has the asks of all sessions with what they are about, and answers them', async () => {
    const id = await asking('deploy', 'make deploy')
    const page = await visit('/')
    expect(await page.title()).toBe('(1) Home – Holdfast')
    const ask = page.locator('.ask')
    await ask.locator('.diff').getByText('+two').waitFor()
    await ask.getByRole('button', { name: 'allow' }).click()
    await page.getByText('Nothing waits for you.').waitFor()
    await until(async () => (await page.title()) === 'Home – Holdfast')
    const turn = async () => (await server.get(`/v1/sessions/${id}`)).body.running
    await until(async () => (await turn()) === null)
  })

  it('shows what runs and what failed, and the figures of the server', async () => {
    const { id } = (await server.post('/v1/sessions', { key: 'breaks', agent: 'failing' })).body
    await server.post(`/v1/sessions/${id}/turns`, { input: 'x' })
    await asking('works')
    const page = await visit('/')
    const section = (name: string) => page.locator('section', { hasText: name })
    await section('Running now').getByText('works').waitFor()
    expect(await isOneLine(section('Running now').locator('.session-row').first())).toBe(true)
    await section('Failed lately').getByText('breaks').waitFor()
    const turns = page.locator('.chart', { hasText: 'Turns per minute' })
    expect(Number(await turns.locator('.chart-figure').textContent())).toBeGreaterThan(0)
    await page.locator('.chart', { hasText: 'Duration of turns' }).waitFor()
    await page.reload()
    await turns.waitFor()
  })

  it('shows hostile text as the text that it is', async () => {
    const id = await asking(HOSTILE, HOSTILE)
    const page = await visit('/')
    const ask = page.locator('.ask')
    await ask.waitFor()
    for (const part of ['.ask-session a', '.ask-words', '.facts-line', '.detail > pre', '.diff']) {
      expect(await ask.locator(part).first().textContent(), part).toContain(HARMLESS)
    }
    await page.keyboard.press('Control+k')
    await page.keyboard.type('img src')
    await page.getByRole('option', { name: HARMLESS }).click()
    await page.locator(`.session[data-id="${id}"]`).waitFor()
    expect(await page.title()).toBe(`(1) ${HARMLESS} – Holdfast`)
  })

  it('of two tabs shows an ask in both, and one of them notifies', async () => {
    await context.grantPermissions(['notifications'])
    await context.addInitScript(`
      if (origin !== 'null') localStorage.setItem('holdfast-inspector:notify', 'on')
      document.hasFocus = () => false
      window.notified = []
      window.Notification = class extends EventTarget {
        static permission = 'granted'
        constructor(title, { body }) { super(); notified.push(title + ': ' + body) }
      }
    `)
    const pages = [await visit('/'), await visit('/')]
    await asking('elsewhere', 'May I?')
    for (const page of pages) await page.locator('.ask').waitFor()
    const notified = async (): Promise<string[]> =>
      (await Promise.all(pages.map((page) => page.evaluate<string[]>('notified')))).flat()
    await until(async () => (await notified()).length > 0)
    expect(await notified()).toEqual(['elsewhere asks: May I?'])
  })

  it('finds a server again that was started anew, with what waits there', async () => {
    const first = await serve({ agents })
    const { port, url } = first
    const page = await context.newPage()
    await page.goto(url)
    await page.getByText('Nothing waits for you.').waitFor()
    await first.close()
    await page.locator('.server:not(:empty)').waitFor()
    const second = await serve({ agents, port })
    await asking('after', 'Still there?', second)
    await page.locator('.ask-words', { hasText: 'Still there?' }).waitFor()
    await page.locator('.session-row').getByText('after').waitFor()
    await page.close()
    await second.close()
  })

  it('says that it is offline, and goes on by itself', async () => {
    const page = await visit('/')
    await context.setOffline(true)
    await page.locator('.server').getByText('Offline').waitFor()
    await asking('meanwhile')
    await context.setOffline(false)
    await page.locator('.ask').getByText('meanwhile').waitFor()
    await page.locator('.server:empty').waitFor({ state: 'attached' })
  })
})

describe('a caller without admin', () => {
  let guarded: TestServer
  beforeAll(async () => {
    const scopes: readonly Scope[] = ['watch']
    const tokens = { scopesOf: () => scopes, revision: () => 0, close: () => undefined }
    guarded = await serve({ agents, tokens })
  })
  afterAll(() => guarded.close())

  it('is told so instead of charts and nodes, without a refused request', async () => {
    const page = await context.newPage()
    await page.goto(guarded.url)
    await page.getByRole('textbox', { name: 'Token' }).fill('hf_x')
    await page.getByRole('button', { name: 'Go on' }).click()
    await page.getByText('The figures of the server need a token with the scope admin.').waitFor()
    expect(await page.locator('.chart').count()).toBe(0)
    expect(await page.getByRole('link', { name: 'Nodes' }).count()).toBe(0)
    // Before the token was entered.
    complaints.forgive(/401/)
    await page.goto(`${guarded.url}/#/nodes`)
    await page.getByText('The list of nodes needs a token with the scope admin.').waitFor()
    expect(complaints.all).toEqual([])
  })
})

describe('the frame', () => {
  it('has a first link that leads to the content of the view, and stays in the view', async () => {
    const page = await visit('/#/nodes')
    await page.keyboard.press('Tab')
    expect(await focused(page)).toBe('Skip to the content')
    await page.keyboard.press('Enter')
    expect(await page.evaluate('document.activeElement.id')).toBe('view')
    expect(page.url()).toBe(`${server.url}/#/nodes`)
  })

  it('has keys for the filter, the rows of a list, and help, which can be turned off', async () => {
    for (const key of ['row one', 'row two']) await server.post('/v1/sessions', { key })
    const page = await visit('/#/nodes')
    await page.keyboard.press('/')
    await page.locator('input[type=search]:focus').waitFor()
    await page.keyboard.type('row')
    expect(page.url()).toContain('q=row')
    await page.locator('.session-row', { hasText: 'row two' }).waitFor()
    await page.locator('.session-row').nth(2).waitFor({ state: 'detached' })
    await page.evaluate('document.activeElement.blur()')
    const seen: string[] = []
    for (const key of ['j', 'j', 'k']) {
      await page.keyboard.press(key)
      seen.push(await focused(page))
    }
    expect(seen.map((text) => /row (one|two)/.exec(text)?.[0])).toEqual([
      'row two',
      'row one',
      'row two',
    ])
    await page.keyboard.press('?')
    await page.getByLabel('Keys without Ctrl work').uncheck()
    await page.keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    await page.keyboard.press('?')
    expect(await page.getByRole('dialog').count()).toBe(0)
  })

  it('has a palette that goes to views, sessions and actions by the keyboard alone', async () => {
    await server.post('/v1/sessions', { key: 'find me' })
    const page = await visit('/')
    await page.keyboard.press('Control+k')
    await page.keyboard.type('nod')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Nodes', level: 1 }).waitFor()
    await page.keyboard.press('Control+k')
    await page.keyboard.type('find m')
    await page.getByRole('option', { name: 'find me' }).waitFor()
    await page.keyboard.press('Enter')
    await page.locator('.session h1', { hasText: 'find me' }).waitFor()
    await page.keyboard.press('Control+k')
    await page.keyboard.type('log')
    await page.getByRole('option', { name: 'Log' }).waitFor()
    await page.keyboard.press('ArrowDown')
    await page.keyboard.press('ArrowUp')
    await page.keyboard.press('Enter')
    await page.locator('.session[data-tab=log]').waitFor()
    await page.goBack()
    await page.locator('.session[data-tab=conversation]').waitFor()
    await page.goBack()
    await page.getByRole('heading', { name: 'Nodes', level: 1 }).waitFor()
  })
})

describe('nodes', () => {
  it('are listed with their lease, and lead to their figures', async () => {
    const page = await visit('/#/nodes')
    const { node } = server.holdfast.authority
    const row = page.locator(`[data-node="${node}"]`)
    await row.getByText('never ends').waitFor()
    await row.getByRole('link').click()
    await page.locator('.chart').first().waitFor()
  })

  it('of one database are shown by each of them, with the figures of each', async () => {
    const database = await openTestDatabase()
    const store = database.freshUrl()
    const nodes = [await serve({ store, isNode: true }), await serve({ store, isNode: true })]
    const [one = '', two = ''] = nodes.map(({ holdfast }) => holdfast.authority.node)
    const page = await context.newPage()
    await page.goto(`${nodes[0]?.url}/#/nodes`)
    await page.locator(`[data-node="${one}"]`).getByText('this one').waitFor()
    await page.locator(`[data-node="${two}"]`).getByText('alive').waitFor()
    expect(await violationsInEveryForm(page)).toEqual([])
    await page.getByRole('link', { name: two }).click()
    const choice = page.getByLabel('Figures of the node')
    await choice.waitFor()
    expect(await choice.inputValue()).toBe(two)
    await page.locator('.chart').first().waitFor()
    await page.goto(`${nodes[0]?.url}/#/browsers`)
    for (const node of [one, two]) await page.getByText(`Node ${node}`).waitFor()
    await page.close()
    await Promise.all(nodes.map((node) => node.close()))
    await database.close()
  })
})
