/** The relays of `examples/notifications` as they stand, behind a real server. */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { builtinAgents, type Agent } from '../../src/index.ts'
import { until } from '../support/gate.ts'
import { GUARDED, guarded } from '../support/guarded.ts'
import { serve, type TestServer } from '../support/server.ts'
import { SECRET } from '../support/webhook-receiver.ts'

const RELAYS = ['slack', 'ntfy', 'mail'] as const

let folder: string
let stub: Server
let server: TestServer
const children: ChildProcess[] = []
/** What Slack and ntfy were sent, by path. */
const posted: Record<string, any[]> = { '/slack': [], '/ntfy': [] }
let failures = 1

const asking: Agent = async (_, context) => {
  const detail = { tool: 'Bash', command: 'echo <!channel>' }
  const asked = { kind: 'permission', question: 'May I?', options: ['allow', 'deny'], detail }
  return JSON.stringify(await context.ask(asked))
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-notifications-'))
  const sendmail = join(folder, 'sendmail')
  await writeFile(sendmail, `#!/bin/sh\ncat >> '${folder}/mail'\n`)
  await chmod(sendmail, 0o755)
  const take = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    let body = ''
    for await (const chunk of request) body += chunk
    // Slack is away for the first of all.
    const isAway = request.url === '/slack' && failures > 0
    if (isAway) failures -= 1
    else posted[request.url ?? '']?.push(JSON.parse(body))
    response.writeHead(isAway ? 503 : 200).end('ok')
  }
  stub = createServer((request, response) => void take(request, response))
  stub.listen(0, '127.0.0.1')
  await once(stub, 'listening')
  const to = `http://127.0.0.1:${(stub.address() as AddressInfo).port}`
  const env = {
    ...{ PATH: process.env['PATH'], HOLDFAST_WEBHOOK_SECRET: SECRET, PORT: '0' },
    ...{ SLACK_URL: `${to}/slack`, NTFY_URL: `${to}/ntfy`, NTFY_TOPIC: 'topic' },
    ...{ MAIL_TO: 'me@example.com', SENDMAIL: sendmail },
  }
  const webhooks = await Promise.all(
    RELAYS.map(async (name) => ({
      ...{ name, url: `http://127.0.0.1:${await start(name, env)}/`, secrets: [SECRET] },
      ...{ allow: ['127.0.0.1'], events: ['ask.opened' as const] },
      ...{ include: ['text', 'link'] as const, linkUrl: 'https://holdfast.example' },
    })),
  )
  const webhookLimits = { retryMs: 20, lookMs: 20 }
  server = await serve({ agents: { ...builtinAgents, asking }, webhooks, webhookLimits })
})
afterAll(async () => {
  await server.close()
  const ended = children.map((child) => once(child, 'exit'))
  for (const child of children) child.kill()
  await Promise.all(ended)
  stub.closeAllConnections()
  await new Promise((resolve) => stub.close(resolve))
  await rm(folder, { recursive: true })
})

/** The port on which it listens. */
async function start(name: string, env: NodeJS.ProcessEnv): Promise<string> {
  const file = `examples/notifications/${name}.mjs`
  const child = guarded(
    spawn(process.execPath, [file], { env, stdio: ['ignore', 'pipe', 'ignore'], ...GUARDED }),
  )
  children.push(child)
  const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string]
  return line.replace(/.*:/, '')
}

it('the relays tell Slack, ntfy and mail what is asked, once, and with a link', async () => {
  const isUp = async () =>
    (await server.get('/v1/webhooks')).body.webhooks.every(({ node }: any) => node !== null)
  await until(isUp)
  const turn = server.post('/v1/keys/k/turns', { input: 'go', agent: 'asking' })
  const mail = () => readFile(join(folder, 'mail'), 'utf8').catch(() => '')
  await until(async () => {
    return posted['/slack']!.length > 0 && posted['/ntfy']!.length > 0 && (await mail()) !== ''
  })
  const link = /https:\/\/holdfast\.example\/#\/ask\/(hfa_[\w-]+)/
  expect(posted['/slack']).toHaveLength(1)
  const { text } = posted['/slack']![0]
  expect(text).toContain('*asking asks (k)*\nMay I?\necho &lt;!channel&gt;\n<https://')
  expect(text).toMatch(link)
  expect(posted['/ntfy']).toMatchObject([{ topic: 'topic', title: 'asking asks (k)', priority: 4 }])
  expect(posted['/ntfy']![0].click).toMatch(link)
  await until(async () => (await mail()).trimEnd().includes('\n\n'))
  const [head = '', body = ''] = (await mail()).split('\n\n')
  expect(head).toContain('To: me@example.com')
  const [, token = ''] = link.exec(Buffer.from(body, 'base64').toString()) ?? []
  const headers = { authorization: `Bearer ${token}` }
  const answered = await server.call('POST', '/v1/ask', { headers, body: { answer: 'allow' } })
  expect(answered.body.outcome).toBe('answered')
  expect((await turn).body.turn.state).toBe('done')
})

it('the relays take nothing that is not signed', async () => {
  const { body } = await server.get('/v1/webhooks')
  for (const { origin } of body.webhooks) {
    const headers = { 'webhook-id': 'x', 'webhook-timestamp': `${Math.floor(Date.now() / 1_000)}` }
    const answer = await fetch(origin, { method: 'POST', headers, body: '{}' })
    expect(answer.status).toBe(401)
  }
})
