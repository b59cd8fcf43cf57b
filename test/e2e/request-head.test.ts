/** A request's head: what Node would drop, join or misread is refused before anything looks at it. */
import type { Diagnostic } from 'holdfast'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { headOf, sendRaw } from '../support/raw-http.ts'
import { serve, type TestServer } from '../support/server.ts'

const HEADERS_MAX = 100
const UPGRADE = [
  'Connection: Upgrade',
  'Upgrade: websocket',
  'Sec-WebSocket-Version: 13',
  'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==',
]

const TURN = 'POST /v1/keys/a/turns'
const CHUNKED = ['Host: localhost', 'Content-Type: application/json', 'Transfer-Encoding: chunked']

const refusals: Diagnostic[] = []
let server: TestServer
/** The port on which a browser is found where Chrome would have it; nothing here starts one. */
let cdpPort = 0

beforeAll(async () => {
  server = await serve({
    onDiagnostic: (told) => {
      if (told.code === 'client_refused') refusals.push(told)
    },
    browsers: { chromium: { program: 'false' } },
    allowOrigins: ['https://app.example'],
  })
  cdpPort = await server.server.listenCdp('chromium', 0)
})
afterAll(() => server.close())

/** As many headers as make `count`, and these after them. */
function padded(count: number, last: readonly string[]): readonly string[] {
  const first = ['Host: localhost']
  const more = count - first.length - last.length
  return [...first, ...Array.from({ length: more }, (_, index) => `x-${index}: 1`), ...last]
}

async function get(headers: readonly string[], target = '/v1/sessions', port = server.port) {
  const { status, text } = await sendRaw(port, `${headOf(`GET ${target}`, headers)}\r\n\r\n`)
  return [status, /"code":"(\w+)"/.exec(text)?.[1] ?? null]
}

describe('the headers of a request', () => {
  const evil = 'Origin: https://evil.example'

  it('may be as many as the bound, and each of them counts', async () => {
    // One is `Connection: close`.
    expect(await get(padded(HEADERS_MAX - 1, []))).toEqual([200, null])
    expect(await get(padded(HEADERS_MAX - 1, [evil]))).toEqual([403, 'origin_refused'])
  })

  it('beyond the bound refuse the request, whatever they are', async () => {
    const refused = [431, 'headers_too_large']
    expect(await get(padded(HEADERS_MAX, []))).toEqual(refused)
    expect(await get(padded(HEADERS_MAX, [evil]))).toEqual(refused)
    expect(await get(padded(1_000, [evil]))).toEqual(refused)
    expect(await get(padded(HEADERS_MAX, [evil]), '/json/version', cdpPort)).toEqual(refused)
  })

  it('beyond the bound refuse a socket too', async () => {
    const heads = [
      [server.port, '/v1/connect'],
      [server.port, '/cdp/chromium'],
      [cdpPort, '/'],
    ] as const
    for (const [port, path] of heads) {
      const line = `GET ${path} HTTP/1.1`
      const head = [line, ...padded(HEADERS_MAX + 1, [...UPGRADE, evil])].join('\r\n')
      const { status, text } = await sendRaw(port, `${head}\r\n\r\n`)
      expect([path, status]).toEqual([path, 431])
      expect(text).toContain('headers_too_large')
    }
  })

  it('may hold so many bytes together, and the path counts with them', async () => {
    expect(await get(['Host: localhost', `x-long: ${'x'.repeat(16_000)}`])).toEqual([200, null])
    for (const bytes of [16_384, 17_000, 100_000]) {
      const answer = await get(['Host: localhost', `x-long: ${'x'.repeat(bytes)}`])
      expect([bytes, ...answer]).toEqual([bytes, 431, 'headers_too_large'])
    }
    const long = `/v1/sessions?key=${'x'.repeat(10_000)}`
    const both = await get(['Host: localhost', `x-long: ${'x'.repeat(7_000)}`], long)
    expect(both).toEqual([431, 'headers_too_large'])
  })

  it.each(['Host: localhost', 'Authorization: Bearer a'])('has %s only once', async (header) => {
    const [host, other] = ['Host: localhost', 'Authorization: Bearer b']
    const headers = header.startsWith('Host') ? [host, header] : [host, other, header]
    expect(await get(headers)).toEqual([400, 'bad_request'])
  })

  it('has Sec-Fetch-Site only once, for a socket too', async () => {
    const both = ['Host: localhost', 'Sec-Fetch-Site: cross-site', 'Sec-Fetch-Site: same-origin']
    expect(await get(both)).toEqual([400, 'bad_request'])
    expect(await get(both, '/json/version', cdpPort)).toEqual([400, 'bad_request'])
    const head = ['GET /v1/connect HTTP/1.1', ...both, ...UPGRADE].join('\r\n')
    expect((await sendRaw(server.port, `${head}\r\n\r\n`)).status).toBe(400)
  })
})

describe('what the parser of Node gives up on', () => {
  it.each([
    ['3,000 headers', headOf('GET /', padded(3_000, [])), 431, 'headers_too_large'],
    ['no HTTP', 'what is this', 400, 'bad_request'],
    ['a broken body', `${headOf(TURN, CHUNKED)}\r\n\r\nzz\r\n`, 400, 'bad_request'],
  ])('is refused with a problem document, and told: %s', async (_, head, status, code) => {
    for (const port of [server.port, cdpPort]) {
      refusals.length = 0
      const answer = await sendRaw(port, `${head}\r\n\r\n`)
      expect(answer.status).toBe(status)
      expect(answer.text).toContain('application/problem+json')
      expect(answer.text).toContain(`"code":"${code}"`)
      expect(refusals).toMatchObject([{ facts: { reason: code, address: '127.0.0.1' } }])
    }
  })
})

describe('Host', () => {
  it.each(['localhost', 'LocalHost:1', '127.0.0.1:65535', '[::1]', '[::1]:7420'])(
    '%s is a name of this server',
    async (host) => {
      expect(await get([`Host: ${host}`])).toEqual([200, null])
    },
  )

  it.each([
    'localhost:evil.com',
    'localhost:80@evil.com',
    'localhost:80:80',
    'localhost:65536',
    'localhost:',
    'localhost:-1',
    'localhost.',
    'localhost.evil.com',
    'localhost/evil.com',
    'localhost, evil.com',
    'user@localhost',
    '[::1]evil.com',
    '[::1]:evil.com',
    '[::1',
    '::1',
    '',
  ])('%j is not', async (host) => {
    const [status] = await get([`Host: ${host}`])
    expect(status).toBe(403)
    const head = ['GET /v1/connect HTTP/1.1', `Host: ${host}`, ...UPGRADE].join('\r\n')
    expect((await sendRaw(server.port, `${head}\r\n\r\n`)).status).toBe(403)
  })

  it('twice is refused, for a socket too', async () => {
    const hosts = ['Host: localhost', 'Host: evil.com']
    for (const both of [hosts, hosts.toReversed()]) {
      expect(await get(both)).toEqual([400, 'bad_request'])
      const head = ['GET /v1/connect HTTP/1.1', ...both, ...UPGRADE].join('\r\n')
      expect((await sendRaw(server.port, `${head}\r\n\r\n`)).status).toBe(400)
    }
  })

  it('is what a target that names its host names too', async () => {
    const host = ['Host: localhost:1']
    expect(await get(host, 'http://localhost:1/v1/sessions')).toEqual([200, null])
    expect(await get(host, 'http://evil.com/v1/sessions')).toEqual([400, 'bad_request'])
    expect(await get(['Host: evil.com'], 'http://localhost/v1/sessions')).toEqual([
      400,
      'bad_request',
    ])
    expect(await get(['Host: evil.com'], 'http://evil.com/v1/sessions')).toEqual([
      403,
      'host_refused',
    ])
  })
})
