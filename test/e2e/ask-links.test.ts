/** Links to one ask: their bearers see what is asked, answer it, and see nothing else. */
import { createHash } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { builtinAgents, type Agent, type Diagnostic } from '../../src/index.ts'
import { openTokenFile, type TokenFile } from '../../src/server/index.ts'
import { OPERATIONS } from '../../src/core/access.ts'
import { serverRoutes } from '../../src/server/routes.ts'
import { Complaints, launchChromium } from '../support/chromium.ts'
import { serve, type TestServer } from '../support/server.ts'
import { SECRET, WebhookReceiver } from '../support/webhook-receiver.ts'
import { dial } from '../support/wire-client.ts'

const NAMES = { owner: ['talk', 'answer', 'manage'], manager: ['manage'], answerer: ['answer'] }

let folder: string
let tokens: TokenFile
let receiver: WebhookReceiver
let server: TestServer
const diagnostics: Diagnostic[] = []

const asking: Agent = async ({ text }, context) => {
  const detail = { tool: 'Bash', command: text === 'release' ? 'make release' : 'make deploy' }
  const asked = { kind: 'permission', question: 'Deploy?', options: ['allow', 'deny'], detail }
  return JSON.stringify(await context.ask(asked))
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-ask-links-'))
  const file = join(folder, 'tokens.json')
  const rows = Object.entries(NAMES).map(([name, scopes]) => ({
    ...{ name, scopes, principal: 'olga' },
    sha256: createHash('sha256').update(`hf_secret-of-${name}`).digest('hex'),
  }))
  await writeFile(file, JSON.stringify({ version: 3, tokens: rows }), { mode: 0o600 })
  tokens = await openTokenFile(file)
  receiver = await WebhookReceiver.start()
  const hook = {
    ...{ name: 'hook', url: receiver.url, secrets: [SECRET], allow: ['127.0.0.1'] },
    ...{ events: ['ask.opened' as const], include: ['link' as const] },
    linkUrl: 'https://holdfast.example/',
  }
  server = await serve({
    ...{ tokens, agents: { ...builtinAgents, asking }, webhooks: [hook], defaultAgent: 'asking' },
    rates: { failuresPerMinute: 1_000 },
    rules: [{ name: 'two', decision: 'ask', people: 2, commands: ['make release'] }],
    onDiagnostic: (diagnostic) => diagnostics.push(diagnostic),
  })
})
afterAll(async () => {
  await server.close()
  await receiver.close()
  tokens.close()
  await rm(folder, { recursive: true })
})

function as(token: string, method: string, path: string, body?: object) {
  const headers = { authorization: `Bearer ${token}` }
  return server.call(method, path, { headers, ...(body === undefined ? {} : { body }) })
}
const by = (name: keyof typeof NAMES, method: string, path: string, body?: object) =>
  as(`hf_secret-of-${name}`, method, path, body)

it('is not made where several people have to allow it: its maker would count twice', async () => {
  const { body } = await by('owner', 'POST', '/v1/sessions', { key: 'release' })
  const path = `/v1/sessions/${body.id}`
  const turn = by('owner', 'POST', `${path}/turns`, { input: 'release' })
  const asks = async () => (await by('owner', 'GET', `${path}/asks`)).body.asks
  await expect.poll(asks).toHaveLength(1)
  const [{ id: ask }] = await asks()
  await by('owner', 'POST', `${path}/asks/${ask}`, { answer: 'allow' })
  const made = await by('owner', 'POST', `${path}/asks/${ask}/link`, {})
  expect([made.status, made.body.code]).toEqual([403, 'forbidden'])
  await by('owner', 'POST', `${path}/asks/${ask}`, { answer: 'deny' })
  expect((await turn).status).toBe(200)
})

/** A turn that asks; its ask, and a link to it. */
async function asked(expiresInMs?: number) {
  const { body } = await by('owner', 'POST', '/v1/sessions', { key: `k${Math.random()}` })
  const path = `/v1/sessions/${body.id}`
  const options = { headers: { authorization: 'Bearer hf_secret-of-owner' } }
  const turn = server.call('POST', `${path}/turns`, { ...options, body: { input: 'go' } })
  const asks = async () => (await by('owner', 'GET', `${path}/asks`)).body.asks
  await expect.poll(asks).toHaveLength(1)
  const [{ id: ask }] = await asks()
  const life = expiresInMs === undefined ? {} : { expiresInMs }
  const made = await by('owner', 'POST', `${path}/asks/${ask}/link`, life)
  expect(made.status).toBe(201)
  return {
    id: body.id as string,
    path,
    ask,
    turn,
    link: made.body.token as string,
    made: made.body,
  }
}

describe('a link to an ask', () => {
  it('shows what is asked, takes one answer, and may be looked at again', async () => {
    const { id, link, made, ask, turn, path } = await asked()
    expect(made.url).toBe(`${server.url}/#/ask/${link}`)
    const { body } = await as(link, 'GET', '/v1/ask')
    expect(Object.keys(body).toSorted()).toEqual(['ask', 'expiresAt', 'outcome', 'state'])
    expect(body).toMatchObject({ state: 'open', outcome: null })
    expect(body.ask).toMatchObject({ id: ask, question: 'Deploy?', detail: { tool: 'Bash' } })
    expect(JSON.stringify(body)).not.toContain(id)
    expect((await as(link, 'POST', '/v1/ask', { answer: 'maybe' })).status).toBe(422)
    const { body: answered } = await as(link, 'POST', '/v1/ask', { answer: 'allow' })
    expect(answered).toEqual({ outcome: 'answered', missing: 0 })
    expect((await turn).body.turn.reply.text).toContain('"kind":"link"')
    expect((await as(link, 'POST', '/v1/ask', { answer: 'deny' })).body.code).toBe('ask_settled')
    const again = (await as(link, 'GET', '/v1/ask')).body
    expect(again).toMatchObject({ state: 'settled', outcome: { answer: 'allow' } })
    const { body: log } = await by('owner', 'GET', `${path}/events`)
    expect(JSON.stringify(log)).not.toContain(link)
    expect(diagnostics.some(({ code }) => code === 'link_used')).toBe(true)
    expect(JSON.stringify(diagnostics)).not.toContain(link)
  })

  it('opens nothing else, on any route', async () => {
    const { id, link, path, ask } = await asked()
    const guarded = serverRoutes({} as never).filter(
      ({ operation }) => OPERATIONS[operation] !== null,
    )
    expect(guarded.length).toBeGreaterThan(40)
    for (const { method, path: pattern } of guarded) {
      const target = pattern.replace(':id', id).replace(':ask', ask).replaceAll(/:\w+/g, 'x')
      const { status } = await as(link, method, target, method === 'GET' ? undefined : {})
      expect([method, target, status]).toEqual([method, target, 401])
    }
    for (const auth of [{ token: link }, { link }]) {
      const client = dial(server.url, { session: id, auth })
      const refused = await client.frame('refuse')
      expect(refused['code']).toBe('unauthorized')
    }
    expect((await by('owner', 'GET', `${path}/asks`)).body.asks).toHaveLength(1)
  })

  it('is good for a short time, whole, and for its own ask only', async () => {
    const { link } = await asked(1)
    await expect.poll(async () => (await as(link, 'GET', '/v1/ask')).status).toBe(401)
    const { link: good } = await asked()
    const changed = `${good.slice(0, -3)}${good.endsWith('AAA') ? 'BBB' : 'AAA'}`
    for (const wrong of [changed, '', 'hfa_', 'hfa_AAAA', 'hf_secret-of-owner', good.slice(4)]) {
      expect((await as(wrong, 'GET', '/v1/ask')).status).toBe(401)
      expect((await as(wrong, 'POST', '/v1/ask', { answer: 'allow' })).status).toBe(401)
    }
    expect((await server.call('GET', '/v1/ask')).status).toBe(401)
  })

  it('is made only by those who may see the ask and answer it', async () => {
    const { path, ask } = await asked()
    for (const name of ['manager', 'answerer'] as const) {
      expect((await by(name, 'POST', `${path}/asks/${ask}/link`, {})).status).toBe(403)
    }
    expect((await by('owner', 'POST', `${path}/asks/a999/link`, {})).body.code).toBe('ask_unknown')
    const long = { expiresInMs: 86_400_001 }
    expect((await by('owner', 'POST', `${path}/asks/${ask}/link`, long)).status).toBe(422)
  })

  it('is in the body of a webhook that wants it', async () => {
    const { id, ask, turn } = await asked()
    const told = () => receiver.confirmed.find(({ data }) => data.session.id === id)
    await expect.poll(told).toBeDefined()
    const { data } = told()!
    expect(data.ask.id).toBe(ask)
    const [, link = ''] =
      /^https:\/\/holdfast\.example\/#\/ask\/(hfa_.+)$/.exec(data.ask.link) ?? []
    expect((await as(link, 'POST', '/v1/ask', { answer: 'deny' })).status).toBe(200)
    expect((await turn).body.turn.reply.text).toContain('"deny"')
  })

  it('shows that its session is gone', async () => {
    const { link, path, turn } = await asked()
    await by('owner', 'DELETE', path)
    await turn
    const { body } = await as(link, 'GET', '/v1/ask')
    expect(body).toMatchObject({ state: 'settled', outcome: { outcome: 'withdrawn' } })
    expect((await as(link, 'POST', '/v1/ask', { answer: 'allow' })).status).toBe(410)
  })
})

describe('the page of a link to an ask', () => {
  it('shows the ask on a phone, takes the answer, and asks the server for nothing else', async () => {
    const { link, made, turn } = await asked()
    const browser = await launchChromium()
    try {
      const context = await browser.newContext({ viewport: { width: 360, height: 640 } })
      const complaints = new Complaints(context)
      const page = await context.newPage()
      const calls = new Set<string>()
      page.on('request', (request) => {
        const { pathname } = new URL(request.url())
        if (pathname.startsWith('/v1/')) calls.add(`${request.method()} ${pathname}`)
      })
      await page.goto(made.url)
      await page.getByText('make deploy').waitFor()
      expect(page.url()).not.toContain(link)
      const width = await page.evaluate('document.documentElement.scrollWidth')
      expect(width).toBe(360)
      await page.locator('[data-option=allow]').click()
      await page.getByText('Answered: allow').waitFor()
      await page.reload()
      await page.getByText('Answered: allow').waitFor()
      expect([...calls].toSorted()).toEqual(['GET /v1/ask', 'POST /v1/ask'])
      expect((await turn).body.turn.reply.text).toContain('"allow"')
      await page.goto(`${server.url}/#/ask/hfa_wrong`)
      await page.getByText('This link is not good').waitFor()
      expect(complaints.own.filter((one) => !one.includes('401'))).toEqual([])
    } finally {
      await browser.close()
    }
  })
})
