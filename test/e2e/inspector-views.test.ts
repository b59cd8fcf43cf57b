/** Every view of the inspector that is not inside one session, as a person meets it. */
import type { Browser, BrowserContext, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { axeViolations, violationsInEveryForm } from '../support/axe.ts'
import { Complaints, launchChromium } from '../support/chromium.ts'
import { serve, type TestServer } from '../support/server.ts'

let browser: Browser
let server: TestServer
let context: BrowserContext
let complaints: Complaints

beforeAll(async () => {
  browser = await launchChromium()
  server = await serve()
})
afterAll(async () => {
  await browser.close()
  await server.close()
})
beforeEach(async () => {
  context = await browser.newContext()
  complaints = new Complaints(context)
})
afterEach(async () => {
  await context.close()
  expect(complaints.own).toEqual([])
})

async function visit(path: string): Promise<Page> {
  const page = await context.newPage()
  await page.goto(server.url + path)
  await page.locator('main h1').waitFor()
  return page
}

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

  it.each(['/', '/#/sessions', '/#/new', '/#/reload-test'])(
    '%s has no violation of WCAG AA in light or dark, wide or on a phone',
    async (path) => {
      await server.post('/v1/sessions', { key: 'seen', labels: { team: 'docs' } })
      const page = await visit(path)
      expect(await violationsInEveryForm(page)).toEqual([])
    },
  )
})
