/** The inspector's view of browsers: a person looks at pages of other clients, and uses them by hand. */
import { chromium, type Browser, type BrowserContext, type Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest'
import { violationsInEveryForm } from '../support/axe.ts'
import { serveCdp, Site, type CdpServer } from '../support/cdp-server.ts'
import { Complaints, launchChromium } from '../support/chromium.ts'
import { until } from '../support/gate.ts'

const HOSTILE = '<img src=x onerror=alert(1)>\u202Egnp.exe'
const FORM = `<meta charset=utf-8><title>a form</title><body style="margin:0;height:3000px">
  <input style="position:absolute;left:0;top:0;width:300px;height:60px">
  <button style="position:absolute;left:0;top:100px;width:300px;height:60px"
    onclick="result = confirm('Really?')">ask</button>`

let site: Site
let server: CdpServer
/** The browser of the person who looks. */
let front: Browser
let context: BrowserContext
let complaints: Complaints
/** A program that works behind the server. */
let program: Browser

beforeAll(async () => {
  site = await new Site().start()
  site.pages['/form'] = FORM
  site.pages['/hostile'] = `<meta charset=utf-8><title>${HOSTILE.replaceAll('<', '&lt;')}</title>`
  server = await serveCdp()
  front = await launchChromium()
})
afterAll(async () => {
  await front.close()
  await server.close()
  await site.close()
})
beforeEach(async () => {
  program = await chromium.connectOverCDP(server.url)
  context = await front.newContext()
  context.setDefaultTimeout(40_000)
  complaints = new Complaints(context)
})
afterEach(async () => {
  await context.close()
  await program.close()
  expect(complaints.own).toEqual([])
})

/** The page of the program, and the inspector's page of all browsers. */
async function look(path: string): Promise<{ readonly worked: Page; readonly page: Page }> {
  const [worked] = program.contexts()[0]?.pages() ?? []
  if (worked === undefined) throw new Error('the program has no page')
  await worked.goto(site.url + path)
  const page = await context.newPage()
  await page.goto(`${server.server.url}/#/browsers`)
  return { worked, page }
}

/** Presses where the page behind has this point. */
async function press(page: Page, x: number, y: number, width: number): Promise<void> {
  const box = await page.locator('.screen img').boundingBox()
  if (box === null) throw new Error('the page is not shown')
  const scale = box.width / width
  await page.mouse.click(box.x + x * scale, box.y + y * scale)
}

it('shows each session with a picture, and any title as the text that it is', async () => {
  const { page } = await look('/hostile')
  const card = page.locator('.browser-card')
  await card.getByText('<img src=x onerror=alert(1)>\uFFFDgnp.exe').waitFor()
  await card.locator('img').waitFor()
  expect(await violationsInEveryForm(page)).toEqual([])
  await card.click()
  await page.getByText('Browser chromium · shared · 1 client · 1 page').waitFor()
  await page.locator('.picture img').waitFor()
  expect(await violationsInEveryForm(page)).toEqual([])
  await page.reload()
  await page.locator('.picture img').waitFor()
  await page.goBack()
  await card.waitFor()
})

it('lets a person use a page by mouse and keys, and answer what it asks', async () => {
  const { worked, page } = await look('/form')
  // The program leaves dialogs to the person.
  worked.on('dialog', () => undefined)
  await page.locator('.browser-card').click()
  await page.getByRole('button', { name: 'Take over' }).click()
  await page.locator('.screen img').waitFor()
  expect(await violationsInEveryForm(page)).toEqual([])
  await page.setViewportSize({ width: 1280, height: 900 })
  const width = await worked.evaluate<number>('innerWidth')
  await press(page, 20, 20, width)
  await page.keyboard.type('By hand')
  const valueIs = (text: string) =>
    until(async () => (await worked.evaluate('document.querySelector("input").value')) === text)
  await valueIs('By hand')
  await page.keyboard.press('Backspace')
  await valueIs('By han')
  await page.getByLabel('Text for the page').fill('ds 漢字')
  await page.getByRole('button', { name: 'Insert' }).click()
  await valueIs('By hands 漢字')
  await page.mouse.wheel(0, 200)
  await press(page, 20, 130, width)
  await page.getByText('The page says: Really?').waitFor()
  await page.getByRole('button', { name: 'OK' }).click()
  await until(async () => (await worked.evaluate('window.result')) === true)
  await page.getByRole('button', { name: 'Done' }).click()
  await page.getByRole('button', { name: 'Take over' }).waitFor()
  expect(worked.url()).toBe(`${site.url}/form`)
})

it('goes where the person says, and back', async () => {
  const { worked, page } = await look('/one')
  await page.locator('.browser-card').click()
  await page.getByRole('button', { name: 'Take over' }).click()
  await page.getByLabel('Address of the page').fill(`${site.url}/two`)
  await page.keyboard.press('Enter')
  await until(() => Promise.resolve(worked.url() === `${site.url}/two`))
  await page.getByRole('button', { name: 'Back' }).click()
  await until(() => Promise.resolve(worked.url() === `${site.url}/one`))
})

it('says so when the session ends under a person who looks', async () => {
  const { page } = await look('/one')
  await page.locator('.browser-card').click()
  await page.getByRole('button', { name: 'Take over' }).click()
  await page.locator('.screen img').waitFor()
  const session = new URL(page.url()).hash.split('/').at(-1) ?? ''
  await fetch(`${server.server.url}/v1/sessions/${session}`, { method: 'DELETE' })
  await page.getByText('No browser has this session now.').waitFor()
})

it('is the first tab of its session, which has no box to say something', async () => {
  const { page } = await look('/form')
  await page.locator('.browser-card').click()
  await page.getByRole('link', { name: 'Open the session' }).click()
  await page.locator('.panel[data-tab=browser] .picture img').waitFor()
  await page.getByRole('button', { name: 'Take over' }).waitFor()
  expect(await violationsInEveryForm(page)).toEqual([])
  await page.getByRole('tab', { name: 'Conversation' }).click()
  await page.getByText('This is a browser session').waitFor()
  expect(await page.getByLabel('What to say').count()).toBe(0)
})
