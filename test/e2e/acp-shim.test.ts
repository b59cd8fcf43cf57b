/** `holdfast acp`: an editor keeps its place while servers die and connections break. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PassThrough, Writable } from 'node:stream'
import { builtinAgents } from 'holdfast'
import { afterEach, describe, expect, it } from 'vitest'
import { AcpShim } from '../../src/cli/acp-shim.ts'
import type { Agent } from '../../src/runners/function.ts'
import { selected } from '../support/acp-client.ts'
import { ByteCutter, shimHere, ShimProcess } from '../support/acp-shim.ts'
import { until } from '../support/gate.ts'
import { freePort, ServerProcess } from '../support/server-process.ts'
import { serve } from '../support/server.ts'

let folder = ''
const servers: ServerProcess[] = []
const shims: ShimProcess[] = []

async function start(port: number): Promise<ServerProcess> {
  if (folder === '') folder = mkdtempSync(join(tmpdir(), 'holdfast-shim-'))
  const server = await ServerProcess.start({ data: folder, port })
  servers.push(server)
  return server
}

function shim(url: string, ...flags: string[]): ShimProcess {
  const made = new ShimProcess(url, flags)
  shims.push(made)
  return made
}

afterEach(async () => {
  await Promise.all(shims.splice(0).map((one) => one.close()))
  for (const server of servers.splice(0)) await server.kill()
  if (folder !== '') rmSync(folder, { recursive: true })
  folder = ''
})

describe('an editor on stdio', () => {
  it('is told that a prompt was interrupted when the server is killed, and goes on', async () => {
    const port = await freePort()
    const server = await start(port)
    const { client } = shim(server.url, '--key', 'k', '--agent', 'slow')
    await client.initialize()
    const id = await client.open()
    const words = Array.from({ length: 20 }, (_, index) => `word${index} `).join('')
    const prompt = client.prompt(id, words).catch((error: unknown) => error)
    const waiting = client.prompt(id, 'next').catch((error: unknown) => error)
    await until(() => client.said().includes('word3 '))
    await server.kill()
    await start(port)
    expect(await prompt).toMatchObject({
      message: expect.stringMatching(/interrupted/),
      data: { code: 'interrupted', state: 'interrupted' },
    })
    // What was accepted is done.
    expect(await waiting).toMatchObject({ stopReason: 'end_turn' })
    await until(() => client.said().endsWith('next'))
    // Nothing twice, and no word of its own as somebody else's.
    expect(words).toContain(client.said().slice(0, -'next'.length))
    expect(client.said('user_message_chunk')).toBe('')
  })

  it('has its ask back when the server stops in between, once, and its answer counts', async () => {
    const port = await freePort()
    const server = await start(port)
    const { client } = shim(server.url, '--key', 'k', '--agent', 'echo')
    await client.initialize()
    const id = await client.open()
    expect(await client.prompt(id, 'one')).toMatchObject({ stopReason: 'end_turn' })
    expect(await server.stop()).toBe(0)
    const prompt = client.prompt(id, 'two')
    await start(port)
    expect(await prompt).toMatchObject({ stopReason: 'end_turn' })
    await until(() => client.said() === 'onetwo')
  })

  it('is answered what it has asked when it has closed its end at once', async () => {
    const server = await serve({ agents: builtinAgents })
    const { child, exited } = new ShimProcess(server.url, ['--key', 'k'])
    const said: Buffer[] = []
    child.stdout?.on('data', (data: Buffer) => said.push(data))
    const lines = [
      { id: 1, method: 'initialize', params: { protocolVersion: 1 } },
      { id: 2, method: 'session/new', params: { cwd: '/', mcpServers: [] } },
      { id: 3, method: 'session/list', params: {} },
    ]
    child.stdin?.end(
      lines.map((one) => JSON.stringify({ jsonrpc: '2.0', ...one })).join('\n') + '\n',
    )
    expect(await exited).toBe(0)
    const answers = Buffer.concat(said).toString().trim().split('\n')
    const read = answers.map((line) => JSON.parse(line) as { id?: number; result?: object })
    const ids = read.filter(({ result }) => result !== undefined).map(({ id }) => id)
    expect(new Set(ids)).toEqual(new Set([1, 2, 3]))
    await server.close()
  })

  it('hears the end of its prompt when it has closed its end, unless it is asked', async () => {
    const server = await serve({ agents: builtinAgents })
    const [slow, asking] = [shim(server.url), shim(server.url)]
    await slow.client.initialize()
    const id = await slow.client.open({ agent: 'slow' })
    const prompt = slow.client.prompt(id, 'one two three')
    await until(() => slow.client.said() === 'one ')
    slow.child.stdin?.end()
    expect(await prompt).toMatchObject({ stopReason: 'end_turn' })
    expect(await slow.exited).toBe(0)
    await asking.client.initialize()
    const other = await asking.client.open({ agent: 'ask' })
    const asked = asking.client.prompt(other, 'x').catch((error: unknown) => error)
    await asking.client.nextAsk()
    asking.child.stdin?.end()
    expect(await asked).toMatchObject({ data: { code: 'cancelled' } })
    expect(await asking.exited).toBe(1)
    await server.close()
  })

  it('is told so when there is no server, and it has closed its end', async () => {
    const { child, exited } = shim(`http://127.0.0.1:${await freePort()}`)
    const said: Buffer[] = []
    child.stdout?.on('data', (data: Buffer) => said.push(data))
    child.stdin?.end(
      '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n',
    )
    expect(await exited).toBe(1)
    expect(JSON.parse(Buffer.concat(said).toString())).toMatchObject({
      error: { data: { code: 'owner_unreachable', retry: true } },
    })
  })

  it('is told why the server refuses it, by the server’s own code', async () => {
    const server = await serve({ agents: builtinAgents })
    const [input, output] = [new PassThrough(), new PassThrough()]
    const url = `${server.url.replace('http', 'ws')}/acp?kye=x`
    const notes: string[] = []
    const note = (words: string): void => void notes.push(words)
    const ended = new AcpShim({ url, token: null, hasKey: false, note, input, output }).run()
    input.write('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n')
    expect(await ended).toBe(1)
    expect(JSON.parse(String(output.read()))).toMatchObject({
      error: { code: -32_602, data: { code: 'invalid_field', retry: false } },
    })
    expect(notes.join('')).toContain('kye')
    await server.close()
  })

  it('that does not read is waited for once, however much there is to tell', async () => {
    const server = await serve({ agents: builtinAgents })
    const [input, output] = [new PassThrough(), new PassThrough({ highWaterMark: 1 })]
    const url = `${server.url.replace('http', 'ws')}/acp`
    const note = (): void => undefined
    const ended = new AcpShim({ url, token: null, hasKey: false, note, input, output }).run()
    const call = (id: number, method: string, params: object): boolean =>
      input.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`)
    for (let id = 1; id <= 50; id += 1) call(id, 'session/list', {})
    // They go together, once it is known who asks.
    call(0, 'initialize', { protocolVersion: 1 })
    await until(() => output.writableLength > 200)
    expect(output.listenerCount('drain')).toBe(1)
    const ids = new Set<unknown>()
    output.on('data', (line: Buffer) => ids.add((JSON.parse(String(line)) as { id: unknown }).id))
    await until(() => ids.size === 51)
    input.end()
    expect(await ended).toBe(0)
    await server.close()
  })

  it('ends with a reason where its token is not good', async () => {
    const server = await serve({ tokens: { scopesOf: () => null, close: () => undefined } })
    const refused = new ShimProcess(server.url, [], { HOLDFAST_TOKEN: 'hf_wrong' })
    await expect(refused.client.initialize()).rejects.toThrow(/refuses the connection/)
    expect(await refused.exited).toBe(1)
    expect(refused.stderr).toContain('--token-file')
    await server.close()
  })

  it('ends so too where its output takes a while', async () => {
    const server = await serve({ tokens: { scopesOf: () => null, close: () => undefined } })
    const [input, written] = [new PassThrough(), [] as string[]]
    const output = new Writable({
      write: (data, _, done) => setImmediate(() => (written.push(String(data)), done())),
    })
    const url = `${server.url.replace('http', 'ws')}/acp`
    const options = { url, token: null, hasKey: false, note: () => undefined }
    const shim = new AcpShim({ ...options, input, output })
    input.write('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n')
    expect(await shim.run()).toBe(1)
    expect(written.join('')).toContain('refuses the connection')
    await server.close()
  })
})

/** Says many short words, uses a tool for each, and asks in the middle. */
const busy: Agent = async function* ({ text }, context) {
  for (let n = 0; n < 20; n += 1) {
    yield `${text}.${n} `
    const data = { id: `${text}-${n}`, title: `tool ${n}`, status: 'done' }
    yield { type: 'activity', kind: 'tool', data }
    if (n === 10) {
      const { outcome } = await context.ask({
        kind: 'permission',
        question: text,
        options: ['yes'],
      })
      yield `(${outcome}) `
    }
    await new Promise((resolve) => setImmediate(resolve))
  }
}

describe('connections cut at any byte', () => {
  it('lose nothing, and tell and ask nothing twice', async () => {
    const server = await serve({ agents: { ...builtinAgents, busy } })
    const seed = Number(process.env['ACP_CUT_SEED'] ?? Date.now() % 1e9)
    let state = seed
    const random = (): number => {
      state = (state * 1_103_515_245 + 12_345) % 2_147_483_648
      return state / 2_147_483_648
    }
    const cutter = new ByteCutter(server.server.port, () => 900 + Math.floor(random() * 9_000))
    const { client, close } = shimHere(await cutter.listen())
    try {
      await client.initialize()
      const id = await client.open({ agent: 'busy' })
      const wanted: string[] = []
      const answering = (async () => {
        for (let n = 0; n < 6; n += 1) (await client.nextAsk()).answer(selected('yes'))
      })()
      for (let n = 0; n < 6; n += 1) {
        expect(await client.prompt(id, `p${n}`)).toMatchObject({ stopReason: 'end_turn' })
        const words = Array.from(
          { length: 20 },
          (_, w) => `p${n}.${w} ${w === 10 ? '(answered) ' : ''}`,
        )
        wanted.push(...words)
      }
      await answering
      await until(() => client.said().length >= wanted.join('').length)
      expect(client.said()).toBe(wanted.join(''))
      const tools = client.updates.filter(({ update }) => update.sessionUpdate === 'tool_call')
      const ids = tools.map(({ update }) => update.toolCallId as string)
      expect(ids).toEqual(Array.from({ length: 120 }, (_, n) => `p${Math.floor(n / 20)}-${n % 20}`))
      expect(client.asked).toEqual([])
      expect(client.said('user_message_chunk')).toBe('')
      expect((await server.holdfast.session(id).state()).turns).toBe(6)
      const { sessions } = await server.holdfast.list()
      expect(sessions).toHaveLength(1)
      expect(cutter.cuts).toBeGreaterThan(5)
    } catch (error) {
      throw new Error(`seed ${seed}`, { cause: error })
    } finally {
      await close()
      await cutter.close()
      await server.close()
    }
  })

  it('lose no cancel, which stops what it was about and nothing else', async () => {
    const waits: Agent = async function* ({ text }, { signal }) {
      yield `${text} `
      if (text === 'long') await new Promise((resolve) => signal.addEventListener('abort', resolve))
    }
    const server = await serve({ agents: { waits } })
    const cutter = new ByteCutter(server.server.port, () => Number.POSITIVE_INFINITY)
    const { client, close } = shimHere(await cutter.listen())
    await client.initialize()
    const id = await client.open()
    const long = client.prompt(id, 'long')
    await until(() => client.said() === 'long ')
    cutter.isDeaf = true
    await client.notify('session/cancel', { sessionId: id })
    const next = client.prompt(id, 'next')
    // The shim has read both.
    await new Promise((resolve) => setImmediate(resolve))
    cutter.cut()
    cutter.isDeaf = false
    expect(await long).toMatchObject({ stopReason: 'cancelled' })
    expect(await next).toMatchObject({ stopReason: 'end_turn' })
    await until(() => client.said() === 'long next ')
    await close()
    await cutter.close()
    await server.close()
  })
})
