/**
 * The real Claude Code, whose permission requests a person answers at the inspector in Chromium, with
 * a stub for the model. `npm run e2e:agents` runs this.
 */
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { mkdtemp, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser, BrowserContext, Locator } from 'playwright-core'
import { afterAll, beforeAll, beforeEach, afterEach, describe, expect, it } from 'vitest'
import { claudeRunner } from 'holdfast'
import { Complaints, launchChromium, SessionTab } from '../support/chromium.ts'
import { offline, programOf } from '../support/real-agents.ts'
import { serve, type TestServer } from '../support/server.ts'
import { StubModel } from '../support/stub-model.ts'

describe('a permission request of Claude Code at the page', () => {
  let folder: string
  let work: string
  let model: StubModel
  let server: TestServer
  let browser: Browser
  let context: BrowserContext
  let complaints: Complaints
  let tab: SessionTab
  let ask: Locator

  beforeAll(async () => {
    folder = await realpath(await mkdtemp(join(tmpdir(), 'holdfast-page-')))
    work = join(folder, 'work')
    mkdirSync(work)
    model = await StubModel.start()
    // It leaves a folder where temporary files are.
    const TMPDIR = join(folder, 'tmp')
    mkdirSync(TMPDIR)
    const env = { ...(await offline('claude', join(folder, 'home'), model.url)), TMPDIR }
    const command = programOf('claude')
    const claude = claudeRunner({ command, folder: join(folder, 'agents'), cwd: work, env })
    server = await serve({ agents: { claude } })
    browser = await launchChromium()
  })
  beforeEach(async () => {
    context = await browser.newContext()
    complaints = new Complaints(context)
    const { body } = await server.post('/v1/sessions', {})
    tab = await SessionTab.open(context, server.url, body.id as string)
    await tab.is('live')
    ask = tab.page.locator('.ask')
  })
  afterEach(async () => {
    await context.close()
    expect(complaints.own).toEqual([])
  })
  afterAll(async () => {
    await browser.close()
    await server.close()
    await model.close()
    await rm(folder, { recursive: true, force: true, maxRetries: 5 })
  })

  const file = (name: string): string => join(work, name)
  const write = (name: string, content: string): Promise<void> =>
    tab.write(`tool Write ${JSON.stringify({ file_path: file(name), content })}`)
  const choose = (option: string): Promise<void> => ask.locator(`[data-option=${option}]`).click()

  it('shows the command with its time, and runs it when it is allowed', async () => {
    await tab.write(`tool Bash ${JSON.stringify({ command: `touch ${file('made')}` })}`)
    await ask
      .getByLabel('Command')
      .getByText(`touch ${file('made')}`)
      .waitFor()
    expect(await ask.locator('[data-left]').textContent()).toMatch(/^\d+ min( \d+ s)? left$/)
    expect(existsSync(file('made'))).toBe(false)
    await choose('allow')
    await tab.done(1)
    expect(existsSync(file('made'))).toBe(true)
  })

  it('shows the change, and does it with the arguments that the person has changed', async () => {
    await write('edited.txt', 'theirs\n')
    await ask.locator('[data-change=added]').getByText('+theirs').waitFor()
    await ask.getByText('Change the arguments').click()
    const text = ask.getByLabel('Arguments as JSON')
    const input = JSON.parse(await text.inputValue()) as object
    await text.fill(JSON.stringify({ ...input, content: 'mine\n' }))
    await choose('allow')
    await tab.done(1)
    expect(readFileSync(file('edited.txt'), 'utf8')).toBe('mine\n')
  })

  it('is denied with words that the agent gets', async () => {
    await write('denied.txt', 'x\n')
    await ask.getByLabel('Words for the agent').fill('write elsewhere')
    await choose('deny')
    await tab.done(1)
    expect((await tab.bubbles()).at(-1)).toContain('write elsewhere')
    expect(existsSync(file('denied.txt'))).toBe(false)
  })

  it('is not asked again for what is always allowed', async () => {
    await write('first.txt', 'x\n')
    await choose('allow_always')
    await tab.done(1)
    await write('second.txt', 'y\n')
    await tab.done(2)
    expect(readFileSync(file('second.txt'), 'utf8')).toBe('y\n')
    expect(await ask.count()).toBe(0)
  })
})
