/** Tokens of a real OpenID provider, and what is not one of them. */
import { createHmac, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { builtinAgents, type Diagnostic } from 'holdfast'
import { openJwtTokens, type TokenSource } from 'holdfast/server'
import { exportSPKI, importJWK, type CryptoKey, type JWK } from 'jose'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { AUDIENCE, IdentityProvider } from '../support/identity-provider.ts'
import { until } from '../support/gate.ts'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'
import { ServerProcess, spawnServer } from '../support/server-process.ts'
import { serve, type TestServer } from '../support/server.ts'
import { dial } from '../support/wire-client.ts'

type Options = Parameters<typeof openJwtTokens>

const FILE_TOKEN = 'hf_of-the-file'
/** Stands for a tokens file. */
const file: TokenSource = {
  scopesOf: (token) => (token === FILE_TOKEN ? ['watch', 'talk'] : null),
  revision: () => 0,
  close: () => undefined,
}

const closing: (() => Promise<unknown> | void)[] = []
let provider: IdentityProvider
let diagnostics: Diagnostic[]
/** How far the server's clock is ahead. */
let aheadMs = 0

beforeAll(async () => {
  provider = await IdentityProvider.start()
})
beforeEach(() => {
  provider.instead = null
  provider.requests.length = 0
  diagnostics = []
  aheadMs = 0
})
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
})
afterAll(() => provider.close())

const TEAM: Partial<Options[0][number]> = {
  claims: { groups: 'groups', scopes: 'scope' },
  scopeMap: { 'agent:use': ['talk', 'manage'], 'agent:look': ['watch'] },
}

/** A server that accepts what the provider issues. */
async function start(
  more: Partial<Options[0][number]> = { scopes: ['talk'] },
  options: Options[1] = {},
  access: Parameters<typeof serve>[0] = {},
): Promise<TestServer> {
  const issuer = { issuer: provider.issuer, audience: AUDIENCE, ...more }
  const onDiagnostic = (diagnostic: Diagnostic): void => void diagnostics.push(diagnostic)
  const tokens = openJwtTokens([issuer], { onDiagnostic, ...options })
  const shifted: TokenSource = {
    prepare: (token, at) => tokens.prepare(token, at + aheadMs),
    scopesOf: (token, at) => tokens.scopesOf(token, at + aheadMs),
    principalOf: (token) => tokens.principalOf(token),
    accessOf: (token, at) => tokens.accessOf(token, at + aheadMs),
    revision: (at) => tokens.revision(at + aheadMs),
    close: () => tokens.close(),
  }
  const server = await serve({ agents: builtinAgents, tokens: shifted, ...access })
  closing.push(async () => {
    await server.close()
    tokens.close()
  })
  return server
}

async function get({ url }: TestServer, token: string, path = '/v1/sessions'): Promise<Response> {
  return fetch(`${url}${path}`, { headers: { authorization: `Bearer ${token}` } })
}

async function statusOf(server: TestServer, token: string): Promise<number> {
  const response = await get(server, token)
  await response.body?.cancel()
  return response.status
}

async function post({ url }: TestServer, token: string, path: string, body: object): Promise<any> {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
  const response = await fetch(`${url}${path}`, {
    method: 'POST',
    headers,
    body: JSON.stringify(body),
  })
  return { status: response.status, body: await response.json() }
}

function base64(value: object | string): string {
  return Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString(
    'base64url',
  )
}

const now = (): number => Math.floor(Date.now() / 1_000)

describe('a token of a provider', () => {
  it('lets its holder in as a principal of that issuer', async () => {
    const server = await start(TEAM)
    const token = await provider.token('alice')
    const made = await post(server, token, '/v1/sessions', { key: 'chat' })
    expect(made.status).toBe(201)
    const seen = await (await get(server, token, `/v1/sessions/${made.body.id}`)).json()
    expect(seen).toMatchObject({ principal: `${provider.issuer} alice` })
    const log = await (await get(server, token, `/v1/sessions/${made.body.id}/events`)).json()
    const by = { kind: 'jwt', issuer: provider.issuer, id: 'alice' }
    expect((log as any).events[0]).toMatchObject({ type: 'session.created', by })
    const other = await get(server, await provider.token('bob'), `/v1/sessions/${made.body.id}`)
    expect(other.status).toBe(404)
  })

  it('makes its holder a member of its groups', async () => {
    const server = await start(TEAM)
    const [alice, bob] = [await provider.token('alice'), await provider.token('bob')]
    const { body } = await post(server, alice, '/v1/sessions', {})
    const share = { with: '@team', scopes: ['watch'] }
    const path = `/v1/sessions/${body.id}`
    expect((await post(server, alice, `${path}/shares`, share)).status).toBeLessThan(300)
    expect((await get(server, bob, path)).status).toBe(200)
  })

  it('may do what its claims are mapped to, and no more', async () => {
    const server = await start(TEAM)
    const watcher = await provider.token('alice', 'agent:look')
    expect(await statusOf(server, watcher)).toBe(200)
    expect((await post(server, watcher, '/v1/sessions', {})).status).toBe(403)
    const nothing = await provider.sign({ scope: 'constructor other talk' })
    expect(await statusOf(server, nothing)).toBe(403)
  })

  it('names scopes itself where none are mapped, in a text or a list', async () => {
    const server = await start({ claims: { scopes: 'roles' } })
    for (const roles of ['watch x', ['x', 'watch'], ['talk']]) {
      expect(await statusOf(server, await provider.sign({ roles }))).toBe(200)
    }
    for (const roles of [undefined, 7, 'watchful', [['watch']]]) {
      expect(await statusOf(server, await provider.sign({ roles }))).toBe(403)
    }
  })

  it('works beside other tokens, which are not waited for', async () => {
    const server = await start({ scopes: ['talk'] }, { tokens: file })
    expect(await statusOf(server, FILE_TOKEN)).toBe(200)
    expect(await statusOf(server, await provider.token())).toBe(200)
    expect(await statusOf(server, 'hf_unknown')).toBe(401)
    const tokens = openJwtTokens([{ issuer: provider.issuer, audience: AUDIENCE }])
    expect(tokens.prepare(FILE_TOKEN, Date.now())).toBe(null)
    tokens.close()
  })

  it('is verified once', async () => {
    const tokens = openJwtTokens([{ issuer: provider.issuer, audience: AUDIENCE }])
    const token = await provider.token()
    expect(tokens.scopesOf(token, Date.now())).toBe(null)
    await tokens.prepare(token, Date.now())
    expect(tokens.prepare(token, Date.now())).toBe(null)
    expect(tokens.scopesOf(token, Date.now())).toEqual([])
    tokens.close()
  })

  it('lets a socket in', async () => {
    const server = await start()
    // As large as those with many groups are.
    const token = await provider.sign({ groups: Array.from({ length: 200 }, () => randomUUID()) })
    expect(token.length).toBeGreaterThan(8_192)
    const client = dial(server.url, { key: 'chat', auth: { token } })
    expect(await client.frame('welcome')).toMatchObject({ scopes: ['watch', 'talk'] })
    client.socket.close()
    await client.closed
  })

  it('continues the attachment of one before it', async () => {
    const server = await start()
    const first = dial(server.url, { key: 'chat', auth: { token: await provider.token() } })
    const { attachment, resume, session } = await first.frame('welcome')
    first.socket.terminate()
    await first.closed
    const auth = { token: await provider.token(), resume: { attachment, token: resume } }
    const second = dial(server.url, { session: session.id, auth })
    expect(await second.frame('welcome')).toMatchObject({ attachment })
    second.socket.close()
    await second.closed
  })

  it('lets a CDP client in by a ticket, also where the token was forgotten since', async () => {
    const browsers = { there: { address: 'ws://127.0.0.1:1' } }
    const server = await start({ scopes: ['talk'] }, { limits: { verifiedMax: 1 } }, { browsers })
    const { status, body } = await post(server, await provider.token(), '/cdp/there/ticket', {})
    expect(status).toBe(201)
    expect(await statusOf(server, await provider.token())).toBe(200)
    const path = `/cdp/there/json/version?ticket=${body.ticket}`
    const answer = await fetch(`${server.url}${path}`)
    expect(answer.status).not.toBe(401)
    await answer.body?.cancel()
  })
})

describe('a token that is limited', () => {
  const LISTS = { scopes: ['talk' as const], claims: { agents: 'agents', browsers: 'browsers' } }
  const browsers = { there: { address: 'ws://127.0.0.1:1' }, more: { address: 'ws://127.0.0.1:2' } }

  async function agentsOf(server: TestServer, token: string): Promise<readonly string[]> {
    const { data } = (await (await get(server, token, '/v1/models')).json()) as any
    return data.map(({ id }: any) => id as string)
  }

  it('uses the agents and browsers that its claims name, and no others', async () => {
    const server = await start(LISTS, {}, { browsers })
    const token = await provider.token()
    expect(await agentsOf(server, token)).toEqual(['echo'])
    const create = (agent: string) => post(server, token, '/v1/sessions', { agent })
    expect((await create('echo')).status).toBe(201)
    expect((await create('slow')).body).toMatchObject({ code: 'agent_unknown' })
    expect((await post(server, token, '/cdp/there/ticket', {})).status).toBe(201)
    expect((await post(server, token, '/cdp/more/ticket', {})).status).toBe(404)
  })

  it('has none without the claim, and no more than its issuer may give', async () => {
    const server = await start({ ...LISTS, agents: ['slow', 'ask'] }, {}, { browsers })
    expect(await agentsOf(server, await provider.sign())).toEqual([])
    expect(await agentsOf(server, await provider.sign({ agents: 'slow' }))).toEqual(['slow'])
    const both = await provider.sign({ agents: ['echo', 'ask'] })
    expect(await agentsOf(server, both)).toEqual(['ask'])
    const issuers = await start(
      { scopes: ['talk'], agents: ['slow'], browsers: [] },
      {},
      { browsers },
    )
    expect(await agentsOf(issuers, both)).toEqual(['slow'])
    expect((await post(issuers, both, '/cdp/there/ticket', {})).status).toBe(404)
  })

  it.each([7, true, {}, ['echo', 7], [['echo']], [''], Array.from({ length: 257 }, () => 'echo')])(
    'is refused where its claim is %j',
    async (wrong) => {
      const server = await start(LISTS)
      for (const claim of ['agents', 'browsers']) {
        expect(await statusOf(server, await provider.sign({ [claim]: wrong }))).toBe(401)
        expect(diagnostics.at(-1)).toMatchObject({ code: 'jwt_refused', facts: { reason: claim } })
      }
    },
  )

  it('has the limits of its issuer, each principal for itself', async () => {
    const quotas = { default: { openSessions: 9 } }
    const server = await start({ ...TEAM, limits: { openSessions: 1 } }, {}, { quotas })
    for (const token of [await provider.token('alice'), await provider.token('bob')]) {
      expect((await post(server, token, '/v1/sessions', {})).status).toBe(201)
      const refusal = await post(server, token, '/v1/sessions', {})
      expect(refusal.body).toMatchObject({ code: 'quota_exceeded', limit: 1 })
    }
  })

  it.each<[object, string]>([
    [{ agents: 'echo' }, 'jwt.0.agents'],
    [{ limits: { sessions: 1 } }, 'jwt.0.limits.sessions'],
    [{ claims: { agents: '' } }, 'jwt.0.claims.agents'],
  ])('is not accepted from an issuer with %j', (more, field) => {
    const issuer = { issuer: provider.issuer, audience: AUDIENCE, ...more }
    const details = { field }
    expect(() => openJwtTokens([issuer])).toThrow(expect.objectContaining({ details }))
  })
})

/** What is wrong with each, and why it is refused. */
const BAD: Readonly<Record<string, readonly [reason: string, make: () => Promise<string>]>> = {
  'for another audience': ['aud', () => provider.sign({ aud: 'https://other.example' })],
  'without an audience': ['aud', () => provider.sign({ aud: undefined })],
  'that expired before the skew': ['expired', () => provider.sign({ exp: now() - 32 })],
  'that never expires': ['exp', () => provider.sign({ exp: undefined })],
  'that is not good yet': ['nbf', () => provider.sign({ nbf: now() + 60 })],
  'without an id': ['id', () => provider.sign({ sub: undefined })],
  'with an empty id': ['id', () => provider.sign({ sub: '' })],
  'with a long id': ['id', () => provider.sign({ sub: 'x'.repeat(257) })],
  'with a line break in its id': ['id', () => provider.sign({ sub: 'alice\nadmin' })],
  'with an id that turns its text around': ['id', () => provider.sign({ sub: 'al\u202eice' })],
  'with a key that the issuer does not have': [
    'ERR_JWKS_NO_MATCHING_KEY',
    () => provider.sign({}, { kid: 'other' }),
  ],
  'with the key of another': [
    'ERR_JWS_SIGNATURE_VERIFICATION_FAILED',
    async () => {
      const other = await IdentityProvider.start()
      await other.close()
      return provider.sign({}, { kid: provider.key.kid }, other.key)
    },
  ],
  'with a changed claim': [
    'ERR_JWS_SIGNATURE_VERIFICATION_FAILED',
    async () => {
      const [header, payload = '', signature] = (await provider.sign()).split('.')
      const claims = JSON.parse(Buffer.from(payload, 'base64url').toString()) as object
      return [header, base64({ ...claims, sub: 'bob' }), signature].join('.')
    },
  ],
  'without a signature': [
    'ERR_JOSE_ALG_NOT_ALLOWED',
    async () => {
      const [, payload] = (await provider.sign()).split('.')
      return `${base64({ alg: 'none' })}.${payload}.`
    },
  ],
  'signed with the public key as a secret': [
    'ERR_JOSE_ALG_NOT_ALLOWED',
    async () => {
      const [, payload] = (await provider.sign()).split('.')
      const signed = `${base64({ alg: 'HS256', kid: provider.key.kid })}.${payload}`
      const secret = await exportSPKI(await publicKey(provider.key))
      return `${signed}.${createHmac('sha256', secret).update(signed).digest('base64url')}`
    },
  ],
}

async function publicKey({ kty, n = '', e = '', alg = '' }: JWK): Promise<CryptoKey> {
  return (await importJWK({ kty, n, e, alg, ext: true })) as CryptoKey
}

describe('a token', () => {
  it.each(Object.keys(BAD))('%s is refused', async (name) => {
    const server = await start()
    const [reason, make] = BAD[name]!
    expect(await statusOf(server, await make())).toBe(401)
    const refused = diagnostics.filter(({ code }) => code === 'jwt_refused')
    expect(refused.map(({ facts }) => facts['reason'])).toEqual([reason])
    // So that the others are refused for no other reason.
    expect(await statusOf(server, await provider.sign())).toBe(200)
  })

  it('of an issuer that is not configured is refused, and asks nobody', async () => {
    const server = await start()
    const other = await IdentityProvider.start()
    expect(await statusOf(server, await other.sign())).toBe(401)
    expect(other.requests).toEqual([])
    await other.close()
  })

  it.each(['a.b.c', 'eyJ.eyJ.x', '..', `${base64({ alg: 'RS256' })}.${base64('7')}.x`])(
    'that is %s is refused',
    async (token) => {
      expect(await statusOf(await start(), token)).toBe(401)
    },
  )

  it('that expired within the skew is good, and the skew can be set', async () => {
    const token = await provider.sign({ exp: now() - 5 })
    expect(await statusOf(await start(), token)).toBe(200)
    expect(await statusOf(await start({ scopes: ['talk'], clockSkewMs: 0 }), token)).toBe(401)
  })

  it('with another algorithm than those that are configured is refused', async () => {
    const server = await start({ scopes: ['talk'], algorithms: ['ES256'] })
    expect(await statusOf(server, await provider.sign())).toBe(401)
  })

  it('that is good works at an address whose other requests are too many', async () => {
    const rates = { requestsBurst: 1, requestsPerSecond: 0.001 }
    const server = await start({ scopes: ['talk'] }, {}, { trustProxy: true, rates })
    const from = { 'x-forwarded-for': '192.0.2.7' }
    const ask = async (headers: Record<string, string>): Promise<number> =>
      (await fetch(`${server.url}/v1/sessions`, { headers: { ...from, ...headers } })).status
    expect(await ask({})).toBe(401)
    expect(await ask({})).toBe(429)
    expect(await ask({ authorization: `Bearer ${await provider.sign({ aud: 'x' })}` })).toBe(429)
    expect(await ask({ authorization: `Bearer ${await provider.sign()}` })).toBe(200)
  })

  it('that is not good counts as a failed attempt, whatever is tried', async () => {
    const server = await start({ scopes: ['talk'] }, {}, { rates: { failuresPerMinute: 2 } })
    const bad = await provider.sign({ aud: 'other' })
    expect(await statusOf(server, bad)).toBe(401)
    const socket = dial(server.url, { key: 'chat', auth: { token: bad } })
    expect(await socket.closed).toMatchObject({ code: 4401 })
    expect(await statusOf(server, bad)).toBe(429)
    expect(await statusOf(server, await provider.sign())).toBe(200)
  })
})

describe('through another node', () => {
  let database: TestDatabase

  beforeAll(async () => {
    database = await openTestDatabase()
  })
  afterAll(() => database.close())

  it('a token is good for a session, a socket and a share, and each node verifies it', async () => {
    const node = { store: database.freshUrl(), isNode: true }
    const [owner, front] = [await start(TEAM, {}, node), await start(TEAM, {}, node)]
    const [alice, bob] = [await provider.token('alice'), await provider.token('bob')]
    const { body } = await post(owner, alice, '/v1/sessions', { key: 'chat' })
    const path = `/v1/sessions/${body.id}`
    expect((await get(front, bob, path)).status).toBe(404)
    const share = { with: `${provider.issuer} bob`, scopes: ['watch'] }
    expect((await post(front, alice, `${path}/shares`, share)).status).toBeLessThan(300)
    expect((await get(front, bob, path)).status).toBe(200)
    const ended = await fetch(`${front.url}${path}/shares/${encodeURIComponent(share.with)}`, {
      method: 'DELETE',
      headers: { authorization: `Bearer ${alice}` },
    })
    expect(ended.status).toBe(200)
    expect((await get(front, bob, path)).status).toBe(404)
    const client = dial(front.url, { session: body.id, auth: { token: alice } })
    expect(await client.frame('welcome')).toMatchObject({ session: { id: body.id } })
    client.socket.close()
    await client.closed
  })
})

describe('holdfast serve', () => {
  let folder: string

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'holdfast-jwt-'))
    const jwt = [{ issuer: provider.issuer, audience: AUDIENCE, scopes: ['talk'] }]
    await writeFile(join(folder, 'holdfast.config.json'), JSON.stringify({ jwt }))
  })
  afterAll(() => rm(folder, { recursive: true }))

  it('needs no tokens file to require tokens', async () => {
    const server = await ServerProcess.start({ flags: ['--store', 'memory:'], cwd: folder })
    const [none, good] = [await server.get('/v1/sessions'), await provider.token()]
    expect(none.status).toBe(401)
    const headers = { authorization: `Bearer ${good}` }
    expect((await fetch(`${server.url}/v1/sessions`, { headers })).status).toBe(200)
    expect(await server.stop()).toBe(0)
    expect(server.output.join('')).not.toContain(good)
  })

  it('may then listen for other machines', async () => {
    const flags = ['--store', 'memory:', '--host', '0.0.0.0']
    const refused = spawnServer({ flags, cwd: folder })
    const [output] = (await once(refused.stderr!, 'data')) as [Buffer]
    expect(output.toString()).toContain('--allow-host NAME')
    const server = spawnServer({ flags: [...flags, '--allow-host', 'a.example'], cwd: folder })
    const [line] = (await once(server.stdout!, 'data')) as [Buffer]
    expect(line.toString()).toContain('listening on http://0.0.0.0:')
    const exited = once(server, 'exit')
    server.kill('SIGTERM')
    await exited
  })
})

describe('a token that is no longer good', () => {
  /** Each begins something by a token, which has `ended` at some time. */
  const ongoing = {
    'a stream': async (server: TestServer, token: string, id: string) => {
      const headers = { accept: 'text/event-stream', authorization: `Bearer ${token}` }
      const response = await fetch(`${server.url}/v1/sessions/${id}/events`, { headers })
      expect(response.status).toBe(200)
      return { ended: response.text().catch(() => 'cut') }
    },
    'a socket': async (server: TestServer, token: string, session: string) => {
      const client = dial(server.url, { session, auth: { token } })
      await client.frame('welcome')
      return { ended: client.closed.then(({ code }) => code) }
    },
  }

  it.each(Object.entries(ongoing))('ends %s when it expires', async (_, begin) => {
    const server = await start()
    const [mine, theirs] = [await provider.sign(), await provider.sign({ exp: now() + 3_600 })]
    const { body } = await post(server, mine, '/v1/sessions', {})
    const end = (await begin(server, mine, body.id)).ended
    const other = (await begin(server, theirs, body.id)).ended
    let isOtherOver = false
    const otherEnd = (other as Promise<unknown>).finally(() => {
      isOtherOver = true
    })
    aheadMs = 631_000
    const at = performance.now()
    expect(await end).toSatisfy((how) => how === 'cut' || how === 4401)
    expect(performance.now() - at).toBeLessThan(5_000)
    expect(await statusOf(server, mine)).toBe(401)
    expect(isOtherOver).toBe(false)
    aheadMs = 3_631_000
    await otherEnd
  })

  it.each(Object.entries(ongoing))('ends %s when its key is given up', async (_, begin) => {
    const server = await start({ scopes: ['talk'] }, { limits: { keysCheckMs: 50, cooldownMs: 0 } })
    const token = await provider.sign()
    const { body } = await post(server, token, '/v1/sessions', {})
    const end = (await begin(server, token, body.id)).ended
    await provider.rotate()
    expect(await end).toSatisfy((how) => how === 'cut' || how === 4401)
    expect(await statusOf(server, token)).toBe(401)
    expect(await statusOf(server, await provider.token())).toBe(200)
  })
})

describe('the keys of a provider', () => {
  let before: IdentityProvider

  // One of its own for each, since what it is asked for is counted.
  beforeEach(async () => {
    before = provider
    provider = await IdentityProvider.start()
  })
  afterEach(async () => {
    await provider.close()
    provider = before
  })

  it('are read anew for a key that is not known', async () => {
    const server = await start({ scopes: ['talk'] }, { limits: { cooldownMs: 0 } })
    expect(await statusOf(server, await provider.token())).toBe(200)
    expect(provider.reads).toBe(1)
    await provider.rotate()
    expect(await statusOf(server, await provider.token())).toBe(200)
    expect(provider.reads).toBe(2)
  })

  it('are read once within the cool-down, however many unknown keys are named', async () => {
    const server = await start({ scopes: ['talk'] }, { limits: { cooldownMs: 600_000 } })
    const kids = Array.from({ length: 50 }, (_, index) => `invented ${index}`)
    const tokens = await Promise.all(kids.map((kid) => provider.sign({}, { kid })))
    const statuses = await Promise.all(tokens.map((token) => statusOf(server, token)))
    expect(new Set(statuses)).toEqual(new Set([401, 429]))
    expect(provider.reads).toBe(1)
    expect(await statusOf(server, await provider.token())).toBe(200)
  })

  it('stay while the provider is down, which is reported once', async () => {
    const limits = { keysCheckMs: 20, cooldownMs: 0 }
    const server = await start({ scopes: ['talk'] }, { limits })
    expect(await statusOf(server, await provider.token())).toBe(200)
    provider.instead = unavailable
    const reads = provider.requests.length
    await until(() => provider.requests.length > reads + 3)
    expect(await statusOf(server, await provider.sign())).toBe(200)
    expect(diagnostics.filter(({ code }) => code === 'jwks_unavailable')).toHaveLength(1)
  })

  it('are given up when the provider is down for too long, until it is back', async () => {
    const limits = { keysCheckMs: 20, cooldownMs: 0, keptMs: 100 }
    const server = await start({ scopes: ['talk'] }, { limits })
    const token = await provider.sign()
    expect(await statusOf(server, token)).toBe(200)
    provider.instead = unavailable
    await until(async () => (await statusOf(server, token)) === 503)
    provider.instead = null
    await until(async () => (await statusOf(server, token)) === 200)
  })

  it('that were never read make a token unavailable, not bad', async () => {
    provider.instead = unavailable
    const server = await start({ scopes: ['talk'] }, { limits: { cooldownMs: 200 } })
    const token = await provider.sign()
    const refused = await get(server, token)
    expect(refused.status).toBe(503)
    expect(refused.headers.get('retry-after')).toBe('1')
    expect(await refused.json()).toMatchObject({
      code: 'auth_unavailable',
      retryAfterMs: expect.any(Number),
    })
    const socket = dial(server.url, { key: 'chat', auth: { token } })
    expect(await socket.frame('refuse')).toMatchObject({
      code: 'auth_unavailable',
      retry: 'after',
    })
    expect((await socket.closed).code).toBe(1013)
    // What needs no token is answered.
    expect((await get(server, token, '/health')).status).toBe(200)
    provider.instead = null
    await until(async () => (await statusOf(server, token)) === 200)
  })

  it('are not waited for after a time limit', async () => {
    provider.instead = () => undefined
    const server = await start({ scopes: ['talk'] }, { limits: { fetchMs: 50 } })
    expect(await statusOf(server, await provider.sign())).toBe(503)
    expect(diagnostics).toMatchObject([
      { code: 'jwks_unavailable', facts: { problem: 'it does not answer' } },
    ])
  })

  it('are asked for once by many tokens that wait for them', async () => {
    const held: ServerResponse[] = []
    provider.instead = (_request, response) => void held.push(response)
    const tokens = openJwtTokens([{ issuer: provider.issuer, audience: AUDIENCE }])
    const signed = await Promise.all(Array.from({ length: 10 }, () => provider.sign()))
    const preparing = signed.map(async (token) => tokens.prepare(token, Date.now()))
    const settled = Promise.allSettled(preparing)
    await until(() => held.length > 0)
    provider.instead = unavailable
    // A request that came later than all that they may have made.
    await fetch(`${provider.issuer}/other`)
    expect(provider.requests).toEqual(['/.well-known/openid-configuration', '/other'])
    for (const response of held) response.writeHead(503).end()
    expect(new Set((await settled).map(({ status }) => status))).toEqual(new Set(['rejected']))
    tokens.close()
  })

  it('are not waited for by a server that stops', async () => {
    provider.instead = () => undefined
    const tokens = openJwtTokens([{ issuer: provider.issuer, audience: AUDIENCE }])
    const preparing = tokens.prepare(await provider.sign(), Date.now())
    await until(() => provider.requests.length > 0)
    tokens.close()
    await expect(preparing).rejects.toMatchObject({ code: 'auth_unavailable' })
  })

  it.each<[string, string, (response: ServerResponse) => void]>([
    ['a redirect', 'unexpected redirect', (response) => redirect(response)],
    ['no JSON', 'its answer is no JSON', (response) => response.end('<html>')],
    [
      'another issuer',
      'its discovery document is of another issuer',
      (response) => response.end(JSON.stringify({ issuer: AUDIENCE })),
    ],
    [
      'a foreign http address',
      'its discovery document has no jwks_uri that can be used',
      (response) => response.end(discovery('http://192.0.2.1/jwks')),
    ],
    ['too much', 'its answer is too large', (response) => response.end('x'.repeat(2_000_000))],
  ])('are not taken from %s: %s', async (_, problem, answer) => {
    provider.instead = (_request, response) => answer(response)
    const server = await start()
    expect(await statusOf(server, await provider.sign())).toBe(503)
    expect(diagnostics).toMatchObject([{ code: 'jwks_unavailable', facts: { problem } }])
    expect(provider.requests).toEqual(['/.well-known/openid-configuration'])
  })

  it('can be at an address of their own', async () => {
    const server = await start({ scopes: ['talk'], jwks: `${provider.issuer}/jwks` })
    expect(await statusOf(server, await provider.token())).toBe(200)
    expect(provider.requests).not.toContain('/.well-known/openid-configuration')
  })
})

function unavailable(_request: unknown, response: ServerResponse): void {
  response.writeHead(503).end()
}

function redirect(response: ServerResponse): void {
  response.writeHead(302, { location: `${provider.issuer}/moved` }).end()
}

function discovery(address: string): string {
  return JSON.stringify({ issuer: provider.issuer, jwks_uri: address })
}
