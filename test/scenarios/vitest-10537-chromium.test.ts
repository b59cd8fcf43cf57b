/**
 * Vitest #10537, by the report's own steps in a real browser: open the page, run, reload the tab, run
 * again. There it showed the old result and looked alive, and the next run froze with "Invalid session
 * ID": the live session was destroyed with its socket, while a second list still let the page in.
 *
 * The rule: a page that comes back works, and one that cannot come back says so at once and offers what
 * to do. Chromium opens a reloaded page's socket before or after it closes the old one, as it happens.
 */
import type { Browser, BrowserContext } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { builtinAgents, type Agent } from 'holdfast'
import { Complaints, launchChromium, SessionTab } from '../support/chromium.ts'
import { gate, type Gate } from '../support/gate.ts'
import { someOf } from '../support/nodes-under-test.ts'
import { serve, type TestServer } from '../support/server.ts'

const WORDS = 'one two three four five six seven eight nine ten'

describe('Vitest #10537 in Chromium', () => {
  let browser: Browser
  let server: TestServer
  let context: BrowserContext
  let complaints: Complaints
  /** The agent `halting` says the second half of what it says after this. */
  let reloaded: Gate

  const halting: Agent = async function* ({ text }) {
    for (const [index, word] of text.split(/(?<=\s)/).entries()) {
      if (index === 5) await reloaded.opened
      yield word
    }
  }

  beforeAll(async () => {
    browser = await launchChromium()
    // A page that lives is not taken for a silent one, however busy the machine is.
    const connectLimits = { probeMs: 30_000 }
    server = await serve({ agents: { ...builtinAgents, halting }, connectLimits })
  })
  afterAll(async () => {
    await browser.close()
    await server.close()
  })
  beforeEach(async () => {
    context = await browser.newContext()
    context.setDefaultTimeout(40_000)
    complaints = new Complaints(context)
  })
  afterEach(async () => {
    await context.close()
    expect(complaints.all).toEqual([])
  })

  const create = async (options: object): Promise<string> =>
    (await server.post('/v1/sessions', options)).body.id as string
  const open = async (session: string): Promise<SessionTab> => {
    const tab = await SessionTab.open(context, server.url, session)
    await tab.is('live')
    return tab
  }

  it.each(someOf(['early', 'resume', 'reopen']))(
    'runs after a reload before work: %s',
    async (policy) => {
      const tab = await open(await create({ reconnect: policy }))
      await tab.takePart()
      await tab.page.reload()
      await tab.is('live')
      await tab.say('run')
      expect(await tab.bubbles()).toEqual(['run', 'run'])
      expect(await tab.places()).toContain('resumed')
    },
  )

  it.each(someOf(['resume', 'reopen']))('runs, is reloaded and runs again: %s', async (policy) => {
    const tab = await open(await create({ reconnect: policy }))
    await tab.say('run')
    await tab.page.reload()
    await tab.is('live')
    await tab.done(1)
    expect(await tab.bubbles()).toEqual(['run', 'run'])
    await tab.say('re-run')
    expect(await tab.bubbles()).toEqual(['run', 'run', 're-run', 're-run'])
  })

  it.each(
    someOf([
      ['none', 'before work', 0],
      ['none', 'after work', 1],
      ['early', 'after work', 1],
    ] as const),
  )('says at once that it is over, and starts anew: %s, %s', async (reconnect, _, turns) => {
    const tab = await open(await create({ reconnect, key: `over ${reconnect} ${turns}` }))
    await tab.takePart()
    for (let turn = 0; turn < turns; turn += 1) await tab.say('run')
    await tab.page.reload()
    await tab.is('ended')
    const { sentence, buttons } = await tab.banner()
    expect(sentence).toMatch(/^This session is over: |^This session cannot be taken up again/)
    expect(buttons).toEqual(['Start a new session'])
    expect(await tab.page.getByRole('button', { name: 'Send' }).isDisabled()).toBe(true)
    await tab.press('Start a new session')
    await tab.is('live')
    await tab.say('re-run')
    expect(await tab.bubbles()).toEqual(['re-run', 're-run'])
    expect(
      (await server.get(`/v1/sessions?state=open&key=over ${reconnect} ${turns}`)).body,
    ).toMatchObject({ sessions: [{}] })
  })

  it.each(someOf(['resume', 'reopen']))(
    'shows the whole answer once after a reload in it: %s',
    async (p) => {
      reloaded = gate()
      const tab = await open(await create({ reconnect: p, agent: 'halting' }))
      await tab.write(WORDS)
      const half = tab.page.locator('.bubble[data-live]', { hasText: 'one two three four five' })
      await half.waitFor()
      await tab.page.reload()
      await half.waitFor()
      reloaded.open()
      await tab.done(1)
      expect(await tab.bubbles()).toEqual([WORDS, WORDS])
    },
  )

  it('lets two tabs talk in one session, and both see everything', async () => {
    const session = await create({})
    const [one, two] = [await open(session), await open(session)]
    await one.say('from one')
    await two.done(1)
    await two.say('from two')
    await one.done(2)
    const all = ['from one', 'from one', 'from two', 'from two']
    expect(await one.bubbles()).toEqual(all)
    expect(await two.bubbles()).toEqual(all)
  })

  it('refuses a copied address of an exclusive session, and takes over when told to', async () => {
    const session = await create({ exclusive: true })
    const one = await open(session)
    await one.say('run')
    const two = await open(session)
    await two.press('Take part')
    expect(await two.banner()).toEqual({
      sentence: 'This session is open in another tab or program, which drives it.',
      buttons: ['Take over', 'Watch only'],
    })
    await one.say('still mine')
    await two.press('Take over')
    await two.is('live')
    expect(await one.banner()).toEqual({
      sentence: 'Continued in another tab.',
      buttons: ['Continue here'],
    })
    await two.say('now mine')
    await one.press('Continue here')
    await one.is('live')
    await one.done(3)
    expect((await two.banner()).sentence).toBe('Continued in another tab.')
  })

  it('refuses a cloned tab with the same resume token, which may watch', async () => {
    const one = await open(await create({ exclusive: true, reconnect: 'resume' }))
    await one.takePart()
    const opened = context.waitForEvent('page')
    // The new tab gets a copy of this one's session storage.
    await one.page.evaluate('void window.open(location.href)')
    const two = new SessionTab(await opened)
    await two.is('ended')
    expect((await two.banner()).buttons).toContain('Take over')
    await two.press('Watch only')
    await two.page.getByText('Live, watching').waitFor()
    await one.say('run')
    await two.done(1)
    expect(await two.bubbles()).toEqual(['run', 'run'])
  })

  it('gives a cloned tab of a shared session a place of its own', async () => {
    const one = await open(await create({ reconnect: 'resume' }))
    const opened = context.waitForEvent('page')
    await one.page.evaluate('void window.open(location.href)')
    const two = new SessionTab(await opened)
    await two.is('live')
    await two.say('from the copy')
    await one.say('from the first')
    expect(await two.places()).toEqual(['opened', 'opened'])
  })

  it('survives reload after reload, whichever socket is the faster', async () => {
    const tab = await open(await create({ reconnect: 'resume', exclusive: true }))
    const [rounds = 0] = someOf([10, 3])
    for (let round = 1; round <= rounds; round += 1) {
      await tab.page.reload()
      await tab.is('live')
      await tab.say(`round ${round}`)
    }
    expect((await tab.bubbles()).length).toBe(2 * rounds)
    expect(await tab.places('opened')).toEqual(['opened'])
  })
})
