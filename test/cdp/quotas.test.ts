/** How many browser sessions and sockets to browsers a principal may have. */
import { createHash } from 'node:crypto'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { TokenList } from '../../src/server/tokens.ts'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'
import { until } from '../support/gate.ts'
import { RawCdp } from '../support/raw-cdp.ts'

const secretOf = (name: string): string => `hf_secret-of-${name}`
const headersOf = (name: string) => ({ Authorization: `Bearer ${secretOf(name)}` })

let server: CdpServer

beforeAll(async () => {
  const entries = ['bob', 'sam', 'free'].map((name) => {
    const sha256 = createHash('sha256').update(secretOf(name)).digest('hex')
    return { name, id: name, principal: name, sha256, scopes: ['talk', 'manage'] } as const
  })
  const list = new TokenList(entries)
  const tokens = {
    scopesOf: (token: string, now: number) => list.scopesOf(token, now),
    principalOf: (token: string) => list.principalOf(token),
    accessOf: (token: string, now: number) => list.accessOf(token, now),
    close: () => undefined,
  }
  const principals = { bob: { browserSessions: 2 }, sam: { sockets: 2 } }
  server = await serveCdp({ tokens, quotas: { principals } })
})
afterAll(() => server.close())

/** The status and code of an upgrade, or the open socket. */
async function enter(name: string, query: string): Promise<RawCdp | number> {
  const client = new RawCdp(`${server.socketUrl}${query}`, { headers: headersOf(name) })
  return new Promise((resolve) => {
    client.socket.once('open', () => resolve(client))
    client.socket.once('unexpected-response', (_, response) => {
      response.resume()
      resolve(response.statusCode ?? 0)
    })
  })
}

async function sessionsOf(name: string): Promise<number> {
  const url = new URL('/v1/sessions?state=open', server.url)
  const answer = await fetch(url, { headers: headersOf(name) })
  return ((await answer.json()) as { sessions: unknown[] }).sessions.length
}

it('refuses a browser session too many, and creates nothing for it', async () => {
  const first = (await enter('bob', '?key=one')) as RawCdp
  const second = (await enter('bob', '?key=two&reconnect=none')) as RawCdp
  expect(await enter('bob', '?key=three')).toBe(429)
  expect(await enter('bob', '')).toBe(429)
  const refusal = await fetch(`${server.url}/json/list?key=four`, { headers: headersOf('bob') })
  expect(refusal.headers.get('retry-after')).toBe('1')
  expect(await refusal.json()).toMatchObject({
    ...{ code: 'quota_exceeded', quota: 'browserSessions', limit: 2, used: 2 },
  })
  expect(await sessionsOf('bob')).toBe(2)
  // Another client of one that is there is no other browser session.
  const third = (await enter('bob', '?key=one')) as RawCdp
  expect(third).toBeInstanceOf(RawCdp)
  const other = (await enter('free', '?key=one&reconnect=none')) as RawCdp
  expect(other).toBeInstanceOf(RawCdp)
  second.socket.close()
  let next: RawCdp | number = 429
  await until(async () => (next = await enter('bob', '?key=three&reconnect=none')) !== 429)
  for (const client of [first, third, other, next as unknown as RawCdp]) {
    client.socket.close()
    await client.closed
  }
})

it('refuses a socket too many, stock and held, until one is closed', async () => {
  const first = (await enter('sam', '?key=a')) as RawCdp
  const held = (await enter('sam', '/held?key=a')) as RawCdp
  held.socket.send('#{"type":"hello","v":2}')
  await until(() => held.frames.length > 0)
  expect(held.frames[0]?.['type']).toBe('welcome')
  expect(await enter('sam', '?key=a')).toBe(429)
  const late = (await enter('sam', '/held?key=a')) as RawCdp
  late.socket.send('#{"type":"hello","v":2}')
  await until(() => late.frames.length > 0)
  expect(late.frames[0]).toMatchObject({ type: 'refuse', code: 'quota_exceeded' })
  expect(await late.closed).toBe(4429)
  first.socket.close()
  let next: RawCdp | number = 429
  await until(async () => (next = await enter('sam', '?key=a')) !== 429)
  for (const client of [held, next as unknown as RawCdp]) {
    client.socket.close()
    await client.closed
  }
})
