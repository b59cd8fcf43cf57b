/** The audit: what happens outside of sessions, over all nodes, and nothing that it must not hold. */
import { createHash } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openTokenFile } from 'holdfast/server'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { until } from '../support/gate.ts'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'
import { serve, lines, type TestServer } from '../support/server.ts'
import { ServerProcess } from '../support/server-process.ts'
import { dial } from '../support/wire-client.ts'

const SECRETS = { root: 'hf_secret-of-root', talker: 'hf_secret-of-talker', late: 'hf_late' }
const WRONG = 'hf_a-token-that-was-never-given-out'
const entry = (name: keyof typeof SECRETS, more: object) => ({
  name,
  sha256: createHash('sha256').update(SECRETS[name]).digest('hex'),
  ...more,
})
const ENTRIES = [
  entry('root', { scopes: ['admin'] }),
  entry('talker', { scopes: ['talk'], principal: 'tom' }),
]

let folder: string
let file: string
let database: TestDatabase
let near: TestServer
let far: TestServer

async function writeTokens(entries: readonly object[]): Promise<void> {
  await writeFile(file, JSON.stringify({ version: 3, tokens: entries }), { mode: 0o600 })
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-audit-'))
  file = join(folder, 'tokens.json')
  await writeTokens(ENTRIES)
  database = await openTestDatabase()
  const store = database.freshUrl()
  near = await serve({ store, isNode: true, tokens: await openTokenFile(file) })
  far = await serve({ store, isNode: true, tokens: await openTokenFile(file) })
})

afterAll(async () => {
  await Promise.all([near.close(), far.close()])
  await database.close()
  await rm(folder, { recursive: true })
})

const bearer = (secret: string) => ({ authorization: `Bearer ${secret}` })

async function records(server = near): Promise<any[]> {
  const headers = bearer(SECRETS.root)
  return (await server.call('GET', '/v1/audit', { headers })).body.records
}

async function recorded(fits: (record: any) => boolean, server = near): Promise<any> {
  await until(async () => (await records(server)).some(fits))
  return (await records(server)).find(fits)
}

it('tells refusals of every node, with the address and the principal, and no secret', async () => {
  for (const server of [near, far]) {
    await server.call('GET', '/v1/sessions', { headers: bearer(WRONG) })
  }
  const foreign = await near.call('GET', '/metrics', { headers: bearer(SECRETS.talker) })
  expect(foreign.status).toBe(403)
  const forbidden = await recorded(({ facts }) => facts?.reason === 'forbidden')
  expect(forbidden).toMatchObject({ code: 'client_refused', facts: { principal: 'tom' } })
  expect(forbidden.address).toMatch(/^(127\.0\.0\.1|::1)$/)
  const isUnauthorized = ({ facts }: any) => facts?.reason === 'unauthorized'
  await until(async () => (await records()).filter(isUnauthorized).length === 2)
  const nodes = (await records()).filter(isUnauthorized).map(({ node }) => node as string)
  expect(new Set(nodes).size).toBe(2)
  const text = JSON.stringify(await records(far))
  for (const secret of [WRONG, ...Object.values(SECRETS)]) expect(text).not.toContain(secret)
})

it('counts what repeats instead of growing with it', async () => {
  const isWrongHost = ({ facts }: any) => facts?.reason === 'host_refused'
  for (let n = 0; n < 50; n += 1) {
    const headers = { ...bearer(SECRETS.root), origin: 'https://evil.example' }
    expect((await near.call('GET', '/v1/sessions', { headers })).status).toBe(403)
  }
  const isForeign = ({ facts }: any) => facts?.reason === 'origin_refused'
  await recorded(isForeign)
  expect((await records()).filter(isForeign)).toHaveLength(1)
  expect((await records()).filter(isWrongHost)).toHaveLength(0)
})

it('tells which tokens were added and removed, by their names', async () => {
  await writeTokens([ENTRIES[0]!, entry('late', { scopes: ['watch'] })])
  const read = await recorded(({ code }) => code === 'tokens_read')
  expect(read.facts).toMatchObject({ added: 'late', removed: 'talker', changed: '' })
  await writeTokens(ENTRIES)
  // Until it is read, the next tests' tokens are unknown to that node.
  const headers = bearer(SECRETS.talker)
  for (const server of [near, far]) {
    await until(async () => (await server.call('GET', '/v1/sessions', { headers })).status === 200)
  }
})

it('tells that a link was used, with the address of the client', async () => {
  const session = await near.holdfast.resolve({})
  const { id, token } = await session.createLink({ scopes: ['watch'] })
  const client = dial(near.url, { auth: { link: token }, session: session.id, role: 'watcher' })
  await client.frame('welcome')
  const used = await recorded(({ code }) => code === 'link_used')
  expect(used).toMatchObject({ facts: { link: id, session: session.id } })
  expect(used.address).toMatch(/^(127\.0\.0\.1|::1)$/)
  expect(JSON.stringify(used)).not.toContain(token)
  await client.cut()
})

it('tells each session that was erased, by whom, and each link that was used', async () => {
  const headers = bearer(SECRETS.talker)
  const ids: string[] = []
  for (const body of [{}, {}]) {
    const { id } = (await near.call('POST', '/v1/sessions', { headers, body })).body
    await near.call('DELETE', `/v1/sessions/${id}?erase=true`, { headers: bearer(SECRETS.root) })
    ids.push(id)
  }
  for (const session of ids) {
    const erased = await recorded(({ facts }) => facts?.session === session)
    expect(erased).toMatchObject({ code: 'session_erased', facts: { principal: 'default' } })
  }
  const session = await near.holdfast.resolve({})
  for (let n = 0; n < 2; n += 1) {
    const { id, token } = await session.createLink({ scopes: ['watch'] })
    const client = dial(near.url, { auth: { link: token }, session: session.id, role: 'watcher' })
    await client.frame('welcome')
    await recorded(({ code, facts }) => code === 'link_used' && facts.link === id)
    await client.cut()
  }
})

it('is read in pages and exported as lines, by administrators only', async () => {
  const headers = bearer(SECRETS.root)
  const first = (await near.call('GET', '/v1/audit?limit=1', { headers })).body
  expect(first.records).toHaveLength(1)
  const rest = await near.call('GET', `/v1/audit?after=${first.nextAfter}`, { headers })
  expect(rest.body.records[0].position).toBeGreaterThan(first.nextAfter)
  const lined = { ...headers, accept: 'application/jsonl' }
  const exported = lines((await far.call('GET', '/v1/audit?limit=2', { headers: lined })).text)
  const positions = exported.map(({ position }) => position as number)
  expect(positions).toEqual(positions.toSorted((one, other) => one - other))
  expect(exported.length).toBeGreaterThanOrEqual(1 + rest.body.records.length)
  const talker = bearer(SECRETS.talker)
  expect((await near.call('GET', '/v1/audit', { headers: talker })).status).toBe(403)
})

const isConfigured = ({ code }: any): boolean => code === 'configured'

it('names the settings that changed since the last start, and no value', async () => {
  const config = join(folder, 'config.json')
  const data = join(folder, 'data')
  const command = join(folder, 'a-program')
  await writeFile(command, '#!/bin/sh\n', { mode: 0o700 })
  const password = 'hunter2'
  const agent = { runner: 'process', command, env: { PASSWORD: password } }
  const before = { agents: { tool: agent }, limits: { waitMs: 1_000 }, sharedKeys: { 'x/': 'x' } }
  const bodies: string[] = []
  let starts = 0
  /** What the record of this start says. */
  const started = async (content: object, flags: readonly string[] = []): Promise<any> => {
    await writeFile(config, JSON.stringify(content))
    const server = await ServerProcess.start({ data, flags: ['--config', config, ...flags] })
    let found: any[] = []
    await until(async () => {
      const { text, body } = await server.call('GET', '/v1/audit')
      bodies.push(text)
      found = body.records.filter(isConfigured)
      return found.length > starts
    })
    starts = found.length
    await server.stop()
    return found.at(-1).facts
  }
  const first = await started(before)
  expect(first).not.toHaveProperty('changed')
  expect(await started(before)).toEqual({ ...first, changed: [] })
  const second = { ...before, agents: { tool: { ...agent, env: { PASSWORD: 'hunter3' } } } }
  const { changed, digest } = await started(second)
  expect([changed, digest !== first.digest]).toEqual([['agents.tool.env.PASSWORD'], true])
  const third = await started({ ...second, limits: { waitMs: 2_000 } }, ['--queue', '3'])
  expect(third.changed).toEqual(['flags.queue', 'limits.waitMs'])
  const text = bodies.join('')
  for (const secret of [password, 'hunter3', command]) expect(text).not.toContain(secret)
})

it('compares a node with its own last start, by its address for the others', async () => {
  const store = database.freshUrl()
  const start = async (server: string, port: number): Promise<void> => {
    const configuration = { settings: { flags: { port } }, server }
    const node = await serve({ store, isNode: true, configuration })
    await node.close()
  }
  for (const [server, port] of [
    ['a', 1],
    ['b', 2],
    ['a', 1],
    ['b', 3],
  ] as const) {
    await start(server, port)
  }
  const reader = await serve({ store, isNode: true })
  const found = (await reader.call('GET', '/v1/audit')).body.records.filter(isConfigured)
  expect(found.map(({ server, facts }: any) => [server, facts.changed])).toEqual([
    ...[
      ['a', undefined],
      ['b', undefined],
      ['a', []],
      ['b', ['flags.port']],
    ],
  ])
  expect(JSON.stringify(found)).not.toContain('salt')
  await reader.close()
})
