/** Who is let in and who is not: real servers and real requests, with headers as an attacker sets them. */
import { once } from 'node:events'
import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  chmodSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { request, type IncomingHttpHeaders } from 'node:http'
import { connect } from 'node:net'
import { networkInterfaces, tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import { openHoldfast, type DiagnosticListener } from 'holdfast'
import { openTokenFile, startServer, type ServerOptions } from 'holdfast/server'
import { GUARDED, guarded } from '../support/guarded.ts'
import { dial } from '../support/wire-client.ts'
import { serve as startTestServer, type TestServer } from '../support/server.ts'

const MAIN = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))
const TOKENS = {
  watcher: 'hf_watcher',
  talker: 'hf_talker',
  answerer: 'hf_answerer',
  admin: 'hf_admin',
  old: 'hf_old',
} as const
/** For who asks until the answer is another one. */
const PATIENT = { rates: { failuresPerMinute: 1_000_000 } }
const BAD = 'hf_nobody-has-this-token'

let folder = ''
const servers = new Set<TestServer>()
const children = new Set<ChildProcess>()
const said: string[] = []

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-access-'))
})

afterEach(async () => {
  await Promise.all([...servers].map((server) => server.close()))
  servers.clear()
  for (const child of children) child.kill('SIGKILL')
  children.clear()
  said.length = 0
})

afterAll(() => rmSync(folder, { recursive: true }))

describe('a token', () => {
  it('is needed for all but what is public', async () => {
    const server = await serve()
    for (const path of ['/health', '/ready', '/openapi.json']) {
      expect([path, (await call(server, 'GET', path)).status]).toEqual([path, 200])
    }
    for (const [method, path] of Object.values(ROUTES)) {
      const without = await call(server, method, path)
      const bad = await call(server, method, path, { headers: bearer(BAD) })
      for (const answer of [without, bad]) {
        expect([answer.status, answer.body.code]).toEqual([401, 'unauthorized'])
        expect(answer.headers['www-authenticate']).toBe('Bearer')
      }
    }
  })

  it.each([
    ['watcher', ['list', 'look', 'turnOf', 'events', 'transcript', 'asks', 'changes']],
    [
      'talker',
      [
        'list',
        'look',
        'turnOf',
        'events',
        'transcript',
        'asks',
        'changes',
        'create',
        'turn',
        'byKey',
        'cancel',
      ],
    ],
    ['answerer', ['answer']],
    ['admin', null],
  ] as const)('%s may do what its scopes say, and nothing else', async (name, allowed) => {
    const server = await serve()
    const refused: string[] = []
    for (const [route, [method, path]] of Object.entries(ROUTES)) {
      const body = method === 'POST' ? {} : undefined
      const answer = await call(server, method, path, { headers: bearer(TOKENS[name]), body })
      expect(answer.status, route).not.toBe(401)
      if (answer.status === 403) refused.push(route)
      if (answer.status === 403) expect(answer.body.code).toBe('forbidden')
    }
    const all = Object.keys(ROUTES)
    const may: readonly string[] = allowed ?? all
    expect(refused).toEqual(all.filter((route) => !may.includes(route)))
  })

  it('is no longer good when it has expired', async () => {
    const server = await serve()
    expect((await list(server, TOKENS.old)).status).toBe(401)
  })

  it.each(['Basic aGY6X3dhdGNoZXI=', 'hf_watcher', 'Bearer', 'Bearer hf_watcher x', ''])(
    'is not found in Authorization: %s',
    async (authorization) => {
      const server = await serve()
      const answer = await call(server, 'GET', '/v1/sessions', { headers: { authorization } })
      expect(answer.status).toBe(401)
    },
  )

  it('is not asked for on loopback without a tokens file', async () => {
    const server = await serve({}, null)
    expect(
      (await call(server, 'POST', '/v1/keys/open/turns', { body: { input: 'x' } })).status,
    ).toBe(200)
    expect((await call(server, 'GET', '/metrics')).status).toBe(200)
  })
})

describe('the tokens file', () => {
  it('is read again when it is replaced or written over, without a restart', async () => {
    const file = tokensFile()
    const server = await serve(PATIENT, file)
    renameSync(tokensFile({ watcher: 'hf_replaced' }), file)
    await until(async () => (await list(server, 'hf_replaced')).status === 200)
    expect((await list(server, TOKENS.watcher)).status).toBe(401)
    writeFileSync(file, tokensJson({ watcher: 'hf_written-over' }))
    await until(async () => (await list(server, 'hf_written-over')).status === 200)
    expect((await list(server, 'hf_replaced')).status).toBe(401)
  })

  it.each([
    ['is no JSON', 'hf_secret {'],
    ['has a token where its digest belongs', '{"tokens":[{"name":"a","sha256":"hf_secret"}]}'],
    [
      'has an unknown scope',
      tokensJson({ watcher: 'hf_secret' }).replace('"watch"', '"hf_secret"'),
    ],
    ['has an unknown field', tokensJson({ watcher: 'hf_secret' }).replace('name', 'hf_secret')],
  ])('that %s changes nothing, and is told in one line that shows nothing', async (_, text) => {
    const file = tokensFile()
    const server = await serve(PATIENT, file)
    writeFileSync(file, text)
    await until(async () => said.length > 0)
    expect((await list(server, TOKENS.watcher)).status).toBe(200)
    expect(said).toEqual([expect.stringMatching(/^the tokens file cannot be used, .*$/)])
    expect(said.join()).not.toContain('hf_secret')
    writeFileSync(file, tokensJson({ watcher: 'hf_mended' }))
    await until(async () => (await list(server, 'hf_mended')).status === 200)
  })

  it('that is missing or that others may write to is not served at all', async () => {
    const options = ['serve', '--port', '0', '--store', 'memory:', '--tokens']
    const missing = await run([...options, join(folder, 'missing')])
    expect([missing.code, missing.stderr]).toEqual([
      1,
      expect.stringMatching(/^holdfast: .*there\n$/),
    ])
    const file = tokensFile({}, 0o666)
    const shared = await run([...options, file])
    expect([shared.code, shared.stderr]).toEqual([1, expect.stringContaining('others may write')])
  })
})

describe('holdfast token', () => {
  it('makes a token that is shown once and good, until it is revoked', async () => {
    const file = join(folder, 'made.json')
    const made = await run(['token', 'new', 'ci', '--scope', 'talk', '--tokens', file])
    const token = made.stdout.trim()
    expect(token).toMatch(/^hf_[\w-]{43}$/)
    expect(made.stderr).not.toContain(token)
    expect(statSync(file).mode & 0o777).toBe(0o600)
    expect(readFileSync(file, 'utf8')).not.toContain(token)
    const server = await serve(PATIENT, file)
    expect((await list(server, token)).status).toBe(200)
    const other = ['token', 'new', 'ops', '--scope', 'admin', '--scope', 'admin', '--tokens', file]
    const admin = (await run([...other, '--expires', '30d'])).stdout.trim()
    await until(
      async () =>
        (await call(server, 'GET', '/metrics', { headers: bearer(admin) })).status === 200,
    )
    const listed = (await run(['token', 'list', '--tokens', file])).stdout
    expect(listed).toMatch(
      /^ci {3}[\w-]{22} {2}talk\nops {2}[\w-]{22} {2}admin {2}expires \d{4}-.*Z\n$/,
    )
    expect((await run(['token', 'revoke', 'ci', '--tokens', file])).code).toBe(0)
    await until(async () => (await list(server, token)).status === 401)
    expect((await list(server, admin)).status).toBe(200)
  })

  it('loses none of several that are made at once, and says which were not', async () => {
    const file = join(folder, 'race.json')
    const names = ['a', 'b', 'c', 'd']
    const results = await Promise.all(
      names.map((name) => run(['token', 'new', name, '--scope', 'watch', '--tokens', file])),
    )
    const made = names.filter((_, index) => results[index]?.code === 0)
    const { tokens } = JSON.parse(readFileSync(file, 'utf8')) as { tokens: { name: string }[] }
    expect(tokens.map(({ name }) => name).toSorted()).toEqual(made)
    const refused = results.filter(({ code }) => code !== 0)
    for (const { stderr } of refused) expect(stderr).toMatch(/^holdfast: another command .*\n$/)
  })

  it.each([
    [['token', 'new', 'x', '--scope', 'talk'], '--tokens FILE'],
    [['token', 'new', 'x', '--tokens', 'f'], '--scope watch'],
    [['token', 'new', 'x', '--scope', 'root', '--tokens', 'f'], '--scope watch'],
    [['token', 'new', 'x y', '--scope', 'talk', '--tokens', 'f'], 'letters'],
    [['token', 'new', 'x', '--scope', 'talk', '--tokens', 'f', '--expires', '1y'], '30d'],
    [['token', 'new', '--scope', 'talk', '--tokens', 'f'], 'new NAME'],
    [['token', 'forget', 'x', '--tokens', 'f'], 'revoke NAME'],
  ])('%j is told in one line', async (args, hint) => {
    const { code, stdout, stderr } = await run(args)
    expect([code, stdout]).toEqual([2, ''])
    expect(stderr).toMatch(/^holdfast: .*\n$/)
    expect(stderr).toContain(hint)
  })
})

describe('where a server listens', () => {
  const tokens = ['--tokens', 'tokens.json']

  it.each([
    [['--host', '0.0.0.0'], '--tokens FILE'],
    [['--host', '192.0.2.1'], '--tokens FILE'],
    [['--host', '0.0.0.0', ...tokens], '--allow-host NAME'],
    [['--host', '::', ...tokens], '--allow-host NAME'],
    [['--allow-host', 'a.example'], '--allow-host need tokens'],
    [['--allow-host', 'a.example:80', ...tokens], 'without scheme, port'],
    [['--allow-host', '*.example', ...tokens], 'without scheme, port'],
    [['--allow-origin', '*'], '--allow-origin must be like'],
    [['--allow-origin', 'https://a.example/'], 'without path'],
    [['--allow-origin', 'null'], '--allow-origin must be like'],
  ])('%j is refused in one line', async (flags, hint) => {
    const { code, stderr } = await run(['serve', '--port', '0', '--store', 'memory:', ...flags])
    expect(code, stderr).toBe(2)
    expect(stderr).toMatch(/^holdfast: .*\n$/)
    expect(stderr).toContain(hint)
  })

  it('is also checked for a program that starts one', async () => {
    const holdfast = await openHoldfast({ store: 'memory:' })
    const start = (options: Partial<ServerOptions>) => startServer({ holdfast, ...options })
    await expect(start({ host: '0.0.0.0' })).rejects.toThrow('loopback')
    const open = await openTokenFile(tokensFile())
    await expect(start({ host: '0.0.0.0', tokens: open })).rejects.toThrow('allowHosts')
    open.close()
    await holdfast.close()
  })
})

describe('Host', () => {
  it('must be a name of the server: one that an attacker leads here is refused', async () => {
    const server = await serve({
      host: '0.0.0.0',
      allowHosts: ['Holdfast.Example', '[2001:db8::1]'],
    })
    const statusOf = async (host: string) =>
      (await call(server, 'GET', '/v1/sessions', { headers: { host, ...bearer(TOKENS.watcher) } }))
        .status
    for (const host of [
      'holdfast.example',
      'HOLDFAST.example:443',
      '[2001:db8::1]:1',
      'localhost',
    ]) {
      expect([host, await statusOf(host)]).toEqual([host, 200])
    }
    for (const host of ['evil.example', 'holdfast.example.evil.example', 'xholdfast.example']) {
      expect([host, await statusOf(host)]).toEqual([host, 403])
    }
  })
})

describe('Origin', () => {
  const host = 'holdfast.example'
  const page = 'https://app.example'

  async function answer(origin: string, path = '/v1/sessions', token: string = TOKENS.watcher) {
    const server = await serve({
      host: '0.0.0.0',
      allowHosts: [host],
      allowOrigins: [page, 'http://localhost:5173'],
    })
    return call(server, 'GET', path, { headers: { host, origin, ...bearer(token) } })
  }

  it.each([`http://${host}`, `https://${host}`])('%s is its own', async (origin) => {
    const { status, headers } = await answer(origin)
    expect([status, headers['access-control-allow-origin']]).toEqual([200, undefined])
  })

  it.each([page, 'http://localhost:5173'])('%s is allowed, and told so exactly', async (origin) => {
    const { status, headers } = await answer(origin)
    expect(status).toBe(200)
    expect(headers).toMatchObject({
      'access-control-allow-origin': origin,
      'access-control-expose-headers': expect.stringMatching(/Location.*Retry-After/),
      vary: 'Origin',
    })
    expect(headers['access-control-allow-credentials']).toBeUndefined()
  })

  it('that is allowed may read refusals too', async () => {
    const { status, headers } = await answer(page, '/v1/sessions', BAD)
    expect([status, headers['access-control-allow-origin']]).toEqual([401, page])
  })

  it.each([
    'https://evil.example',
    `${page}.evil.example`,
    'http://app.example',
    'null',
    `${page}:8443`,
  ])('%s is refused, whatever token it has', async (origin) => {
    const { status, headers, body } = await answer(origin, '/v1/sessions', TOKENS.admin)
    expect([status, body.code]).toEqual([403, 'origin_refused'])
    expect(headers['access-control-allow-origin']).toBeUndefined()
  })

  it('is asked about beforehand by browsers, and answered only for those allowed', async () => {
    const server = await serve({ allowOrigins: [page] })
    const asked = (origin: string) =>
      call(server, 'OPTIONS', '/v1/keys/a/turns', {
        headers: { origin, 'access-control-request-method': 'POST' },
      })
    const { status, headers } = await asked(page)
    expect([status, headers['access-control-allow-origin']]).toEqual([204, page])
    expect(headers['access-control-allow-methods']).toBe('GET, POST, PATCH, DELETE')
    const allowed = headers['access-control-allow-headers']?.split(', ') ?? []
    expect(allowed.filter((name) => !name.startsWith('x-stainless-'))).toEqual([
      'authorization',
      'content-type',
      'idempotency-key',
      'prefer',
      'last-event-id',
      'x-session-key',
      'x-session-busy',
      'x-session-wait-ms',
      'acp-connection-id',
      'acp-session-id',
    ])
    // What OpenAI's client sends by itself, from a page too.
    expect(allowed).toContain('x-stainless-retry-count')
    const refused = await asked('https://evil.example')
    expect([refused.status, refused.body.code]).toEqual([403, 'origin_refused'])
    expect((await call(server, 'OPTIONS', '/v1/sessions')).status).toBe(405)
  })

  it('is not sent for what a page embeds, which is refused all the same; links may be followed', async () => {
    const server = await serve({}, null)
    const statusOf = async (site: string, mode: string) =>
      (
        await call(server, 'GET', '/v1/sessions', {
          headers: { 'sec-fetch-site': site, 'sec-fetch-mode': mode },
        })
      ).status
    expect(await statusOf('cross-site', 'no-cors')).toBe(403)
    expect(await statusOf('same-site', 'no-cors')).toBe(403)
    expect(await statusOf('cross-site', 'navigate')).toBe(200)
    expect(await statusOf('same-origin', 'cors')).toBe(200)
    expect(await statusOf('none', 'navigate')).toBe(200)
  })
})

describe('one client', () => {
  const from = (address: string) => ({ 'x-forwarded-for': `198.51.100.1, ${address}` })

  it('that sends too much is told when to come back, and others are not held up', async () => {
    const rates = { requestsBurst: 3, requestsPerSecond: 0.01 }
    const server = await serve({ trustProxy: true, rates })
    const get = (address: string) => call(server, 'GET', '/health', { headers: from(address) })
    const statuses: number[] = []
    for (let n = 0; n < 4; n += 1) statuses.push((await get('203.0.113.1')).status)
    expect(statuses).toEqual([200, 200, 200, 429])
    const { headers, body } = await get('203.0.113.1')
    expect([body.code, Number(headers['retry-after'])]).toEqual(['too_many', expect.any(Number)])
    expect(Number(headers['retry-after'])).toBeGreaterThan(90)
    expect((await get('203.0.113.2')).status).toBe(200)
  })

  it.each(['203.0.113.1', '127.0.0.1'])(
    'that shows bad tokens is told to wait, and a good one from there is good: %s',
    async (address) => {
      const server = await serve({ trustProxy: true })
      const get = (token: string) =>
        call(server, 'GET', '/v1/sessions', { headers: { ...from(address), ...bearer(token) } })
      for (let n = 0; n < 20; n += 1) expect((await get(BAD)).status).toBe(401)
      const { status, headers, body } = await get(BAD)
      expect([status, body.code, headers['retry-after']]).toEqual([429, 'too_many', '3'])
      for (const token of [TOKENS.watcher, TOKENS.admin])
        expect((await get(token)).status).toBe(200)
      // Good tokens take nothing from what bad ones have left, and give nothing back.
      expect((await get(BAD)).status).toBe(429)
    },
  )

  it('that sends too much without a good token does not keep out who has one', async () => {
    const rates = { requestsBurst: 2, requestsPerSecond: 0.01 }
    const server = await serve({ trustProxy: true, rates })
    const get = (token: string) =>
      call(server, 'GET', '/v1/sessions', { headers: { ...from('203.0.113.1'), ...bearer(token) } })
    const statuses: number[] = []
    for (const token of [BAD, BAD, BAD, TOKENS.watcher, TOKENS.watcher, TOKENS.watcher]) {
      statuses.push((await get(token)).status)
    }
    expect(statuses).toEqual([401, 401, 429, 200, 200, 429])
  })

  it('is told apart by its own address where no proxy is trusted', async () => {
    const server = await serve({ rates: { requestsBurst: 1, requestsPerSecond: 0.01 } })
    for (const address of ['203.0.113.1', '203.0.113.1']) {
      expect((await call(server, 'GET', '/health', { headers: from(address) })).status).toBe(200)
    }
  })

  const outward = Object.values(networkInterfaces())
    .flat()
    .find((address) => address?.family === 'IPv4' && !address.internal)?.address

  it.runIf(outward !== undefined)('may hold only so many connections', async () => {
    const server = await serve({ host: outward ?? '', rates: { connectionsPerClientMax: 2 } })
    const dial = () =>
      new Promise<string>((resolve) => {
        const socket = connect(server.port, outward)
        socket.once('close', () => resolve('cut')).on('error', () => undefined)
        socket.once('data', (data) => resolve(data.toString().split(' ')[1] ?? ''))
        socket.write(`GET /health HTTP/1.1\r\nHost: ${outward}\r\n\r\n`)
      })
    const fates: string[] = []
    for (let n = 0; n < 3; n += 1) fates.push(await dial())
    expect(fates).toEqual(['200', '200', '429'])
  })
})

describe('a socket', () => {
  it('is refused to a page elsewhere before it is opened, and to a stranger after its hello', async () => {
    const server = await serve({ allowOrigins: ['https://app.example'] })
    const statusOf = (options: object) =>
      new Promise<number>((resolve, reject) => {
        const socket = new WebSocket(`ws://127.0.0.1:${server.port}/v1/connect`, options)
        socket.on('unexpected-response', (_, answer) => {
          answer.resume()
          resolve(Number(answer.statusCode))
        })
        socket.on('open', () => resolve(101)).on('error', reject)
        socket.on('open', () => socket.terminate())
      })
    expect(await statusOf({ origin: 'https://evil.example' })).toBe(403)
    expect(await statusOf({ headers: { host: 'evil.example' } })).toBe(403)
    expect(await statusOf({ origin: 'https://app.example' })).toBe(101)
    for (const auth of [{}, { token: BAD }]) {
      const [frame] = await hello(server, { key: 'k', auth })
      expect([frame.type, frame.code]).toEqual(['refuse', 'unauthorized'])
    }
    const [welcome] = await hello(server, { key: 'k', auth: { token: TOKENS.talker } })
    expect(welcome.type).toBe('welcome')
  })

  it('and a stream are over when their token is, and the way back with it', async () => {
    const file = tokensFile()
    const server = await serve(
      { ...PATIENT, heartbeatMs: 50, connectLimits: { watchMs: 50 } },
      file,
    )
    const mine = dial(server.url, { key: 'k', auth: { token: TOKENS.talker } })
    const other = dial(server.url, { key: 'k', auth: { token: TOKENS.admin } })
    const { session, attachment, resume } = await mine.frame('welcome')
    await other.frame('welcome')
    const stream = await fetch(`${server.url}/v1/sessions/${session.id}/events`, {
      headers: { authorization: `Bearer ${TOKENS.talker}`, accept: 'text/event-stream' },
    })
    const cut = stream.text().then(
      () => 'ended',
      () => 'cut',
    )
    writeFileSync(file, tokensJson({ admin: TOKENS.admin }))
    expect(await mine.closed).toEqual({ code: 4401, reason: 'unauthorized' })
    expect(await cut).toBe('cut')
    const auth = { resume: { attachment, token: resume } }
    const back = dial(server.url, { session: session.id, auth })
    expect((await back.closed).code).toBe(4401)
    other.send({ type: 'turn', id: '1', input: 'x' })
    expect(await other.reply('1')).toHaveProperty('turn')
    other.socket.terminate()
  })

  it('that is lost comes back by its resume token only with the token it came in by', async () => {
    const server = await serve()
    const first = dial(server.url, { key: 'k', auth: { token: TOKENS.talker } })
    const { session, attachment, resume } = await first.frame('welcome')
    await first.cut()
    const back = { attachment, token: resume }
    const bare = dial(server.url, { session: session.id, auth: { resume: back } })
    expect((await bare.closed).code).toBe(4401)
    const both = { token: TOKENS.talker, resume: back }
    const again = dial(server.url, { session: session.id, auth: both })
    expect((await again.frame('welcome'))['attachment']).toBe(attachment)
    again.socket.terminate()
  })

  it('comes back with no more than its token allows, or than the link that it came in by', async () => {
    const server = await serve()
    const { talker, watcher, admin } = TOKENS
    const driver = dial(server.url, { key: 'k', auth: { token: talker } })
    const { session, attachment, resume } = await driver.frame('welcome')
    await driver.cut()
    const shown = { attachment, token: resume }
    const auth = { token: watcher, resume: shown }
    const [refused] = await hello(server, { session: session.id, auth })
    expect([refused.type, refused.code]).toEqual(['refuse', 'forbidden'])
    const links = `${server.url}/v1/sessions/${session.id}/links`
    const headers = { authorization: `Bearer ${admin}`, 'content-type': 'application/json' }
    const body = JSON.stringify({ scopes: ['talk'] })
    const link = (await (await fetch(links, { method: 'POST', headers, body })).json()) as any
    const guest = dial(server.url, { session: session.id, auth: { link: link.token } })
    const welcome = await guest.frame('welcome')
    await guest.cut()
    const again = { attachment: welcome['attachment'], token: welcome['resume'] }
    const back = dial(server.url, {
      session: session.id,
      auth: { token: watcher, resume: again },
    })
    expect(await back.frame('welcome')).toMatchObject({ attachment: again.attachment })
    back.send({ type: 'turn', id: '1', input: 'x' })
    expect(await back.reply('1')).toHaveProperty('turn')
    back.socket.terminate()
  })

  it('is welcome with a good secret from an address that has shown too many bad ones', async () => {
    const server = await serve({ rates: { failuresPerMinute: 2 } })
    const { talker, admin } = TOKENS
    const driver = dial(server.url, { key: 'k', auth: { token: talker } })
    const { session, attachment, resume } = await driver.frame('welcome')
    await driver.cut()
    const links = await call(server, 'POST', `/v1/sessions/${session.id}/links`, {
      headers: bearer(admin),
      body: { scopes: ['watch'] },
    })
    const answers: string[] = []
    for (const auth of [
      ...[{ token: BAD }, { link: BAD }, { resume: { attachment: BAD, token: BAD } }],
      ...[{ token: talker }, { link: links.body.token as string }],
      { token: talker, resume: { attachment, token: resume } },
      { token: BAD },
    ]) {
      const role = 'link' in auth ? { role: 'watcher' } : {}
      const [first] = await hello(server, { session: session.id, ...role, auth })
      answers.push(first.code ?? first.type)
    }
    expect(answers).toEqual([
      ...['unauthorized', 'unauthorized', 'too_many'],
      ...['welcome', 'welcome', 'welcome', 'too_many'],
    ])
  })

  it('gives an address no more tries for opening many before it says a word', async () => {
    const server = await serve({ rates: { failuresPerMinute: 2 } })
    const sockets = Array.from(
      { length: 6 },
      () => new WebSocket(`ws://127.0.0.1:${server.port}/v1/connect`),
    )
    await Promise.all(sockets.map((socket) => once(socket, 'open')))
    const refusals = sockets.map(async (socket) => {
      const [data] = (await once(socket, 'message')) as [Buffer]
      return (JSON.parse(data.toString()) as { code: string }).code
    })
    const words = JSON.stringify({ type: 'hello', v: 1, key: 'k', auth: { token: BAD } })
    for (const socket of sockets) socket.send(words)
    const codes = await Promise.all(refusals)
    expect(codes.filter((code) => code === 'unauthorized')).toHaveLength(2)
    expect(codes.filter((code) => code === 'too_many')).toHaveLength(4)
  })
})

describe('every answer', () => {
  it('may not be framed, sniffed, kept, or named to another site', async () => {
    const server = await serve({}, null)
    for (const path of ['/health', '/v1/sessions', '/nothing']) {
      const { headers } = await call(server, 'GET', path)
      expect(headers).toMatchObject({
        'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
        'x-frame-options': 'DENY',
        'x-content-type-options': 'nosniff',
        'referrer-policy': 'no-referrer',
        'cross-origin-resource-policy': 'same-origin',
        'cache-control': 'no-store',
      })
    }
  })
})

describe('a secret', () => {
  it('is in no log line and no refusal, whatever is done with it', async () => {
    const file = join(folder, 'secrets.json')
    const newToken = async (name: string, scope: string) =>
      (await run(['token', 'new', name, '--scope', scope, '--tokens', file])).stdout.trim()
    const secrets = [await newToken('a', 'admin'), await newToken('w', 'watch'), BAD]
    const [admin = '', watcher = ''] = secrets
    const server = await spawnServer(['--tokens', file, '--json-log', '--log-level', 'debug'])
    const bodies: string[] = []
    const tell = async (method: string, path: string, options: CallOptions) => {
      const answer = await call(server, method, path, options)
      if (answer.status >= 400) bodies.push(answer.text)
      return answer
    }
    const as = (token: string, body?: unknown) => ({ headers: bearer(token), body })
    const { id } = (await tell('POST', '/v1/sessions', as(admin, { key: 'secret' }))).body
    const links = `/v1/sessions/${id}/links`
    const link = (await tell('POST', links, as(admin, { scopes: ['talk'] }))).body
    secrets.push(link.token)
    for (const token of [...secrets, 'x'.repeat(9_000)]) {
      await tell('GET', '/v1/sessions', as(token))
      await tell('DELETE', `/v1/sessions/${id}`, as(token === admin ? watcher : token))
      await tell('GET', `/v1/sessions?token=${token}`, as(watcher))
      await tell('POST', links, as(admin, { scopes: ['talk'], token }))
    }
    const good = await hello(server, { session: id, auth: { link: link.token } })
    const welcome = good.find(({ type }) => type === 'welcome')
    expect(welcome, JSON.stringify(good)).toBeDefined()
    secrets.push(welcome.resume)
    const { attachment } = welcome
    const auths = [
      { token: BAD },
      { link: BAD },
      { token: link.token },
      { link: welcome.resume },
      { resume: { attachment, token: link.token } },
      { resume: { attachment: 'nobody', token: welcome.resume } },
    ]
    for (const auth of auths) {
      const frames = await hello(server, { session: id, auth })
      bodies.push(
        ...frames.filter(({ type }) => type !== 'welcome').map((it) => JSON.stringify(it)),
      )
    }
    writeFileSync(file, `{"tokens": "${admin}"`)
    await server.line(/cannot be used/)
    server.child.kill('SIGTERM')
    await server.exited
    const all = [...bodies, ...server.output].join('\n')
    // What is searched is really there.
    for (const trace of ['unauthorized', 'forbidden', 'cannot be used'])
      expect(all).toContain(trace)
    expect(bodies.length).toBeGreaterThan(10)
    expect(server.output.length).toBeGreaterThan(2)
    expect(secrets).toHaveLength(5)
    for (const secret of secrets) expect(all).not.toContain(secret)
  })
})

const ROUTES = {
  list: ['GET', '/v1/sessions'],
  look: ['GET', '/v1/sessions/none'],
  turnOf: ['GET', '/v1/sessions/none/turns/t1'],
  events: ['GET', '/v1/sessions/none/events'],
  transcript: ['GET', '/v1/sessions/none/transcript'],
  asks: ['GET', '/v1/sessions/none/asks'],
  create: ['POST', '/v1/sessions'],
  turn: ['POST', '/v1/sessions/none/turns'],
  byKey: ['POST', '/v1/keys/none/turns'],
  cancel: ['DELETE', '/v1/sessions/none/turns/t1'],
  answer: ['POST', '/v1/sessions/none/asks/a1'],
  close: ['DELETE', '/v1/sessions/none'],
  changes: ['GET', '/v1/changes'],
  makeLink: ['POST', '/v1/sessions/none/links'],
  links: ['GET', '/v1/sessions/none/links'],
  revokeLink: ['DELETE', '/v1/sessions/none/links/l1'],
  metrics: ['GET', '/metrics'],
} as const

function bearer(token: string): { authorization: string } {
  return { authorization: `Bearer ${token}` }
}

function tokensJson(secrets: Partial<Record<keyof typeof TOKENS, string>>): string {
  const scopes = {
    watcher: 'watch',
    talker: 'talk',
    answerer: 'answer',
    admin: 'admin',
    old: 'admin',
  }
  const tokens = Object.entries(secrets).map(([name, secret]) => ({
    name,
    sha256: createHash('sha256').update(secret).digest('hex'),
    scopes: [scopes[name as keyof typeof TOKENS]],
    ...(name === 'old' ? { expiresAt: 1_000 } : {}),
  }))
  return JSON.stringify({ tokens })
}

let files = 0

/** A fresh file with these tokens. */
function tokensFile(
  secrets: Partial<Record<keyof typeof TOKENS, string>> = TOKENS,
  mode = 0o600,
): string {
  files += 1
  const file = join(folder, `tokens-${files}.json`)
  writeFileSync(file, tokensJson(secrets))
  chmodSync(file, mode)
  return file
}

async function serve(
  options: Partial<ServerOptions> = {},
  file: string | null = tokensFile(),
): Promise<TestServer> {
  const onDiagnostic: DiagnosticListener = ({ level, message, facts }) => {
    if (level === 'error') said.push(`${message} ${JSON.stringify(facts)}`)
  }
  const tokens = file === null ? undefined : await openTokenFile(file, onDiagnostic)
  const server = await startTestServer({ onDiagnostic, tokens, ...options })
  servers.add(server)
  return server
}

type CallOptions = { readonly headers?: Record<string, string>; readonly body?: unknown }
type Called = {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly text: string
  readonly body: any
}

/** A request with exactly these headers: `fetch` would not let us lie. */
function call(
  { port }: { readonly port: number },
  method: string,
  path: string,
  { headers = {}, body }: CallOptions = {},
): Promise<Called> {
  const payload = body === undefined ? '' : JSON.stringify(body)
  const type = body === undefined ? {} : { 'content-type': 'application/json' }
  const length = { 'content-length': Buffer.byteLength(payload) }
  const all = { ...type, ...length, ...headers }
  return new Promise((resolve, reject) => {
    const sent = request(
      { host: '127.0.0.1', port, method, path, headers: all, agent: false },
      (answer) => {
        let text = ''
        answer.setEncoding('utf8').on('data', (part: string) => (text += part))
        answer.on('error', reject).on('end', () => {
          const isJson = answer.headers['content-type']?.endsWith('json') === true
          const { statusCode = 0 } = answer
          const parsed: unknown = isJson ? JSON.parse(text) : null
          resolve({ status: statusCode, headers: answer.headers, text, body: parsed })
        })
      },
    )
    sent.on('error', reject).end(payload)
  })
}

function list(server: TestServer, token: string): Promise<Called> {
  return call(server, 'GET', '/v1/sessions', { headers: bearer(token) })
}

/** Asks again and again: each time it really asks. */
async function until(isSo: () => Promise<boolean>): Promise<void> {
  while (!(await isSo())) await new Promise((resolve) => setImmediate(resolve))
}

/** All frames until the socket is closed, or has been welcomed and is left. */
function hello({ port }: { readonly port: number }, fields: object): Promise<any[]> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(`ws://127.0.0.1:${port}/v1/connect`)
    const frames: any[] = []
    socket.on('open', () => socket.send(JSON.stringify({ type: 'hello', v: 1, ...fields })))
    socket.on('message', (data: Buffer) => {
      frames.push(...[JSON.parse(data.toString())].flat())
      if (frames.some(({ type }) => type === 'welcome')) socket.terminate()
    })
    socket.on('close', () => resolve(frames)).on('error', reject)
  })
}

function run(args: readonly string[]) {
  return new Promise<{ code: number; stdout: string; stderr: string }>((resolve) => {
    execFile(process.execPath, [MAIN, ...args], { cwd: folder }, (error, stdout, stderr) => {
      resolve({ code: Number(error?.code ?? 0), stdout, stderr })
    })
  })
}

/** A server in a process of its own, of which everything it says is kept. */
async function spawnServer(flags: readonly string[]) {
  const args = [MAIN, 'serve', '--port', '0', '--store', 'memory:', ...flags]
  const child = guarded(
    spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'], ...GUARDED }),
  )
  children.add(child)
  const exited = new Promise<void>((resolve) => child.once('close', () => resolve()))
  const output: string[] = []
  const waiting: { readonly pattern: RegExp; readonly heard: (line: string) => void }[] = []
  for (const input of [child.stdout, child.stderr]) {
    createInterface({ input }).on('line', (line) => {
      output.push(line)
      for (const { pattern, heard } of waiting) if (pattern.test(line)) heard(line)
    })
  }
  const line = (pattern: RegExp) =>
    new Promise<string>((heard) => {
      const already = output.find((text) => pattern.test(text))
      if (already === undefined) waiting.push({ pattern, heard })
      else heard(already)
    })
  const { url } = JSON.parse(await line(/listening/)) as { url: string }
  return { child, exited, output, line, port: Number(new URL(url).port) }
}
