/** Positions and cursors count all sessions: callers that see only some of them learn no number. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openTokenFile } from 'holdfast/server'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { PositionCipher } from '../../src/server/positions.ts'
import { bearer, ENTRIES, Servers, sharedSession, tokenEntry } from '../support/principals.ts'
import { serve, type TestServer } from '../support/server.ts'

let servers: Servers

beforeAll(async () => {
  servers = await Servers.open({})
})
afterAll(() => servers.close())

describe('a hidden position', () => {
  const cipher = new PositionCipher(async () => Buffer.alloc(32, 7))

  it('is found again, and has at most 15 digits', async () => {
    const positions = [0, 1, 2, 41, 42, 2 ** 24, 2 ** 24 - 1, 2 ** 40 + 5, 2 ** 48 - 1]
    const hidden = await Promise.all(positions.map((position) => cipher.hide(position)))
    expect(new Set(hidden).size).toBe(positions.length)
    for (const shown of hidden) expect(String(shown)).toMatch(/^\d{1,15}$/)
    expect(await Promise.all(hidden.map((shown) => cipher.reveal(shown)))).toEqual(positions)
  })

  it('does not grow with the position', async () => {
    const shown = await Promise.all(Array.from({ length: 64 }, (_, at) => cipher.hide(at)))
    expect(shown).not.toEqual(shown.toSorted((one, other) => one - other))
    expect(Math.max(...shown)).toBeGreaterThan(2 ** 40)
  })

  it('of another server, or a plain one, is beyond the end of any feed', async () => {
    const other = new PositionCipher(async () => Buffer.alloc(32, 8))
    for (const foreign of [0, 1, 42, await other.hide(42)]) {
      expect(await cipher.reveal(foreign)).toBeGreaterThan(2 ** 32)
    }
  })
})

const get = async (server: TestServer, path: string, who: string) =>
  server.call('GET', path, { headers: bearer(who) })

async function made(server: TestServer, who: string, count: number): Promise<void> {
  for (let each = 0; each < count; each += 1) {
    await server.call('POST', '/v1/sessions', { headers: bearer(who), body: {} })
  }
}

describe.each(['single', 'near'] as const)('a caller of the %s server', (where) => {
  it('reads on from a hidden position, on any node, and learns no number by it', async () => {
    const server = servers[where]
    const owner = where === 'near' ? servers.far : server
    const { position: start } = (await get(server, '/v1/changes', 'watcher')).body
    const plain = (await get(server, '/v1/changes', 'admin')).body.position
    expect(start).not.toBe(plain)
    await made(owner, 'alice', 30)
    const { id } = await sharedSession(owner)
    await made(owner, 'stranger', 30)
    let [after, hasMore, pages] = [start, true, 0]
    const seen: string[] = []
    while (hasMore || !seen.includes(id)) {
      const path = `/v1/changes?after=${after}&limit=1`
      const { body } = await get(server, path, 'watcher')
      seen.push(...body.changes.map(({ session }: any) => session.id))
      pages += body.changes.length === 0 && body.hasMore ? 1 : 0
      ;({ position: after, hasMore } = body)
    }
    expect(new Set(seen)).toEqual(new Set([id]))
    // The sixty changes of others do not show as pages of nothing.
    expect(pages).toBe(0)
    expect((await get(server, `/v1/changes?after=${plain}`, 'watcher')).status).toBe(410)
  })

  it('streams from a hidden position', async () => {
    const server = servers[where]
    const { position } = (await get(server, '/v1/changes', 'watcher')).body
    const { id } = await sharedSession(server)
    const stopped = new AbortController()
    const stream = await fetch(`${server.url}/v1/changes`, {
      headers: {
        ...bearer('watcher'),
        accept: 'text/event-stream',
        'last-event-id': String(position),
      },
      signal: stopped.signal,
    })
    let text = ''
    for await (const part of stream.body ?? []) {
      text += Buffer.from(part).toString()
      if (text.includes(id)) break
    }
    stopped.abort()
    const ids = [...text.matchAll(/^id: (\d+)$/gm)].map(([, each]) => Number(each))
    expect(ids[0]).toBe(position)
    expect(Math.max(...ids)).toBeGreaterThan(2 ** 32)
  })

  it('pages through a list by cursors that tell nothing and all look alike', async () => {
    const server = servers[where]
    await made(server, 'talker', 3)
    const cursors: string[] = []
    const ids = new Set<string>()
    for (let cursor = ''; ; cursor = cursors.at(-1) ?? '') {
      const path = `/v1/sessions?limit=1${cursor === '' ? '' : `&cursor=${cursor}`}`
      const { body } = await get(server, path, 'talker')
      for (const { id } of body.sessions) ids.add(id)
      if (body.nextCursor === null) break
      cursors.push(body.nextCursor)
    }
    expect(ids.size).toBeGreaterThanOrEqual(3)
    expect(new Set(cursors.map(({ length }) => length)).size).toBe(1)
    for (const bad of ['c5', 'x', cursors[0]!.slice(1)]) {
      const answer = await get(server, `/v1/sessions?cursor=${bad}`, 'talker')
      expect([answer.status, answer.body.code]).toEqual([422, 'invalid_field'])
    }
  })
})

it('a hidden position survives a restart', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-positions-'))
  const plain = tokenEntry('plain', { scopes: ['talk', 'manage'] })
  const file = await servers.files.write('positions.json', [plain, ...ENTRIES])
  const options = { store: `sqlite:${join(folder, 'holdfast.db')}` }
  let server = await serve({ ...options, tokens: await openTokenFile(file) })
  const { position } = (await get(server, '/v1/changes', 'watcher')).body
  const { id } = await sharedSession(server)
  await server.close()
  server = await serve({ ...options, tokens: await openTokenFile(file) })
  const { body } = await get(server, `/v1/changes?after=${position}`, 'watcher')
  expect(body.changes.map(({ session }: any) => session.id)).toEqual([id])
  // The key is in a session that no list has, and only an administrator finds.
  const key = '/v1/sessions/holdfast:positions'
  for (const who of ['watcher', 'alice', 'plain'])
    expect((await get(server, key, who)).status).toBe(404)
  const listed = await get(server, '/v1/sessions', 'admin')
  expect(listed.text).not.toContain('positions')
  await server.close()
  await rm(folder, { recursive: true })
})
