/** The inspector in a real Chromium, used as a person uses it. No test may leave an error in its console. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import type { Browser, BrowserContext, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { builtinAgents, type Agent } from 'holdfast'
import { Complaints, launchChromium, SessionTab } from '../support/chromium.ts'
import { gate } from '../support/gate.ts'
import { serve, type TestServer } from '../support/server.ts'
import { isWhole } from '../support/whole.ts'

const OFFLINE_MS = isWhole ? 20_000 : 2_000

let browser: Browser
let server: TestServer
let context: BrowserContext
let complaints: Complaints
let names = 0

beforeAll(async () => {
  browser = await launchChromium()
  // A page that lives is not taken for a silent one, however busy the machine is.
  const connectLimits = { probeMs: 6_000 }
  server = await serve({
    agents: { ...builtinAgents, halting, careful, sloppy, picky, viewer },
    connectLimits,
  })
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
  expect(complaints.own).toEqual([])
})

function newKey(): string {
  names += 1
  return `key ${names}`
}

async function create(options: object = {}): Promise<string> {
  return (await server.post('/v1/sessions', options)).body.id as string
}

async function open(session: string): Promise<SessionTab> {
  const tab = await SessionTab.open(context, server.url, session)
  await tab.is('live')
  return tab
}

async function visit(path: string): Promise<Page> {
  const page = await context.newPage()
  await page.goto(server.url + path)
  return page
}

let halted = gate()

const viewer: Agent = Object.assign((async () => 'seen') satisfies Agent, {
  capabilities: { images: true, files: true },
})

/** Says its first word, and the others when it may, unless it is stopped before. */
const halting: Agent = async function* ({ text }, { signal }) {
  const [first = '', ...others] = text.split(/(?<=\s)/)
  yield first
  const stopped = new Promise((resolve) => signal.addEventListener('abort', resolve))
  await Promise.race([halted.opened, stopped])
  yield* others
}

/** Says how its question was settled, which is at once if no client is there to ask. */
const careful: Agent = async (_turn, context) => {
  const options = [{ id: 'allow', label: 'allow' }]
  const question = { kind: 'permission', question: 'May I?', options, onNobody: 'deny' } as const
  return (await context.ask(question)).outcome
}

/** Uses a tool, and asks twice. */
const picky: Agent = async function* (_turn, { ask }) {
  const call = { id: 'x', name: 'Bash', kind: 'execute', input: { command: 'npm test' } }
  yield { type: 'activity', kind: 'tool', data: { ...call, status: 'running' } }
  yield { type: 'activity', kind: 'tool', data: { id: 'x', status: 'done' } }
  const asked = { kind: 'question', options: ['red', 'green', 'blue'] }
  const both = [
    await ask({ ...asked, question: 'Which?', accepts: ['several'] }),
    await ask({ ...asked, question: 'And now?', accepts: ['text'] }),
  ]
  const answers = both.map((outcome) => 'answer' in outcome && JSON.stringify(outcome.answer))
  return answers.join(' ')
}

/** Asks what is no text, as an agent in JavaScript may. */
const sloppy: Agent = async ({ text }, context) => {
  const question = JSON.parse(text) as string
  return (await context.ask({ kind: 'permission', question, options: ['allow'] })).outcome
}

/** Nothing is wider than the window. */
async function fits(page: Page): Promise<boolean> {
  return page.evaluate<boolean>('document.documentElement.scrollWidth <= window.innerWidth')
}

describe('the page', () => {
  it('comes with a policy that allows nothing from elsewhere, and nothing inline', async () => {
    const { headers, body } = await server.get('/')
    const policy = headers.get('content-security-policy') ?? ''
    const parts = ["default-src 'none'", "script-src 'self'", "style-src 'self'"]
    for (const part of [...parts, "connect-src 'self'", "frame-ancestors 'none'"]) {
      expect(policy.split('; ')).toContain(part)
    }
    expect(policy).not.toContain('unsafe')
    expect(headers.get('referrer-policy')).toBe('no-referrer')
    expect(body).not.toMatch(/<style|style=|<script>|\son\w+=|https?:\/\/(?!www\.w3\.org)/)
  })

  it('is small: all that it loads is under 150 kB compressed', async () => {
    const paths = ['/', '/assets/inspector/main.js', '/assets/inspector/inspector.css']
    const files = await Promise.all(paths.map((path) => fetch(server.url + path)))
    const texts = await Promise.all(files.map((file) => file.text()))
    const bytes = texts.map((text) => gzipSync(text).length)
    expect(bytes.reduce((sum, size) => sum + size)).toBeLessThan(150_000)
    expect(Math.min(...bytes)).toBeGreaterThan(0)
  })

  it('has only its own files to give', async () => {
    const paths = ['server/server.js', 'core/authority.js', 'inspector/main.ts', 'x/..%2Fmain.js']
    for (const path of paths) {
      expect((await server.get(`/assets/${path}`)).status, path).toBeGreaterThanOrEqual(400)
    }
    const module = await server.get('/assets/inspector/main.js')
    expect(module.headers.get('content-type')).toBe('text/javascript; charset=utf-8')
  })

  it('asks this server for everything, and no other', async () => {
    const hosts = new Set<string>()
    context.on('request', (request) => hosts.add(new URL(request.url()).host))
    const tab = await open(await create())
    await tab.say('hello')
    expect([...hosts].filter((host) => host !== '')).toEqual([new URL(server.url).host])
    expect(complaints.all).toEqual([])
  })
})

describe('the list', () => {
  it('shows sessions as they come and close, by state and by a part of the key', async () => {
    const [kept, closed] = [newKey(), newKey()]
    const page = await visit('/#/sessions')
    await create({ key: kept })
    const id = await create({ key: closed })
    const list = page.locator('.list')
    await list.getByText(kept, { exact: true }).waitFor()
    await list.getByText(closed, { exact: true }).waitFor()
    await server.delete(`/v1/sessions/${id}`)
    await list.getByText(closed, { exact: true }).waitFor({ state: 'detached' })
    await page.getByLabel('in this state').selectOption('closed')
    await list.getByText(closed, { exact: true }).waitFor()
    await page.getByLabel('in this state').selectOption('all')
    await page.getByRole('searchbox').fill(kept.slice(1))
    await list.getByText(closed, { exact: true }).waitFor({ state: 'detached' })
    await list.getByText(kept, { exact: true }).click()
    await new SessionTab(page).is('live')
  })

  it('leads to a form that creates a session as it is told', async () => {
    const key = newKey()
    const page = await visit('/#/sessions')
    await page.getByRole('link', { name: 'New session' }).click()
    await page.getByRole('textbox', { name: 'Key' }).fill(key)
    await page.getByLabel('Agent').fill('slow')
    await page.getByLabel('When a connection is lost').selectOption('resume')
    await page.getByLabel('Seconds').fill('12.5')
    await page.getByLabel('Exclusive').check()
    await page.getByRole('button', { name: 'Create' }).click()
    await new SessionTab(page).is('live')
    const { sessions } = (await server.get(`/v1/sessions?key=${encodeURIComponent(key)}`)).body
    expect((await server.get(`/v1/sessions/${sessions[0].id}`)).body).toMatchObject({
      agent: 'slow',
      reconnect: 'resume',
      graceMs: 12_500,
      exclusive: true,
    })
  })

  it('says what was wrong with a session that cannot be created', async () => {
    const page = await visit('/#/new')
    await page.getByLabel('Agent').fill('nobody')
    await page.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('alert').filter({ hasText: 'nobody' }).waitFor()
    // Chromium tells of every refused request; this one was meant.
    expect(complaints.all).toHaveLength(1)
    complaints.forgive(/422/)
  })
})

describe('one session', () => {
  it('streams the answer, stops it on request and shows how it ended', async () => {
    const tab = await open(await create({ agent: 'halting' }))
    await tab.write('one two three four five six')
    await tab.page.locator('.bubble[data-live]', { hasText: 'one' }).waitFor()
    await tab.press('Stop the turn')
    await tab.page.locator('.turn[data-state=cancelled]').waitFor()
    expect((await tab.bubbles())[1]).toMatch(/^one /)
    expect(await tab.page.locator('.turn .state').textContent()).toContain('cancelled')
  })

  it('shows the images of a message, and the names of its files', async () => {
    const session = await create({ agent: 'viewer' })
    const pixel =
      'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
    const parts = [
      { type: 'text', text: 'look' },
      { type: 'image', mediaType: 'image/png', data: pixel },
      { type: 'image', mediaType: 'image/svg+xml', name: 'bad.svg', data: btoa('<svg/>') },
      { type: 'file', name: 'notes.txt', mediaType: 'text/plain', data: btoa('notes') },
    ]
    await server.post(`/v1/sessions/${session}/turns`, { input: { parts } })
    const { page } = await open(session)
    const question = page.locator('.bubble.user')
    await question.locator('img').waitFor()
    expect(await question.locator('img').evaluate((image: any) => image.naturalWidth)).toBe(1)
    const files = question.locator('button.file')
    expect(await files.allTextContents()).toEqual(['bad.svg (1 kB)', 'notes.txt (1 kB)'])
    const saved = page.waitForEvent('download')
    await files.last().click()
    expect((await saved).suggestedFilename()).toBe('notes.txt')
  })

  it('gives up a turn at once where the session is busy and it is told to', async () => {
    halted = gate()
    const tab = await open(await create({ agent: 'halting' }))
    await tab.write('one two three four five six')
    await tab.page.locator('.bubble[data-live]').waitFor()
    await tab.page.getByLabel('If a turn runs').selectOption('reject')
    await tab.write('me too')
    await tab.page.getByRole('alert').filter({ hasText: 'Not sent' }).waitFor()
    expect(await tab.page.getByLabel('What to say').inputValue()).toBe('me too')
    halted.open()
    await tab.done(1)
    expect(await tab.bubbles()).toHaveLength(2)
  })

  it('shows what waits, and takes a request back before anything of it has run', async () => {
    halted = gate()
    const session = await create({ agent: 'halting' })
    const post = (input: string, headers = {}) =>
      server.post(`/v1/sessions/${session}/turns`, { input }, headers)
    const runs = post('runs on')
    const tab = await open(session)
    await tab.page.locator('.bubble[data-live]').waitFor()
    const waits = post('never')
    await tab.page.getByRole('tab', { name: 'Queue' }).click()
    const rows = tab.page.locator('.queue li')
    await rows.filter({ hasText: /^1waiting.* by local/ }).waitFor()
    await post('later', { prefer: 'respond-async' })
    await rows.filter({ hasText: /^2queued.* by local/ }).waitFor()
    await rows.first().getByRole('button', { name: 'Cancel' }).click()
    const { status, body } = await waits
    expect([status, body.code]).toEqual([409, 'cancelled'])
    await rows.filter({ hasText: /^1queued/ }).waitFor()
    expect(await rows.first().textContent()).toMatch(/Why is it waiting\? A session runs one turn/)
    expect(await tab.places()).toEqual([])
    halted.open()
    await runs
    await tab.page.getByRole('tab', { name: 'Queue' }).click()
    await tab.page.getByText('Nothing waits.').waitFor()
    await tab.page.getByRole('tab', { name: 'Conversation' }).click()
    await tab.done(2)
    const { events } = (await server.get(`/v1/sessions/${session}/events`)).body
    expect(JSON.stringify(events)).not.toContain('never')
  })

  it('shows its log, each event whole when it is opened', async () => {
    const tab = await open(await create())
    await tab.say('hello')
    await tab.page.getByRole('tab', { name: 'Log' }).click()
    const entry = tab.page.locator('.log [data-type="message.added"]')
    await entry.click()
    expect(JSON.parse((await entry.locator('pre').textContent()) ?? '')).toMatchObject({
      type: 'message.added',
      text: 'hello',
    })
    const seqs = await tab.page.locator('.log .seq').allTextContents()
    expect(seqs).toEqual(seqs.map((_, index) => String(index + 1)))
  })

  it('shows who is attached, and who has gone', async () => {
    const session = await create()
    const tab = await open(session)
    await tab.takePart()
    await tab.page.getByRole('tab', { name: 'Attachments' }).click()
    const other = await open(session)
    await other.takePart()
    await tab.page.locator('.attachments li').nth(1).waitFor()
    await other.page.close()
    await tab.page.locator('.attachments .tag', { hasText: 'may come back' }).waitFor()
    expect(await tab.page.locator('.attachments .tag[data-tone=good]').count()).toBe(1)
  })

  it('is only looked at until its reader takes part, and no agent waits till then', async () => {
    const session = await create({ agent: 'careful' })
    const turn = () => server.post(`/v1/sessions/${session}/turns`, { input: 'x' })
    const tab = await open(session)
    await tab.page.getByText('Live, watching').waitFor()
    const closed = await open(session)
    await closed.page.close()
    expect((await turn()).body.turn.reply.text).toBe('nobody_to_ask')
    expect(await tab.places()).toEqual([])
    await tab.takePart()
    const asked = turn()
    await tab.page.locator('.ask').getByRole('button', { name: 'allow' }).click()
    expect((await asked).body.turn.reply.text).toBe('answered')
    expect(await tab.places()).toEqual(['opened'])
  })

  it('is closed by a second click, for everybody', async () => {
    const session = await create()
    const [one, two] = [await open(session), await open(session)]
    await one.page.getByLabel('More actions').click()
    await one.press('Close session')
    await one.press('Close it for everybody?')
    for (const tab of [one, two]) {
      expect((await tab.banner()).sentence).toBe('This session is over: it was closed.')
    }
  })

  it('shows a session that is over with its log and its conversation, to read', async () => {
    const session = await create()
    const writer = await open(session)
    await writer.say('hello')
    await server.delete(`/v1/sessions/${session}`)
    const reader = await SessionTab.open(context, server.url, session)
    expect((await reader.banner()).buttons).toEqual(['Start a new session'])
    await reader.done(1)
    expect(await reader.bubbles()).toEqual(['hello', 'hello'])
  })

  it('says so where there is none', async () => {
    const tab = await SessionTab.open(context, server.url, 'invented')
    expect((await tab.banner()).sentence).toBe('There is no such session.')
    complaints.forgive(/404/)
  })

  it('shows what a question is about, and takes an answer with words for the agent', async () => {
    const session = await create({ agent: 'ask' })
    const tab = await open(session)
    await tab.write('<b>open</b>\u202E')
    const ask = tab.page.locator('.ask')
    await ask.getByLabel('Command').waitFor()
    expect(await ask.getByLabel('Command').innerText()).toBe('say "<b>open</b>\uFFFD"')
    expect(await ask.locator('[data-change=removed]').innerText()).toContain('-nothing yet')
    expect(await ask.locator('[data-change=added]').innerText()).toContain('+<b>open</b>\uFFFD')
    expect(await ask.locator('[data-left]').innerText()).toMatch(/^(5 min|\d+ s) left$/)
    await ask.getByLabel('Words for the agent').fill('not today')
    await ask.getByRole('button', { name: 'deny' }).click()
    await tab.done(1)
    expect((await tab.bubbles()).at(-1)).toBe('I may not: not today')
  })

  it('takes several options, or an answer in words, and shows tool calls as cards', async () => {
    const tab = await open(await create({ agent: 'picky' }))
    await tab.write('go')
    const ask = tab.page.locator('.ask')
    for (const name of ['red', 'blue']) await ask.getByLabel(name).check()
    await ask.locator('.several').getByRole('button', { name: 'Answer' }).click()
    await ask.getByText('And now?').waitFor()
    await ask.getByLabel('Your own words').fill('none')
    await ask.locator('form.buttons').getByRole('button', { name: 'Answer' }).click()
    await tab.done(1)
    expect((await tab.bubbles()).at(-1)).toBe('["red","blue"] {"text":"none"}')
    const tools = tab.page.locator('.note.tool')
    expect(await tools.count()).toBe(1)
    expect(await tools.getAttribute('data-status')).toBe('done')
    await tools.locator('summary').click()
    expect(await tools.locator('.tool-title').textContent()).toBe('Bash npm test')
    expect(await tools.locator('pre').textContent()).toBe('npm test')
  })

  it('lets a person change the arguments of what is asked, if they are an object', async () => {
    const tab = await open(await create({ agent: 'ask' }))
    await tab.write('the door')
    const ask = tab.page.locator('.ask')
    await ask.getByText('Change the arguments').click()
    const text = ask.getByLabel('Arguments as JSON')
    expect(JSON.parse(await text.inputValue())).toEqual({ text: 'the door' })
    await text.fill('{"text": ')
    await ask.getByRole('button', { name: 'allow' }).click()
    await ask.getByText('must be a JSON object').waitFor()
    await text.fill('{"text": "the gate"}')
    await ask.getByRole('button', { name: 'allow' }).click()
    await tab.done(1)
    expect(await tab.bubbles()).toEqual(['the door', 'the gate'])
  })

  it('offers no change of arguments to a link that may only answer', async () => {
    const session = await create({ agent: 'ask' })
    const body = { scopes: ['talk', 'answer'], expiresInMs: 60_000 }
    const { url } = (await server.post(`/v1/sessions/${session}/links`, body)).body
    const page = await context.newPage()
    await page.goto(new URL(url, server.url).href)
    const tab = new SessionTab(page)
    await tab.is('live')
    await tab.write('the door')
    await page.locator('.ask').getByRole('button', { name: 'allow' }).click()
    expect(await page.locator('.ask .edit').count()).toBe(0)
    await tab.done(1)
  })

  it('keeps a question over a reload; answered in one tab, it is gone in the other', async () => {
    const session = await create({ agent: 'ask' })
    const [one, two] = [await open(session), await open(session)]
    await one.write('open the door')
    await one.page.locator('.ask').waitFor()
    await one.page.reload()
    for (const { page } of [one, two]) await page.locator('.ask').waitFor()
    await one.page.locator('.ask').getByRole('button', { name: 'allow' }).click()
    for (const tab of [one, two]) {
      await tab.page.locator('.ask').waitFor({ state: 'detached' })
      await tab.done(1)
      expect(await tab.bubbles()).toEqual(['open the door', 'open the door'])
    }
  })
})

describe('a question that is no text', () => {
  it.each([
    ['null', 'null'],
    ['an object', '{"id":"injected","hidden":true}'],
  ])('can be answered, and is no markup: %s', async (_, text) => {
    const tab = await open(await create({ agent: 'sloppy' }))
    await tab.write(text)
    await tab.page.locator('.ask').getByRole('button', { name: 'allow' }).click()
    await tab.done(1)
    expect(await tab.bubbles()).toEqual([text, 'answered'])
    expect(await tab.page.locator('#injected').count()).toBe(0)
  })
})

describe('a lost connection', () => {
  it(
    'is told with the time that is left, and what was sent meanwhile arrives',
    { timeout: 180_000 },
    async () => {
      const tab = await open(await create({ graceMs: 60_000 }))
      await tab.say('before')
      await context.setOffline(true)
      await tab.is('reconnecting')
      expect(await tab.page.locator('.badge').textContent()).toMatch(/^Reconnecting… \d+ s left$/)
      await tab.write('meanwhile')
      expect((await tab.banner()).sentence).toContain('The connection is lost.')
      // In the long form as long as a tunnel: past the silence after which either side gives up.
      await tab.page.waitForTimeout(OFFLINE_MS)
      await context.setOffline(false)
      await tab.is('live')
      await tab.done(2)
      expect(await tab.bubbles()).toEqual(['before', 'before', 'meanwhile', 'meanwhile'])
      expect(await tab.page.locator('.banner').isHidden()).toBe(true)
    },
  )

  it('that outlives the grace time is the end, and the page says so', async () => {
    const tab = await open(await create({ reconnect: 'resume', graceMs: 3_000 }))
    await tab.takePart()
    await context.setOffline(true)
    await tab.is('ended')
    expect((await tab.banner()).buttons).toEqual(['Reload'])
  })
})

describe('a server that is started anew', () => {
  let folder: string
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'holdfast-inspector-'))
  })
  afterEach(() => rm(folder, { recursive: true }))

  const start = async (port: number): Promise<TestServer> => {
    const store = `sqlite:${join(folder, 'holdfast.db')}`
    return serve({ store, port })
  }

  it('under the page is found again, and the session goes on where it was', async () => {
    const first = await start(0)
    const { url, port } = first
    const answer = await fetch(`${url}/v1/sessions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ key: 'survivor' }),
    })
    const { id } = (await answer.json()) as { id: string }
    const tab = await SessionTab.open(context, url, id)
    await tab.is('live')
    await tab.say('before')
    await first.close()
    await tab.is('reconnecting')
    const second = await start(port)
    await tab.is('live')
    await tab.say('after')
    expect(await tab.bubbles()).toEqual(['before', 'before', 'after', 'after'])
    expect((await tab.places()).filter((type) => type === 'opened')).toHaveLength(1)
    await tab.page.close()
    await second.close()
  })
})

describe('who is let in', () => {
  const token = 'hf_for-this-test-alone'
  let guarded: TestServer
  beforeAll(async () => {
    const tokens = {
      scopesOf: (shown: string) =>
        shown === token ? (['watch', 'talk', 'answer', 'admin'] as const) : null,
      revision: () => 0,
      close: () => undefined,
    }
    guarded = await serve({ tokens })
  })
  afterAll(() => guarded.close())

  const authorized = (path: string, body: object): Promise<any> =>
    fetch(guarded.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
      body: JSON.stringify(body),
    }).then((answer) => answer.json())

  it('asks for a token, and for another if it is wrong, and keeps it over a reload', async () => {
    const { id } = await authorized('/v1/sessions', { key: 'guarded' })
    const page = await context.newPage()
    await page.goto(guarded.url)
    await page.getByRole('textbox', { name: 'Token' }).fill('wrong')
    await page.getByRole('button', { name: 'Go on' }).click()
    await page.getByText('does not accept this token').waitFor()
    await page.getByRole('textbox', { name: 'Token' }).fill(token)
    await page.getByRole('button', { name: 'Go on' }).click()
    await page.getByRole('link', { name: 'Sessions' }).click()
    await page.locator('.list').getByText('guarded').click()
    const tab = new SessionTab(page)
    await tab.say('hello')
    await page.reload()
    await tab.done(1)
    expect(page.url()).toBe(`${guarded.url}/#/session/${id}`)
    complaints.forgive(/401/)
  })

  it('lets a link in without a token, and takes it out of the address bar at once', async () => {
    const { id } = await authorized('/v1/sessions', {})
    const { url, token: link } = await authorized(`/v1/sessions/${id}/links`, { scopes: ['talk'] })
    const addresses: string[] = []
    context.on('request', (request) => addresses.push(request.url()))
    const page = await context.newPage()
    await page.goto(url)
    const tab = new SessionTab(page)
    await tab.is('live')
    expect(page.url()).toBe(`${guarded.url}/#/session/${id}`)
    await tab.say('by link')
    await page.reload()
    await tab.is('live')
    await tab.say('again')
    await page.goBack()
    expect(page.url()).not.toContain(link)
    expect(addresses.filter((address) => address.includes(link))).toEqual([])
    expect(complaints.all).toEqual([])
  })

  it('lets a link that only looks on watch', async () => {
    const { id } = await authorized('/v1/sessions', { key: 'watched' })
    const { url, id: link } = await authorized(`/v1/sessions/${id}/links`, { scopes: ['watch'] })
    const page = await context.newPage()
    await page.goto(url)
    for (const again of [true, false]) {
      await page.getByText('Live, watching').waitFor()
      expect(await page.getByRole('button', { name: 'Send' }).isDisabled()).toBe(true)
      if (again) await page.reload()
    }
    await fetch(`${guarded.url}/v1/sessions/${id}/links/${link}`, {
      method: 'DELETE',
      headers: { authorization: `Bearer ${token}` },
    })
    await page.getByText('The link that admitted this page was revoked.').waitFor()
  })

  it('makes a link for somebody else', async () => {
    const tab = await open(await create())
    await tab.press('Share')
    await tab.page.getByLabel('Its bearer may').selectOption('watch')
    await tab.press('Make a link')
    // It is hidden until the link is made.
    const made = tab.page.getByLabel('The link')
    await made.waitFor()
    const link = await made.inputValue()
    const guest = await context.newPage()
    await guest.goto(link)
    await guest.getByText('Live, watching').waitFor()
  })
})

describe('a narrow window', () => {
  it('of 380 pixels has room for everything, one thing at a time', async () => {
    const session = await create({ key: newKey() })
    const tab = await open(session)
    await tab.page.setViewportSize({ width: 380, height: 720 })
    await tab.say('a message that is long enough to need more than one line in a window like this')
    expect(await fits(tab.page)).toBe(true)
    for (const name of ['Log', 'Attachments']) {
      await tab.page.getByRole('tab', { name }).click()
      expect(await fits(tab.page)).toBe(true)
    }
    expect(await tab.page.locator('.list').isHidden()).toBe(true)
    await tab.page.getByRole('link', { name: '← Sessions' }).click()
    await tab.page.locator('.list').waitFor()
    expect(await fits(tab.page)).toBe(true)
    for (const place of ['#/new', '#/reload-test']) {
      await tab.page.goto(`${server.url}/${place}`)
      await tab.page.locator('.page').waitFor()
      expect(await fits(tab.page)).toBe(true)
    }
  })
})

describe('the reload test', () => {
  it('sees under every policy what it expects', { timeout: 200_000 }, async () => {
    const page = await visit('/#/reload-test')
    await page.getByRole('button', { name: 'Run' }).click()
    await page.locator('[data-summary=passed], [data-summary=failed]').waitFor({ timeout: 190_000 })
    const cells = await page.locator('.trials td[data-policy]').evaluateAll((all) =>
      all.map((cell) => ({
        trial: cell.parentElement?.dataset['trial'],
        policy: cell.getAttribute('data-policy'),
        expected: cell.querySelector('.expected')?.textContent,
        seen: cell.querySelector('.seen')?.textContent,
      })),
    )
    expect(cells).toHaveLength(40)
    expect(cells.filter(({ expected, seen }) => expected !== seen)).toEqual([])
    expect((await server.get('/v1/sessions')).body.sessions.length).toBeLessThan(40)
    expect(complaints.all).toEqual([])
  })
})
