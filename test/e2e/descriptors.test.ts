/** A process with few file descriptors, and clients that take them all: it lives, and serves the others. */
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runGuarded } from '../support/guarded.ts'
import { ROOT } from '../support/repository.ts'
import { sendRaw } from '../support/raw-http.ts'
import { ServerProcess, spawnServer, type ProcessOptions } from '../support/server-process.ts'

const LIMIT = 300
/** Of so many descriptors half are kept for the rest. */
const CONNECTIONS = 150

let folder = ''
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-descriptors-'))
})
afterAll(() => rmSync(folder, { recursive: true }))

/** A server under a limit that it cannot raise. */
function limited(limit: number, ...flags: string[]): ProcessOptions {
  return { under: ['/bin/sh', '-c', `ulimit -n ${limit}; exec "$@"`, 'sh'], flags, cwd: folder }
}

async function dial(port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1').on('error', () => undefined)
  await once(socket, 'connect')
  return socket
}

describe('a server with few descriptors', () => {
  it('says so in one line, and serves good clients whoever holds connections', async () => {
    const cat = { runner: 'process', command: 'cat' }
    const config = { agents: { cat }, defaultAgent: 'cat' }
    writeFileSync(join(folder, 'holdfast.config.json'), JSON.stringify(config))
    const server = await ServerProcess.start(limited(LIMIT, '--data', join(folder, 'data')))
    const { port } = server
    const post = async (key: string): Promise<any> =>
      (await server.post(`/v1/keys/${key}/turns`, { input: 'hello' })).body
    const idle: Socket[] = []
    for (let n = 0; n < 2 * LIMIT; n += 1) {
      const socket = await dial(port)
      // Some say nothing, some begin a request that never ends.
      if (n % 2 === 0) socket.write('POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nx: ')
      idle.push(socket)
      if (n % 100 === 0) expect((await post(`at-${n}`)).turn.reply.text).toBe('hello')
    }
    const turns = await Promise.all(Array.from({ length: 10 }, (_, n) => post(`after-${n}`)))
    expect(turns.map(({ turn }) => turn.state)).toEqual(turns.map(() => 'done'))
    expect(server.isRunning).toBe(true)
    for (const socket of idle) socket.destroy()
    const told = server.output.join('').split('\n')
    const lines = told.filter((line) => line.includes('open files'))
    expect(lines).toEqual([expect.stringContaining(`at most ${CONNECTIONS} connections`)])
    expect(told.some((line) => line.includes('an idle connection was closed'))).toBe(true)
    await server.kill()
  })

  it('refuses a connection with an answer when all others are in use', async () => {
    const server = await ServerProcess.start(limited(LIMIT, '--store', 'memory:'))
    const { port } = server
    const { id } = (await server.post('/v1/sessions', { key: 'k' })).body
    const head = [
      `GET /v1/sessions/${id}/events HTTP/1.1`,
      'Host: localhost',
      'Accept: text/event-stream',
    ]
    const streams: Socket[] = []
    for (let n = 0; n < CONNECTIONS; n += 1) {
      const socket = await dial(port)
      socket.write(`${head.join('\r\n')}\r\n\r\n`)
      await once(socket, 'data')
      streams.push(socket)
    }
    const refused = await sendRaw(port, 'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n')
    expect(refused.status).toBe(429)
    expect(refused.text).toMatch(/Retry-After: 1\r\n[^]*"code":"too_many"/)
    streams.pop()?.destroy()
    let status = 429
    while (status === 429) {
      const request = 'GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'
      status = (await sendRaw(port, request)).status
    }
    expect(status).toBe(200)
    for (const socket of streams) socket.destroy()
    await server.kill()
  })

  it('does not start with next to none', async () => {
    const server = spawnServer(limited(100, '--store', 'memory:'))
    let text = ''
    server.stderr?.on('data', (data: Buffer) => {
      text += data.toString()
    })
    const [code] = (await once(server, 'close')) as [number]
    expect(code).not.toBe(0)
    expect(text.trim().split('\n')).toEqual([expect.stringContaining('128 file descriptors')])
  })
})

describe('a child that is started without a descriptor left', () => {
  it('has failed, and so has one of a browser: the process goes on', async () => {
    const script = `
      import { openSync, closeSync } from 'node:fs'
      const { Child } = await import('${ROOT}dist/platform/child.js')
      const { startChromium } = await import('${ROOT}dist/browsers/chromium.js')
      const { BROWSER_LIMITS } = await import('${ROOT}dist/browsers/index.js')
      const taken = []
      try {
        for (;;) taken.push(openSync('/dev/null'))
      } catch (error) {
        if (error.code !== 'EMFILE') throw error
      }
      const child = new Child({ command: '/bin/cat', env: {} })
      child.stdin.write('hello')
      child.stdin.end()
      await child.ended
      const words = [child.describeEnd()]
      const events = { message() {}, tooLarge() {}, closed() {} }
      words.push(await startChromium({ program: '/bin/cat' }, events, BROWSER_LIMITS).catch(String))
      // Room for a part of the pipes, then for the child and not for its guard, then for both.
      for (let n = 0; n < 20; n += 1) {
        closeSync(taken.pop())
        const next = new Child({ command: '/bin/cat', env: {} })
        next.stdin.end()
        await next.ended
        words.push(next.describeEnd())
      }
      console.log(JSON.stringify(words))
      process.exit()`
    const command = 'ulimit -n 80; exec "$@"'
    const node = [process.execPath, '--input-type=module', '-e', script]
    const args = ['-c', command, 'sh', ...node]
    const { stdout } = await runGuarded('/bin/sh', args, { limitMs: 20_000, cwd: ROOT })
    const words = JSON.parse(stdout) as string[]
    const failed = 'could not be started: no file descriptors are left'
    expect(words[0]).toBe(failed)
    expect(words[1]).toContain('cat cannot be started: no file descriptors are left')
    expect(new Set(words.slice(2))).toEqual(new Set([failed, 'exited with code 0']))
    expect(words.at(-1)).toBe('exited with code 0')
  })
})
