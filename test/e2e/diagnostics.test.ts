/** What `holdfast serve` prints: what happened, readable line by line, and never a secret. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { MemoryStore, openHoldfast, type Agent, type Diagnostic, type OpenOptions } from 'holdfast'
import { startServer } from 'holdfast/server'
import { WebSocket } from 'ws'
import { CommandLine, killCommands } from '../support/command-line.ts'

let folder: string

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-diagnostics-'))
})
afterAll(() => {
  killCommands()
  rmSync(folder, { recursive: true, force: true })
})

type Line = { readonly code: string; readonly level: string; readonly [fact: string]: any }

class TestServer {
  readonly process: CommandLine
  url = ''

  constructor(flags: readonly string[]) {
    this.process = new CommandLine(['serve', '--port', '0', ...flags])
  }

  static async start(...flags: readonly string[]): Promise<TestServer> {
    const serving = new TestServer([...flags, '--log-format', 'json'])
    serving.url = (await serving.line('listening')).url
    return serving
  }

  /** Every line, parsed; one that is no JSON object fails. */
  get lines(): readonly Line[] {
    const { stdout, stderr } = this.process
    return [stdout, stderr].flatMap((text) =>
      text
        .split('\n')
        .slice(0, -1)
        .map((line) => JSON.parse(line) as Line),
    )
  }

  async line(code: string, facts: object = {}): Promise<Line> {
    const wanted = JSON.stringify({ code, ...facts })
    for (;;) {
      const found = this.lines.find((line) =>
        Object.entries({ code, ...facts }).every(([name, value]) => line[name] === value),
      )
      if (found !== undefined) return found
      await this.process.more(wanted)
    }
  }

  async post(path: string, body: object, headers: Record<string, string> = {}): Promise<any> {
    const response = await fetch(`${this.url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    })
    return { status: response.status, ...((await response.json()) as object) }
  }

  /** Exactly these bytes; resolves when the connection is over. */
  raw(bytes: string): Promise<string> {
    const { port } = new URL(this.url)
    return new Promise((resolve) => {
      let answer = ''
      const socket = connect(Number(port), '127.0.0.1', () => socket.end(bytes, 'latin1'))
      socket.on('data', (data) => (answer += data.toString('latin1')))
      socket.on('error', () => undefined)
      socket.on('close', () => resolve(answer))
    })
  }

  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    this.process.child.kill(signal)
    await this.process.exited
  }
}

function hello(url: string, auth: object): Promise<void> {
  return new Promise((resolve) => {
    const socket = new WebSocket(`${url.replace('http', 'ws')}/v1/connect`)
    socket.on('open', () => socket.send(JSON.stringify({ type: 'hello', v: 1, key: 'k', auth })))
    socket.on('message', () => socket.close())
    socket.on('error', () => undefined)
    socket.on('close', () => resolve())
  })
}

describe('what is refused', () => {
  it('is told with its reason: a page elsewhere, another host, a bad token, a scope', async () => {
    const tokens = join(folder, 'tokens.json')
    const made = new CommandLine(['token', 'new', 'w', '--scope', 'watch', '--tokens', tokens])
    await made.exited
    const watcher = made.stdout.trim()
    const serving = await TestServer.start('--store', 'memory:', '--tokens', tokens)
    const { url } = serving
    const statusOf = async (headers: Record<string, string>) =>
      (await serving.post('/v1/sessions', {}, headers)).status
    expect(await statusOf({ origin: 'https://evil.example' })).toBe(403)
    expect(await statusOf({ authorization: 'Bearer nothing-good' })).toBe(401)
    expect(await statusOf({ authorization: `Bearer ${watcher}` })).toBe(403)
    await serving.raw('GET /v1/sessions HTTP/1.1\r\nHost: evil.example\r\n\r\n')
    await hello(url, { token: 'nothing-better' })
    const told = { level: 'warn' }
    await serving.line('client_refused', {
      ...told,
      reason: 'origin_refused',
      origin: 'https://evil.example',
    })
    await serving.line('client_refused', { ...told, reason: 'host_refused', host: 'evil.example' })
    await serving.line('client_refused', { ...told, reason: 'unauthorized', door: 'http' })
    await serving.line('client_refused', { ...told, reason: 'unauthorized', door: 'connect' })
    await serving.line('client_refused', { ...told, reason: 'forbidden', door: 'http' })
    await serving.stop()
    const printed = serving.process.stdout + serving.process.stderr
    for (const secret of [watcher, 'nothing-good', 'nothing-better']) {
      expect(printed).not.toContain(secret)
    }
    // Only the audit has the addresses of clients.
    expect(serving.lines.every((line) => !('address' in line))).toBe(true)
  })

  it('cannot forge a line, leave its line, or fill a disk', async () => {
    const serving = await TestServer.start('--store', 'memory:')
    const hostile = ['\u009B31mred', '\u0085next', '","code":"stopped","x":"', '\u00AD\u0090', '\t']
    for (let n = 0; n < 300; n += 1) {
      const origin = `${hostile[n % hostile.length]}${n}${'x'.repeat(n * 10)}`
      const head = `GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: ${origin}\r\n`
      expect(await serving.raw(`${head}Connection: close\r\n\r\n`)).toMatch(/^HTTP\/1.1 403/)
    }
    await serving.stop()
    const refused = serving.lines.filter(({ code }) => code === 'client_refused')
    expect(refused.length).toBeLessThan(20)
    const counted = refused.reduce((sum, { count = 0 }) => sum + count, 0)
    const printed = refused.filter(({ count }) => count === undefined).length
    expect(counted + printed).toBe(300)
    for (const text of [serving.process.stdout, serving.process.stderr]) {
      expect(text).not.toMatch(/[^\P{C}\n]/u)
      for (const line of text.split('\n')) expect(line.length).toBeLessThan(4_000)
    }
    expect(serving.lines.filter(({ code }) => code === 'stopped')).toHaveLength(1)
  })

  it('is one readable line at a terminal', async () => {
    const serving = new TestServer(['--store', 'memory:'])
    await serving.process.said('listening on ')
    serving.url = /listening on (\S+)/.exec(serving.process.stdout)?.[1] ?? ''
    await serving.post('/v1/sessions', {}, { origin: 'https://evil.example' })
    await serving.process.said('client_refused')
    await serving.stop()
    const [line] = serving.process.stderr.split('\n')
    expect(line).toMatch(
      /^\S+Z warn {2}client_refused: a page of another origin may not do this reason=origin_refused /,
    )
    expect(line).toContain(' origin=https://evil.example')
  })
})

describe('a life', () => {
  it('is told: what a killed server left, agents that come and go, and the end', async () => {
    const config = join(folder, 'holdfast.config.json')
    const program = { command: process.execPath, args: ['-e', 'process.exit(3)'] }
    writeFileSync(config, JSON.stringify({ agents: { broken: { runner: 'process', ...program } } }))
    const flags = ['--data', join(folder, 'data'), '--config', config]
    const killed = await TestServer.start(...flags)
    const { version, runtime, store, agents } = await killed.line('listening')
    expect({ version, runtime, agents }).toMatchObject({
      version: expect.stringMatching(/^\d/),
      runtime: `node ${process.version}`,
      agents: expect.stringContaining('broken'),
    })
    expect(store).toContain('holdfast.db')
    const asks = { input: 'secret-input', agent: 'ask' }
    const async = { prefer: 'respond-async' }
    const { session, turn } = await killed.post('/v1/keys/work/turns', asks, async)
    const open = (): Promise<string> =>
      fetch(`${killed.url}/v1/sessions/${session}/asks`).then((answer) => answer.text())
    await expect.poll(open, { timeout: 30_000 }).toContain('"id"')
    await killed.stop('SIGKILL')

    const serving = await TestServer.start(...flags)
    const recovered = await serving.line('session_recovered', { interrupted: turn.id })
    expect(recovered).toMatchObject({ level: 'info', asksWithdrawn: 1, queued: 0 })
    await serving.post('/v1/keys/other/turns', { input: 'secret-input', agent: 'broken' })
    await serving.line('agent_started', { program: 'node' })
    await serving.line('agent_ended', { program: 'node', reason: 'exited', exitCode: 3 })
    await serving.stop()
    const codes = serving.lines.map(({ code }) => code)
    expect(codes.filter((code) => code === 'draining' || code === 'stopped')).toEqual([
      'draining',
      'stopped',
    ])
    expect(serving.process.stdout + serving.process.stderr).not.toContain('secret-input')
  })

  it('that cannot begin says so in one JSON line too', async () => {
    const serving = await TestServer.start('--store', 'memory:')
    const { port } = new URL(serving.url)
    const other = new CommandLine(['serve', '--port', port, '--log-format', 'json'])
    expect(await other.exited).toBe(1)
    expect(JSON.parse(other.stderr)).toMatchObject({
      code: 'start_failed',
      level: 'error',
      message: expect.stringContaining('is in use'),
    })
    await serving.stop()
  })
})

describe('a program that uses the library', () => {
  async function open(options: Partial<OpenOptions> = {}) {
    const told: Diagnostic[] = []
    const onDiagnostic = (diagnostic: Diagnostic): void => {
      told.push(diagnostic)
      throw new Error('a listener that fails harms nobody')
    }
    const hold = await openHoldfast({ store: new MemoryStore(), onDiagnostic, ...options })
    const reasons = (wanted: string) =>
      told.filter(({ code }) => code === wanted).map(({ facts }) => facts['reason'])
    return { hold, told, reasons }
  }

  it('is told of a limit that turns away work, and of one that stops it', async () => {
    const forever = (): Promise<never> => new Promise(() => undefined)
    const limits = { queuedTurnsMax: 1, waitMs: 20, turnMs: 200, cancelGraceMs: 1 }
    const { hold, reasons } = await open({ agents: { forever }, limits })
    const session = await hold.resolve({ key: 'k' })
    const turns = ['runs', 'waits', 'is one too many'].map((text) => session.turn(text))
    await Promise.allSettled(turns)
    expect(reasons('limit_reached').sort()).toEqual(['queue_full', 'turn_timeout', 'wait_over'])
    await hold.close()
  })

  it('is told of a slow commit, a failed one, and a runner that fails at its end', async () => {
    const store = new MemoryStore()
    const append = store.append.bind(store)
    let isBroken = false
    store.append = async (appends) => {
      await new Promise((resolve) => setTimeout(resolve, 5))
      if (isBroken) throw new Error('the disk is gone')
      return append(appends)
    }
    const runner = {
      async *run() {
        yield { type: 'delta', text: 'hello' } as const
        return undefined
      },
      close: () => Promise.reject(new Error('not me')),
    }
    const limits = { slowCommitMs: 1 }
    const { hold, told, reasons } = await open({ store, agents: { runner }, limits })
    const session = await hold.resolve({ key: 'k' })
    await session.turn('one')
    isBroken = true
    await expect(session.turn('two')).rejects.toThrow('the disk is gone')
    isBroken = false
    await hold.close()
    const codes = told.map(({ code }) => code)
    expect(codes[0]).toBe('opened')
    expect(codes.at(-1)).toBe('closed')
    expect(codes).toContain('commit_slow')
    expect(reasons('session_lost')).toEqual(['internal'])
    expect(reasons('runner_failed')).toEqual(['close'])
  })

  it('is told of an ask without an answer, and of a listener that fails', async () => {
    const asks: Agent = async (_, context) => {
      const asked = { kind: 'permission', question: 'May I?', onNobody: 'deny' } as const
      return (await context.ask(asked)).outcome
    }
    const { hold, told, reasons } = await open({ agents: { asks } })
    const fail = (): never => {
      throw new Error('not now')
    }
    hold.authority.attachmentListeners.add({ ended: fail, lost: fail })
    const session = await hold.resolve()
    expect(await session.turn('ask')).toMatchObject({ reply: { text: 'nobody_to_ask' } })
    expect(reasons('ask_unanswered')).toEqual(['nobody_to_ask'])
    const attachment = await session.attach()
    await attachment.leave()
    const failed = told.filter(({ code }) => code === 'listener_failed')
    expect(failed).toMatchObject([{ facts: { attachment: attachment.id, error: 'not now' } }])
    await hold.close()
  })

  it('is told of a request that fails as none should', async () => {
    const store = new MemoryStore()
    const { hold, told } = await open({ store })
    const server = await startServer({ holdfast: hold, port: 0 })
    store.list = () => Promise.reject(new Error('the index is gone'))
    expect((await fetch(`${server.url}/v1/sessions`)).status).toBe(500)
    const failed = told.filter(({ code }) => code === 'request_failed')
    expect(failed).toMatchObject([{ facts: { error: 'the index is gone' } }])
    await server.close({ closeHoldfast: true })
  })
})
