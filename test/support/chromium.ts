/** The inspector in a real browser, in a test's hand. */
import { chromium, type Browser, type BrowserContext, type Page } from 'playwright-core'

/** A machine's own Chromium, which opens no connections by itself. */
export function launchChromium(): Promise<Browser> {
  return chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  })
}

/** What a test that breaks the network on purpose cannot help to see in the console. */
const NETWORK = /net::ERR_|WebSocket connection to/

/**
 * Errors of all pages of a context, as they come: in the console, where violations of the content
 * policy are shown too, and those that the page did not catch.
 */
export class Complaints {
  #all: string[] = []

  constructor(context: BrowserContext) {
    context.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning') this.#all.push(message.text())
    })
    context.on('weberror', (error) => this.#all.push(error.error().message))
  }

  get all(): readonly string[] {
    return this.#all
  }

  /** Those that the test brought about itself. */
  forgive(expected: RegExp): void {
    this.#all = this.#all.filter((line) => !expected.test(line))
  }

  /** Without those that a lost network makes. */
  get own(): readonly string[] {
    return this.#all.filter((line) => !NETWORK.test(line))
  }
}

/** The inspector's page of one session. */
export class SessionTab {
  readonly page: Page

  constructor(page: Page) {
    this.page = page
  }

  static async open(context: BrowserContext, url: string, session: string): Promise<SessionTab> {
    const tab = new SessionTab(await context.newPage())
    await tab.page.goto(`${url}/#/session/${session}`)
    return tab
  }

  /** Waits until the connection is so. */
  async is(state: 'live' | 'reconnecting' | 'ended'): Promise<void> {
    await this.page.waitForSelector(`.badge[data-state=${state}]`)
  }

  async write(text: string): Promise<void> {
    await this.page.getByLabel('What to say').fill(text)
    await this.page.getByRole('button', { name: 'Send' }).click()
  }

  /** Sends it, and waits for the end of its turn. */
  async say(text: string): Promise<void> {
    const done = this.page.locator('.turn[data-turn][data-state=done]')
    const before = await done.count()
    await this.write(text)
    await done.nth(before).waitFor()
  }

  /** Waits until so many turns are done. */
  async done(turns: number): Promise<void> {
    await this.page
      .locator('.turn[data-turn][data-state=done]')
      .nth(turns - 1)
      .waitFor()
  }

  /** All bubbles, oldest first. */
  async bubbles(): Promise<string[]> {
    return this.page.locator('.turn[data-turn] .bubble').allTextContents()
  }

  /** The sentence and the buttons that the page offers, once it offers any. */
  async banner(): Promise<{ readonly sentence: string; readonly buttons: string[] }> {
    const banner = this.page.locator('.banner')
    await banner.waitFor()
    const sentence = (await banner.locator('p').textContent()) ?? ''
    return { sentence, buttons: await banner.getByRole('button').allTextContents() }
  }

  async press(button: string): Promise<void> {
    await this.page.getByRole('button', { name: button, exact: true }).click()
  }

  /** From now on the page is one of the session's drivers. */
  async takePart(): Promise<void> {
    await this.press('Take part')
    await this.page.locator('.badge').getByText('Live', { exact: true }).waitFor()
  }

  /** What the log shows of the attachments: `opened`, `resumed`, …; or only one of these. */
  async places(only = ''): Promise<string[]> {
    await this.page.getByRole('tab', { name: 'Log' }).click()
    const entries = this.page.locator('.log [data-type]')
    await entries.first().waitFor()
    // Only those that are in sight are in the page: few enough are left.
    await this.page.getByLabel('Show only events that contain this').fill(`"attachment.${only}`)
    const others = this.page.locator('.log [data-type]:not([data-type^="attachment."])')
    await others.first().waitFor({ state: 'detached' })
    const types = await entries.evaluateAll((all) =>
      all.map((entry) => entry.getAttribute('data-type') ?? ''),
    )
    await this.page.getByRole('tab', { name: 'Conversation' }).click()
    const prefix = 'attachment.'
    return types.filter((type) => type.startsWith(prefix)).map((type) => type.slice(prefix.length))
  }
}
