/**
 * A session whose owner node hangs (SIGSTOP): strangers get the answer of a session that never was,
 * without waiting for the owner, and callers that may see it get the new owner's answer, or a clear
 * error, when the lease is over.
 */
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest'
import { serverRoutes } from '../../src/server/routes.ts'
import { until } from '../support/gate.ts'
import { brokenInLog, type LoggedEvent } from '../support/log.ts'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'
import {
  bearer,
  ENTRIES,
  secretOf,
  sharedSession,
  TokenFiles,
  toldBy,
} from '../support/principals.ts'
import { RawCdp } from '../support/raw-cdp.ts'
import { Cluster, type ServerProcess } from '../support/server-process.ts'
import { dial, type Frame, type WireClient } from '../support/wire-client.ts'

vi.setConfig({ testTimeout: 120_000 })

/** Long enough for all that strangers try meanwhile. */
const LEASE_MS = 6_000

let database: TestDatabase
let files: TokenFiles
let cluster: Cluster
let owner: ServerProcess
let asked: ServerProcess
const clients: WireClient[] = []

beforeAll(async () => {
  database = await openTestDatabase()
  files = await TokenFiles.make()
  cluster = new Cluster(database.freshUrl(), { leaseMs: LEASE_MS })
  const tokens = await files.write('tokens.json', ENTRIES)
  const flags = ['--tokens', tokens, '--drain-ms', '0', '--browser', 'chromium']
  owner = await cluster.add(flags)
  asked = await cluster.add(flags)
})
afterEach(() => owner.resume())
afterAll(async () => {
  for (const { socket } of clients) socket.terminate()
  await cluster.close()
  await files.remove()
  await database.close()
})

const ROUTES = serverRoutes({} as never).filter(({ path }) => path.startsWith('/v1/sessions/:id'))
const BODIES: Readonly<Record<string, object>> = {
  postSessionTurn: { input: 'of a stranger' },
  answerAsk: { answer: 'yes' },
  forkSession: {},
  changeSession: { settings: { onNobody: 'deny' } },
  createLink: { scopes: ['watch'] },
  shareSession: { with: 'mallory', scopes: ['watch'] },
}
const alice = bearer('alice')
const stranger = bearer('stranger')
const neverWas = (id: string): string => 'A'.repeat(id.length)

function connect(server: ServerProcess, hello: object): WireClient {
  const client = dial(server.url, hello)
  clients.push(client)
  return client
}

/** The first frame that decides; null if the connection ended without one. */
function decision(client: WireClient): Promise<Frame | null> {
  return client.frame(({ type }) => type === 'welcome' || type === 'refuse').catch(() => null)
}

/** A session that `owner` holds, with secrets for it, all of which have been used once. */
async function sessionWithSecrets() {
  const { id, path } = await sharedSession(owner)
  const body = { scopes: ['watch', 'talk'] }
  const { token: link } = (await owner.call('POST', `${path}/links`, { headers: alice, body })).body
  const resumeBy = async (auth: object) => {
    const client = connect(owner, { session: id, auth })
    const { attachment, resume: token } = await client.frame('welcome')
    return { attachment: attachment as string, token: token as string }
  }
  const own = await resumeBy({ token: secretOf('alice') })
  const guest = await resumeBy({ link })
  return { id, path, link: link as string, own, guest }
}

type Secrets = Awaited<ReturnType<typeof sessionWithSecrets>>

/** Secrets that let nobody into the session. */
function strangersSecrets({ own, guest }: Secrets): readonly object[] {
  const wrong = 'x'.repeat(43)
  const token = secretOf('stranger')
  const [, rest = ''] = guest.token.split('.')
  return [
    { token },
    { link: wrong },
    { token, resume: own },
    { token, resume: { ...own, token: wrong } },
    { resume: own },
    { resume: { ...own, token: wrong } },
    { resume: { ...guest, token: `${wrong}.${rest}` } },
    {},
  ]
}

/** Every route about a session, and those of OpenAI's API that name one in an id of their own. */
const REQUESTS: readonly ((session: string) => readonly [string, string, object?])[] = [
  ...ROUTES.map(({ name, method, path }) => (session: string) => {
    const at = path.replace(':id', session).replace(/:(turn|ask|link|with|digest)/, 'none')
    return [method, at, BODIES[name]] as const
  }),
  (session) => ['POST', '/v1/sessions', { id: session }],
  (session) => ['GET', `/v1/responses/resp_${session}_t2`],
  (session) => ['GET', `/v1/responses/resp_${session}_t2?stream=true`],
  (session) => ['DELETE', `/v1/responses/resp_${session}_t2`],
  (session) => ['GET', `/v1/conversations/conv_${session}/items`],
  (session) => {
    const body = { model: 'echo', input: 'x', previous_response_id: `resp_${session}_t2` }
    return ['POST', '/v1/responses', body]
  },
]

async function expectStrangersLearnNothing(secrets: Secrets): Promise<void> {
  const { id } = secrets
  for (const requestAbout of REQUESTS) {
    const ask = async (session: string): Promise<string> => {
      const [method, path, body] = requestAbout(session)
      const answer = await asked.call(method, path, { headers: stranger, body })
      expect([method, path, answer.status]).toEqual([method, path, 404])
      return toldBy(answer, session)
    }
    expect(await ask(id)).toBe(await ask(neverWas(id)))
  }
  for (const auth of strangersSecrets(secrets)) {
    const say = async (session: string): Promise<string> => {
      const frame = await decision(connect(asked, { session, auth }))
      expect([auth, frame?.type]).toEqual([auth, 'refuse'])
      return JSON.stringify(frame).replaceAll(session, 'ID')
    }
    expect(await say(id)).toBe(await say(neverWas(id)))
  }
  const comeBack = async (session: string): Promise<string> => {
    const url = `${asked.url.replace('http', 'ws')}/cdp/chromium/held`
    const client = await RawCdp.open(url, { headers: stranger })
    const auth = { resume: secrets.own }
    client.say(`#${JSON.stringify({ type: 'hello', v: 2, session, received: 0, auth })}`)
    const frame = await client.frame()
    client.socket.terminate()
    expect(frame).toMatchObject({ type: 'refuse' })
    return JSON.stringify(frame).replaceAll(session, 'ID')
  }
  expect(await comeBack(id)).toBe(await comeBack(neverWas(id)))
}

/** As every client does: comes back until it is let in; and how its earlier sockets ended. */
async function comeIn(hello: object): Promise<{ welcome: Frame; ends: readonly number[] }> {
  const ends: number[] = []
  for (;;) {
    const client = connect(asked, hello)
    const welcome = await decision(client)
    if (welcome?.type === 'welcome') return { welcome, ends }
    // It is not refused.
    expect(welcome).toBeNull()
    ends.push((await client.closed).code)
  }
}

it('is as unknown to strangers as ever, and answers others when its lease is over', async () => {
  const secrets = await sessionWithSecrets()
  const { id, path, link } = secrets
  const log = async (): Promise<LoggedEvent[]> =>
    (await asked.call('GET', `${path}/events`, { headers: alice })).body.events
  const accept = { accept: 'text/event-stream' }
  const stream = await fetch(`${asked.url}${path}/events`, { headers: { ...alice, ...accept } })
  owner.pause()
  let answered = 0
  const count = <Value>(value: Value): Value => {
    answered += 1
    return value
  }
  const turn = (input: string, headers: object = {}) =>
    asked
      .call('POST', `${path}/turns`, { headers: { ...alice, ...headers }, body: { input } })
      .then(count)
  const read = asked.call('GET', path, { headers: alice }).then(count)
  const unkeyed = turn('without a key')
  const keyed = turn('with a key', { 'idempotency-key': 'k' })
  const client = comeIn({ session: id, auth: { token: secretOf('alice') } }).then(count)
  await expectStrangersLearnNothing(secrets)
  const forbidden = { headers: bearer('watcher'), body: { input: 'of a watcher' } }
  expect((await asked.call('POST', `${path}/turns`, forbidden)).status).toBe(403)
  // None of these has waited for the owner: callers that may do it still do.
  expect(answered).toBe(0)

  // A stream is cut off, and its client follows the new owner from where it stood.
  expect(await stream.text().catch(() => 'cut off')).toBe('cut off')
  expect(await read).toMatchObject({ status: 200, body: { id } })
  const lost = await unkeyed
  expect([lost.status, lost.body.code]).toEqual([503, 'owner_unreachable'])
  expect(await keyed).toMatchObject({ status: 200, body: { turn: { state: 'done' } } })
  const { welcome, ends } = await client
  expect(welcome).toMatchObject({ session: { id } })
  // "Service restart": the code at which every client comes back.
  expect(new Set(ends)).toEqual(new Set([1012]))
  const guest = await decision(connect(asked, { session: id, auth: { link } }))
  expect(guest).toMatchObject({ type: 'welcome' })
  await expectStrangersLearnNothing(secrets)

  owner.resume()
  await until(async () => (await owner.call('GET', path, { headers: alice })).status === 200)
  await turn('the last')
  const events = await log()
  expect(brokenInLog(events, true)).toEqual([])
  const inputs = events.flatMap(({ type, input }) => (type === 'turn.started' ? [input] : []))
  expect(inputs).toEqual(['x', 'with a key', 'the last'])
})
