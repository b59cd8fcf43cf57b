/** Holdfast below a path of another program's HTTP server. */
import { once } from 'node:events'
import { createServer, request as httpRequest, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { builtinAgents, openHoldfast, type Holdfast } from 'holdfast'
import { connect } from 'holdfast/client'
import { createHandler, type HoldfastHandler, type MountOptions } from 'holdfast/server'
import { afterEach, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'

type Mounted = {
  readonly url: string
  readonly holdfast: Holdfast
  readonly handler: HoldfastHandler
}

const SCOPES = ['watch', 'talk', 'answer', 'admin'] as const
const open: (() => Promise<void>)[] = []

afterEach(async () => {
  for (const close of open.splice(0)) await close()
})

async function mount(options: MountOptions = {}, host = '127.0.0.1'): Promise<Mounted> {
  const holdfast = await openHoldfast({ store: 'memory:', agents: builtinAgents })
  const handler = createHandler(holdfast, { basePath: '/hold/fast', ...options })
  const server: Server = createServer((request, response) =>
    handler.request(request, response, () => response.end(`own ${request.url}`)),
  )
  server.on('upgrade', (request, stream, head) => {
    if (!handler.upgrade(request, stream, head)) stream.end('HTTP/1.1 418 Own\r\n\r\n')
  })
  server.listen(0, host)
  await once(server, 'listening')
  open.push(async () => {
    await handler.close({ closeHoldfast: true })
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, holdfast, handler }
}

function post(url: string, body: unknown): Promise<Response> {
  const headers = { 'content-type': 'application/json' }
  return fetch(url, { method: 'POST', headers, body: JSON.stringify(body) })
}

async function upgradeStatus(url: string): Promise<number> {
  const socket = new WebSocket(url.replace('http', 'ws'))
  const [, response] = (await once(socket, 'unexpected-response')) as [
    unknown,
    { statusCode: number },
  ]
  socket.on('error', () => undefined)
  socket.terminate()
  return response.statusCode
}

describe('a mounted handler', () => {
  it('answers below its base path, and names its own paths with it', async () => {
    const { url } = await mount()
    const created = await post(`${url}/hold/fast/v1/sessions`, { key: 'a' })
    const location = created.headers.get('location') ?? ''
    expect(location).toMatch(/^\/hold\/fast\/v1\/sessions\//)
    expect(((await (await fetch(url + location)).json()) as { key: string }).key).toBe('a')
    const link = await post(`${url}${location}/links`, { scopes: ['watch'] })
    const made = (await link.json()) as { url: string }
    expect(made.url).toContain(`${url}/hold/fast/#/link/`)
    expect(link.headers.get('location')).toContain(`${location}/links/`)
    const document = await (await fetch(`${url}/hold/fast/openapi.json`)).json()
    expect(document).toMatchObject({ servers: [{ url: '/hold/fast' }] })
  })

  it('leaves every other path to the program', async () => {
    const { url } = await mount()
    for (const path of ['/', '/hold', '/hold/fastest', '/v1/sessions']) {
      expect(await (await fetch(url + path)).text(), path).toBe(`own ${path}`)
    }
    expect(await upgradeStatus(`${url}/v1/connect`)).toBe(418)
  })

  it('answers with 404 where the program has nothing else', async () => {
    const holdfast = await openHoldfast({ store: 'memory:', agents: builtinAgents })
    const handler = createHandler(holdfast, { basePath: '/h' })
    const server = createServer(handler.request).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    expect((await fetch(`http://127.0.0.1:${port}/else`)).status).toBe(404)
    await handler.close({ closeHoldfast: true })
    server.close()
  })

  it('takes sockets, and the client finds them by the base path', async () => {
    const { url } = await mount()
    const client = connect({ url: `${url}/hold/fast`, webSocket: WebSocket })
    const session = client.session({ key: 'socket' })
    expect((await session.turn('over a socket')).reply?.text).toBe('over a socket')
    session.leave()
  })

  it('serves the inspector, whose files and API are found relative to the page', async () => {
    const { url } = await mount()
    const bare = await fetch(`${url}/hold/fast`, { redirect: 'manual' })
    expect([bare.status, bare.headers.get('location')]).toEqual([308, '/hold/fast/'])
    const page = await (await fetch(`${url}/hold/fast/`)).text()
    const files = [...page.matchAll(/(?:href|src)="([^"#:]+)"/g)].map(([, path = '']) => path)
    expect(files.length).toBeGreaterThanOrEqual(2)
    for (const file of files) {
      const { status } = await fetch(new URL(file, `${url}/hold/fast/`))
      expect(status, file).toBe(200)
    }
  })

  it('refuses pages of other sites and unknown hosts, as the server does', async () => {
    const { url } = await mount()
    const from = { headers: { origin: 'https://evil.example' } }
    expect((await fetch(`${url}/hold/fast/v1/sessions`, from)).status).toBe(403)
    const status = new Promise<number | undefined>((resolve) => {
      const headers = { host: 'evil.example' }
      httpRequest(`${url}/hold/fast/health`, { headers }, (response) =>
        resolve(response.resume().statusCode),
      ).end()
    })
    expect(await status).toBe(403)
  })

  it('asks for tokens where it is given some, and takes the names that it is given', async () => {
    const tokens = {
      scopesOf: (token: string) => (token === 'good' ? SCOPES : null),
      close: () => undefined,
    }
    const { url } = await mount({ tokens, allowHosts: ['app.example'] }, '0.0.0.0')
    const call = (headers: Record<string, string>): Promise<Response> =>
      fetch(`${url}/hold/fast/v1/sessions`, { headers })
    expect((await call({})).status).toBe(401)
    expect((await call({ authorization: 'Bearer good' })).status).toBe(200)
  })

  it('ends its streams on close and begins nothing new; the Holdfast stays open', async () => {
    const { url, holdfast, handler } = await mount()
    const { id } = await holdfast.resolve({ key: 'stream' })
    const headers = { accept: 'text/event-stream' }
    const stream = await fetch(`${url}/hold/fast/v1/sessions/${id}/events`, { headers })
    await handler.close()
    expect(await stream.text()).toContain('draining')
    const refused = await post(`${url}/hold/fast/v1/keys/stream/turns`, { input: 'late' })
    expect(refused.status).toBe(503)
    expect(await upgradeStatus(`${url}/hold/fast/v1/connect`)).toBe(503)
    expect((await holdfast.session(id).turn('still open')).reply?.text).toBe('still open')
    await holdfast.close()
  })

  it.each(['/', 'holdfast', '/holdfast/', '/a?b'])(
    'does not take %s as a base path',
    (basePath) => {
      expect(() => createHandler({ authority: {} } as never, { basePath })).toThrow(/basePath/)
    },
  )
})
