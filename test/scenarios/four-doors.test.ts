/**
 * Four doors on one session at the same time: an editor that speaks ACP, a client of OpenAI's API, a
 * page, and an app with the Copilot SDK. One queue, one log, one set of asks.
 */
import OpenAI from 'openai'
import { WebSocket } from 'ws'
import { connect, type ClientSession } from 'holdfast/client'
import type { Agent } from 'holdfast'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { StockClient } from '../support/acp-client.ts'
import { importSdk } from '../support/copilot-sdk.ts'
import { until } from '../support/gate.ts'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'
import { secretOf, TokenFiles } from '../support/principals.ts'
import { serve, type TestServer } from '../support/server.ts'

const token = secretOf('alice')
let files: TokenFiles
let database: TestDatabase
let sdk: any
let running = 0
let runningMost = 0

/** Asks before it answers, if it is told to. */
const agent: Agent = Object.assign(
  (async ({ text }, { ask }) => {
    running += 1
    runningMost = Math.max(running, runningMost)
    try {
      if (!text.startsWith('ask')) return `answer to ${text}`
      const detail = { tool: 'bash', kind: 'execute', command: 'ls -l' } as const
      const question = { kind: 'permission', question: 'May I?', options: ['allow', 'deny'] }
      const outcome = await ask({ ...question, detail })
      return outcome.outcome === 'answered' ? `was told ${String(outcome.answer)}` : outcome.outcome
    } finally {
      running -= 1
    }
  }) satisfies Agent,
  { capabilities: { asks: true } },
)

beforeAll(async () => {
  sdk = await importSdk()
  files = await TokenFiles.make()
  database = await openTestDatabase()
})
afterAll(async () => {
  await database.close()
  await files.remove()
})

/** The servers that the page and the editor use, and the others. */
async function oneNode(): Promise<readonly [TestServer, TestServer]> {
  const server = await serve({ agents: { agent }, tokens: await files.open() })
  return [server, server]
}

async function twoNodes(): Promise<readonly [TestServer, TestServer]> {
  const options = { agents: { agent }, store: database.freshUrl(), isNode: true }
  const one = await serve({ ...options, tokens: await files.open() })
  return [one, await serve({ ...options, tokens: await files.open() })]
}

describe.each([
  ['one node', oneNode],
  ['two nodes', twoNodes],
])('four doors on one session of %s', (_, start) => {
  const key = 'shared'
  let near: TestServer
  let far: TestServer
  let editor: StockClient
  let page: ClientSession
  let app: any
  let appClient: any
  let openai: OpenAI
  let sessionId: string
  const seen: string[] = []
  const asked: any[] = []

  beforeAll(async () => {
    running = 0
    runningMost = 0
    ;[near, far] = await start()
    const client = connect({ url: near.url, token, webSocket: WebSocket })
    page = client.session({ key, answers: ['permission'] })
    page.on('event', (event) => void seen.push(event.type))
    editor = await StockClient.connect(near.url, { token })
    openai = new OpenAI({
      ...{ baseURL: `${far.url}/v1`, apiKey: token, maxRetries: 0 },
      defaultHeaders: { 'x-session-key': key },
    })
    const port = await far.server.listenCopilot(0)
    const connection = sdk.RuntimeConnection.forUri(`127.0.0.1:${port}`, {
      connectionToken: token,
    })
    appClient = new sdk.CopilotClient({ connection })
    const onPermissionRequest = (request: unknown) =>
      new Promise((answer) => void asked.push({ request, answer }))
    const [opened, created] = await Promise.all([
      editor.open({ key }),
      appClient.createSession({ sessionId: key, onPermissionRequest }),
      page.ready,
    ])
    sessionId = opened
    app = created
  })
  afterEach(() => {
    expect(running).toBe(0)
  })
  afterAll(async () => {
    page.leave()
    editor.kill()
    await appClient.forceStop()
    if (far !== near) await far.close()
    await near.close()
  })

  const log = async (): Promise<any[]> => {
    const { events } = await near.holdfast.session(sessionId).read(0, 1_000)
    return events.map(({ body }) => JSON.parse(body) as unknown)
  }
  const chat = async (text: string): Promise<string | null | undefined> => {
    const messages = [{ role: 'user', content: text } as const]
    const { choices } = await openai.chat.completions.create({ model: 'agent', messages })
    return choices[0]?.message.content
  }
  const fromPage = async (text: string): Promise<string | undefined> =>
    (await page.turn(text)).reply?.text
  const fromApp = async (text: string): Promise<string> =>
    (await app.sendAndWait(text)).data.content

  it('is one session: its turns run one at a time, and each caller gets its own reply', async () => {
    const rounds = [1, 2, 3]
    const replies = await Promise.all(
      rounds.flatMap((n) => [
        chat(`chat ${n}`),
        fromPage(`page ${n}`),
        fromApp(`app ${n}`),
        editor.prompt(sessionId, `editor ${n}`).then(({ stopReason }) => stopReason as string),
      ]),
    )
    const expected = rounds.flatMap((n) => [
      ...['chat', 'page', 'app'].map((door) => `answer to ${door} ${n}`),
      'end_turn',
    ])
    expect(replies).toEqual(expected)
    expect(runningMost).toBe(1)
    await until(() => rounds.every((n) => editor.said().includes(`answer to editor ${n}`)))
    expect(page.info?.id).toBe(sessionId)
  })

  it('has one log, in which turns do not overlap', async () => {
    const events = await log()
    expect(events.map(({ seq }) => seq)).toEqual(events.map((__, index) => index + 1))
    let open: string | null = null
    let turns = 0
    for (const { type, turn } of events) {
      if (type === 'turn.started') {
        expect(open).toBeNull()
        open = turn
      } else if (type === 'turn.done') {
        expect(open).toBe(turn)
        open = null
        turns += 1
      }
    }
    expect(turns).toBe(12)
    await until(() => seen.filter((type) => type === 'turn.done').length === 12)
  })

  it('asks all that may answer; the first answer counts, and the others are told', async () => {
    const reply = chat('ask first')
    const [shown, wanted] = [await editor.nextAsk(), await nextOf(asked)]
    await until(() => page.asks.length === 1)
    wanted.answer({ kind: 'approve-once' })
    expect(await reply).toBe('was told allow')
    await until(() => shown.isCancelled() && page.asks.length === 0)
  })

  it('lets the page answer what the app has caused, and the editor what the page has', async () => {
    const caused = fromApp('ask by the app')
    await until(() => page.asks.length === 1)
    await page.answer(page.asks[0]?.id ?? '', 'deny')
    expect(await caused).toBe('was told deny')
    asked.length = 0
    const before = editor.asked.length
    const other = fromPage('ask by the page')
    await until(() => editor.asked.length > before)
    editor.asked.at(-1)?.answer({ outcome: { outcome: 'selected', optionId: 'allow' } })
    expect(await other).toBe('was told allow')
    await until(() => page.asks.length === 0)
  })
})

async function nextOf(all: any[]): Promise<any> {
  await until(() => all.length > 0)
  return all.shift()
}
