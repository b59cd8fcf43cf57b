/** The list of sessions in the inspector, in a real Chromium. */
import type { Browser, BrowserContext, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { builtinAgents, type Agent } from 'holdfast'
import { violationsInEveryForm } from '../support/axe.ts'
import { Complaints, launchChromium } from '../support/chromium.ts'
import { gate } from '../support/gate.ts'
import { secretOf, TokenFiles } from '../support/principals.ts'
import { serve, type TestServer } from '../support/server.ts'

const MANY = 700
const HOSTILE = '<img src=x onerror=alert(1)>\u202e%00"\'&lt;'

let browser: Browser
let server: TestServer
let context: BrowserContext
let complaints: Complaints
let held = gate()

const halting: Agent = async () => {
  await held.opened
  return 'done'
}

const failing: Agent = async () => {
  throw new Error('no')
}

beforeAll(async () => {
  browser = await launchChromium()
  server = await serve({ agents: { ...builtinAgents, halting, failing } })
  const { holdfast } = server
  const ids = Array.from({ length: MANY }, (_, n) => n)
  await Promise.all(ids.map((n) => holdfast.resolve({ key: `many:${n}`, labels: { set: 'many' } })))
  await holdfast.resolve({ key: `Find ${HOSTILE}`, labels: { [HOSTILE]: HOSTILE, set: 'few' } })
  await holdfast.resolve({ key: 'FIND me', labels: { set: 'few', team: 'blue moon' } })
  await holdfast.turn({ key: 'broken', agent: 'failing', labels: { set: 'few' } }, 'x').then(
    () => undefined,
    () => undefined,
  )
  await (await holdfast.resolve({ key: 'over', labels: { set: 'few' } })).close()
})
afterAll(async () => {
  await browser.close()
  await server.close()
})
beforeEach(async () => {
  held = gate()
  context = await browser.newContext()
  context.setDefaultTimeout(40_000)
  complaints = new Complaints(context)
})
afterEach(async () => {
  held.open()
  await context.close()
  expect(complaints.own).toEqual([])
})

async function visit(query = ''): Promise<Page> {
  const page = await context.newPage()
  await page.goto(`${server.url}/#/sessions?${query}`)
  return page
}

const names = (page: Page): Promise<string[]> =>
  page.locator('.session-row .cell-name').allTextContents()
const counted = (page: Page): Promise<string | null> =>
  page.locator('.view-head [role=status]').textContent()

describe('the list of sessions', () => {
  it('is filtered, sorted and counted on the server, by what the address says', async () => {
    const page = await visit('q=find&sort=created')
    await expect.poll(() => names(page)).toHaveLength(2)
    expect((await names(page))[0]).toBe('FIND me')
    await expect.poll(() => counted(page)).toBe('2')
    await page.goto(`${server.url}/#/sessions?state=all&label=set:few&sort=created&order=asc`)
    await expect.poll(() => names(page)).toHaveLength(4)
    expect((await names(page)).slice(1)).toEqual(['FIND me', 'broken', 'over'])
    await page.goto(`${server.url}/#/sessions?status=failed&agent=failing`)
    await expect.poll(() => names(page)).toEqual(['broken'])
    await page.goto(`${server.url}/#/sessions?label=set:few team:blue%2520moon`)
    await expect.poll(() => names(page)).toEqual(['FIND me'])
  })

  it('keeps each filter in the address, where Back and a reload find it', async () => {
    const page = await visit()
    await page.getByLabel('Show only sessions with this status').selectOption('failed')
    await expect.poll(() => names(page)).toEqual(['broken'])
    await page.getByLabel('Text in the key').fill('nothing has this')
    await page.getByText('No sessions here.').waitFor()
    await page.reload()
    await page.getByText('No sessions here.').waitFor()
    expect(await page.getByLabel('Text in the key').inputValue()).toBe('nothing has this')
    await page.getByRole('button', { name: 'Clear' }).click()
    await expect.poll(() => counted(page)).toBe(String(MANY + 3))
    await page.goBack()
    await page.getByText('No sessions here.').waitFor()
  })

  it('shows hostile keys and labels as text, and fits a phone, for everybody', async () => {
    const page = await visit('label=set:few&state=all')
    await expect.poll(() => names(page)).toHaveLength(4)
    expect((await names(page)).join()).toContain('<img src=x onerror=alert(1)>')
    expect(await page.locator('.session-row img').count()).toBe(0)
    expect(await violationsInEveryForm(page)).toEqual([])
  })

  it('reads on while it is scrolled, and has few rows in the document', async () => {
    const page = await visit('label=set:many&sort=created&order=asc')
    await page.getByText('many:0', { exact: true }).waitFor()
    const last = page.getByText(`many:${MANY - 1}`, { exact: true })
    await expect
      .poll(async () => {
        await page.locator('.list').evaluate((list: any) => list.scrollTo(0, list.scrollHeight))
        return last.count()
      })
      .toBe(1)
    expect(await page.locator('.session-row').count()).toBeLessThan(100)
  })

  it('follows what happens without a reload, and does not move while it is scrolled', async () => {
    const page = await visit('label=set:many')
    await expect.poll(() => names(page)).not.toHaveLength(0)
    const { id } = await server.holdfast.resolve({
      key: 'live',
      agent: 'halting',
      labels: { set: 'many' },
    })
    const turn = server.holdfast.session(id).turn('x')
    const row = page.locator(`[data-session="${id}"]`)
    await expect.poll(() => row.getAttribute('data-status')).toBe('running')
    expect((await names(page))[0]).toBe('live')
    await expect.poll(() => counted(page)).toBe(String(MANY + 1))
    await page.locator('.list').evaluate((list: any) => list.scrollTo(0, 4_400))
    await row.waitFor({ state: 'detached' })
    const name = await page.locator('.session-row').nth(15).getAttribute('data-session')
    const shown = page.locator(`[data-session="${name}"]`)
    const before = await shown.boundingBox()
    held.open()
    await turn
    await page.getByRole('button', { name: '1 changed' }).waitFor()
    expect(await shown.boundingBox()).toEqual(before)
    await page.getByRole('button', { name: '1 changed' }).click()
    await expect.poll(() => row.getAttribute('data-status')).toBe('idle')
    await server.holdfast.session(id).close()
    await row.waitFor({ state: 'detached' })
  })

  it('goes on after it was offline', async () => {
    const page = await visit('label=set:offline')
    await page.getByText('No sessions here.').waitFor()
    await context.setOffline(true)
    await server.holdfast.resolve({ key: 'meanwhile', labels: { set: 'offline' } })
    await context.setOffline(false)
    await expect.poll(() => names(page)).toEqual(['meanwhile'])
  })

  it('takes the token that holdfast inspect hands over, and leaves it nowhere', async () => {
    const files = await TokenFiles.make()
    const guarded = await serve({ tokens: await files.open() })
    const page = await context.newPage()
    await page.goto(`${guarded.url}/#/token/${secretOf('admin')}`)
    await page.getByRole('heading', { name: 'Home' }).waitFor()
    expect(page.url()).toBe(`${guarded.url}/#/`)
    await page.reload()
    await page.getByRole('heading', { name: 'Home' }).waitFor()
    expect(await page.getByRole('dialog').count()).toBe(0)
    await page.close()
    await guarded.close()
    await files.remove()
  })
})
