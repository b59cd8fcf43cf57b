/** Links over HTTP: made, listed and revoked by who may, and their secret told exactly once. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { serve, type TestServer } from '../support/server.ts'

let serving: TestServer

beforeAll(async () => {
  serving = await serve()
})

afterAll(() => serving.close())

async function session(): Promise<string> {
  return (await serving.post('/v1/sessions', {})).body.id
}

describe('a link', () => {
  it('lets its holder in, by a token that stands only in the fragment of its URL', async () => {
    const id = await session()
    const body = { scopes: ['watch', 'talk'], uses: 2, expiresInMs: 60_000 }
    const before = Date.now()
    const answer = await serving.post(`/v1/sessions/${id}/links`, body)
    const { id: link, url, token, ...rest } = answer.body
    expect(answer.status).toBe(201)
    expect(answer.headers.get('location')).toBe(`/v1/sessions/${id}/links/${link}`)
    expect(rest).toEqual({ scopes: ['watch', 'talk'], uses: 2, expiresAt: expect.any(Number) })
    expect(rest.expiresAt).toBeGreaterThanOrEqual(before + 60_000)
    expect(url).toBe(`${serving.url}/#/link/${id}/${token}`)
    expect(new URL(url).pathname + new URL(url).search).toBe('/')
    expect(await serving.holdfast.session(id).link(token)).toMatchObject({ id: link, uses: 2 })
  })

  it('has the origin that its maker knows the server by', async () => {
    const path = `/v1/sessions/${await session()}/links`
    const headers = { 'x-forwarded-proto': 'https' }
    const { url } = (await serving.post(path, { scopes: ['watch'] }, headers)).body
    expect(new URL(url).origin).toBe(serving.url.replace('http:', 'https:'))
  })

  it('is listed without its token or its digest, and is in no view of its session', async () => {
    const id = await session()
    const path = `/v1/sessions/${id}/links`
    const expiresAt = Date.now() + 3_600_000
    const made = (await serving.post(path, { scopes: ['answer'], expiresAt })).body
    const { links } = (await serving.get(path)).body
    expect(links).toEqual([{ id: made.id, scopes: ['answer'], expiresAt, uses: null }])
    const view = JSON.stringify((await serving.get(`/v1/sessions/${id}`)).body)
    const log = JSON.stringify((await serving.get(`/v1/sessions/${id}/events`)).body)
    expect(view + log).not.toContain(made.token)
    expect(view).not.toContain(made.id)
  })

  it('is revoked once and for all, however often that is asked for', async () => {
    const id = await session()
    const path = `/v1/sessions/${id}/links`
    const { id: link, token } = (await serving.post(path, { scopes: ['watch'] })).body
    for (const _ of [1, 2]) {
      const answer = await serving.delete(`${path}/${link}`)
      expect([answer.status, answer.body]).toEqual([200, { id: link, state: 'revoked' }])
    }
    expect((await serving.get(path)).body).toEqual({ links: [] })
    await expect(serving.holdfast.session(id).link(token)).rejects.toMatchObject({
      code: 'unauthorized',
    })
  })

  it('is over with its session, and revoking it then is no mistake', async () => {
    const id = await session()
    const path = `/v1/sessions/${id}/links`
    const { id: link } = (await serving.post(path, { scopes: ['watch'] })).body
    for (const query of ['', '?erase=true']) {
      await serving.delete(`/v1/sessions/${id}${query}`)
      expect((await serving.delete(`${path}/${link}`)).status).toBe(200)
      expect((await serving.post(path, { scopes: ['watch'] })).status).toBe(410)
    }
  })

  it.each([
    [{}, 'scopes'],
    [{ scopes: [] }, 'scopes'],
    [{ scopes: ['admin'] }, 'scopes'],
    [{ scopes: 'talk' }, 'scopes'],
    [{ scopes: ['talk'], uses: 0 }, 'uses'],
    [{ scopes: ['talk'], expiresAt: 1 }, 'expiresAt'],
    [{ scopes: ['talk'], expiresInMs: 0 }, 'expiresInMs'],
    [{ scopes: ['talk'], expiresInMs: 1.5 }, 'expiresInMs'],
    [{ scopes: ['talk'], expiresInMs: 1e300 }, 'expiresAt'],
    [{ scopes: ['talk'], expiresInMs: 1, expiresAt: 9e15 }, 'expiresInMs'],
    [{ scopes: ['talk'], token: 'mine' }, 'token'],
  ])('like %j is refused', async (body, field) => {
    const answer = await serving.post(`/v1/sessions/${await session()}/links`, body)
    expect([answer.status, answer.body.field]).toEqual([422, field])
  })

  it('of an unknown session is not made, listed or revoked', async () => {
    const path = '/v1/sessions/unknown/links'
    const answers = [
      await serving.post(path, { scopes: ['talk'] }),
      await serving.get(path),
      await serving.delete(`${path}/any`),
    ]
    expect(answers.map(({ body }) => body.code)).toEqual(Array(3).fill('session_unknown'))
  })
})

describe('a session', () => {
  it('shows who holds it without what would let others pass for them', async () => {
    const created = await serving.post('/v1/sessions', { exclusive: true })
    const { id } = created.body
    expect(created.body).toMatchObject({ exclusive: true, attachments: [] })
    const held = await serving.holdfast.session(id).attach({ answers: ['x'], resumable: true })
    const view = (await serving.get(`/v1/sessions/${id}`)).body
    const place = { state: 'live', graceUntil: null, epoch: 1, cursor: null }
    const holder = { role: 'driver', answers: ['x'], ...place }
    expect(view.attachments).toEqual([holder])
    expect(JSON.stringify(view)).not.toContain(held.id)
    await held.lose()
    const { attachments } = (await serving.get(`/v1/sessions/${id}`)).body
    expect(attachments).toMatchObject([{ state: 'detached', graceUntil: expect.any(Number) }])
  })
})
