/** Keys of browser sessions: which are none, and that nobody takes one through another door. */
import { WebSocket } from 'ws'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp } from '../support/raw-cdp.ts'

let server: CdpServer

beforeAll(async () => {
  const echo = async function* ({ text }: { text: string }) {
    yield text
  }
  server = await serveCdp({ agents: { echo, browser: echo } })
})
afterAll(() => server.close())

type Answer = { readonly status: number; readonly code?: string }

async function ask(path: string, body: object, headers: object = {}): Promise<Answer> {
  const response = await fetch(`${server.server.url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  })
  const { code, error } = (await response.json()) as { code?: string; error?: { code: string } }
  return { status: response.status, code: code ?? error?.code ?? '' }
}

describe('a key', () => {
  it('that is empty is none, and is refused', async () => {
    for (const path of ['/json/version?key=', '/json?key=', '/json/list?key=&record=0']) {
      const response = await fetch(`${server.url}${path}`)
      expect([response.status, await response.json()]).toMatchObject([400, { code: 'bad_request' }])
    }
    const client = new RawCdp(`${server.socketUrl}?key=`)
    const status = new Promise((resolve) => {
      client.socket.on('unexpected-response', (_, response) => resolve(response.statusCode))
    })
    expect(await status).toBe(400)
    client.socket.terminate()
    expect((await server.holdfast.list({ state: 'open' })).sessions).toEqual([])
  })

  it('of a browser session cannot be taken through another door', async () => {
    const key = 'cdp:chromium:mine'
    const taken = { status: 409, code: 'key_taken' }
    const messages = [{ role: 'user', content: 'hello' }]
    const tries = [
      await ask('/v1/sessions', { key }),
      await ask('/v1/sessions', { key, agent: 'browser' }),
      await ask(`/v1/keys/${encodeURIComponent(key)}/turns`, { input: 'hello' }),
      await ask('/v1/chat/completions', { model: 'echo', messages }, { 'x-session-key': key }),
    ]
    expect(tries).toEqual(tries.map(() => taken))
    expect(await connectCode(key)).toBe(4409)
    const client = await RawCdp.open(`${server.socketUrl}?key=mine`)
    expect((await client.send('Browser.getVersion')).product).toMatch(/Chrome/)
    // Nor while it is open; by its id it is there for everybody, as it always was.
    expect(await ask('/v1/sessions', { key })).toEqual(taken)
    const { sessions } = await server.holdfast.list({ state: 'open', key })
    expect(sessions).toMatchObject([{ key, agent: 'browser', labels: { door: 'cdp' } }])
    const { id } = sessions[0]!
    expect(await (await fetch(`${server.server.url}/v1/sessions/${id}`)).json()).toMatchObject({
      id,
      key,
    })
    await client.send('Browser.close')
  })
})

/** How the socket of the connect door is closed on who says hello with this key. */
async function connectCode(key: string): Promise<number> {
  const socket = new WebSocket(`${server.server.url.replace('http', 'ws')}/v1/connect`)
  const closed = new Promise<number>((resolve) => socket.on('close', resolve))
  socket.on('open', () => socket.send(JSON.stringify({ type: 'hello', v: 1, key })))
  return closed
}
