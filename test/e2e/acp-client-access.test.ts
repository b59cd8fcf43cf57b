/**
 * Files and terminals of the client whose prompt runs: requests of a real agent process reach that
 * client, and no other.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { acpRunner, builtinAgents, type AcpOptions } from 'holdfast'
import { afterEach, describe, expect, it } from 'vitest'
import { StockClient, type ClientAnswers, type StockOptions } from '../support/acp-client.ts'
import { ByteCutter, shimHere } from '../support/acp-shim.ts'
import { until } from '../support/gate.ts'
import { openTestDatabase } from '../support/postgres.ts'
import { TokenFiles, secretOf } from '../support/principals.ts'
import { serve, type TestServer, type TestServerOptions } from '../support/server.ts'

const AGENT = fileURLToPath(new URL('../support/acp-agent.mjs', import.meta.url))
const ends: (() => unknown)[] = []

afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end()
})

function tiny(options: Partial<AcpOptions> = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-acp-'))
  ends.push(() => rmSync(folder, { recursive: true, force: true }))
  const env = { KEEP: folder, RESTORE: 'resume' }
  const program = { command: process.execPath, args: [AGENT] }
  return { folder, runner: acpRunner({ ...program, folder, env, ...options }) }
}

async function start(
  options: TestServerOptions & { readonly agent?: Partial<AcpOptions> } = {},
): Promise<TestServer & { readonly starts: () => number }> {
  const { agent, ...rest } = options
  const { runner, folder } = tiny(agent)
  const server = await serve({ agents: { tiny: runner, ...builtinAgents }, ...rest })
  ends.push(() => server.close())
  const starts = (): number =>
    readFileSync(join(folder, 'starts'), 'utf8').trim().split('\n').length
  return Object.assign(server, { starts })
}

const ALL = { fs: { readTextFile: true, writeTextFile: true }, terminal: true }

async function connect(
  url: string,
  clientCapabilities: object,
  answers: ClientAnswers = {},
  more: StockOptions = {},
): Promise<StockClient> {
  const initialize = { clientCapabilities, ...more.initialize }
  const client = await StockClient.connect(url, { ...more, initialize, answers })
  ends.push(() => client.close())
  return client
}

/** What the agent says in answer to this prompt. */
async function answerTo(client: StockClient, session: string, text: string): Promise<any> {
  const { length } = client.said('agent_message_chunk', session)
  await client.prompt(session, text)
  await until(() => client.said('agent_message_chunk', session).length > length)
  return JSON.parse(client.said('agent_message_chunk', session).slice(length))
}

const READ = 'client fs/read_text_file {"path":"/w/a"}'

describe('files and terminals of the client whose prompt runs', () => {
  it('are its own, and of no other client of the session', async () => {
    const server = await start()
    const asked: unknown[] = []
    const answers = (name: string): ClientAnswers => ({
      'fs/read_text_file': (params) => (asked.push({ name, ...params }), { content: name }),
      'fs/write_text_file': (params) => (asked.push({ name, ...params }), {}),
      'terminal/create': (params) => (asked.push({ name, ...params }), { terminalId: 't1' }),
      'terminal/wait_for_exit': () => ({ exitCode: 7 }),
      'terminal/output': () => ({ output: 'out', truncated: false }),
    })
    const one = await connect(server.url, ALL, answers('one'))
    const two = await connect(server.url, ALL, answers('two'))
    const id = await one.open({ key: 'k', agent: 'tiny' })
    await two.open({ key: 'k' })
    expect(await answerTo(one, id, 'told')).toEqual({
      readTextFile: true,
      writeTextFile: true,
      terminal: true,
    })
    expect(await answerTo(one, id, READ)).toEqual({ content: 'one' })
    expect(await answerTo(two, id, READ)).toEqual({ content: 'two' })
    const write = 'client fs/write_text_file {"path":"/w/a","content":"x"}'
    expect(await answerTo(two, id, write)).toEqual({})
    const create = 'client terminal/create {"command":"ls","args":["-l"]}'
    expect(await answerTo(one, id, create)).toEqual({ terminalId: 't1' })
    const wait = 'client terminal/wait_for_exit {"terminalId":"t1"}'
    expect(await answerTo(one, id, wait)).toMatchObject({ exitCode: 7 })
    expect(asked).toEqual([
      { name: 'one', sessionId: id, path: '/w/a' },
      { name: 'two', sessionId: id, path: '/w/a' },
      { name: 'two', sessionId: id, path: '/w/a', content: 'x' },
      { name: 'one', sessionId: id, command: 'ls', args: ['-l'] },
    ])
    expect(server.starts()).toBe(1)
  })

  it('are told to the agent as the client of the turn offers them', async () => {
    const server = await start()
    const editor = await connect(
      server.url,
      { fs: { readTextFile: true } },
      {
        'fs/read_text_file': () => ({ content: 'x' }),
      },
    )
    const plain = await connect(server.url, {})
    const id = await editor.open({ key: 'k', agent: 'tiny' })
    await plain.open({ key: 'k' })
    const none = { readTextFile: false, writeTextFile: false, terminal: false }
    expect(await answerTo(editor, id, 'told')).toEqual({ ...none, readTextFile: true })
    expect(await answerTo(plain, id, 'told')).toEqual(none)
    expect(await answerTo(plain, id, READ)).toMatchObject({
      code: -32_601,
      data: { code: 'capability_missing' },
    })
    // Nobody on ACP at all: the third process, since the second was told the same.
    const session = server.holdfast.session(id)
    const { reply } = await session.turn(READ)
    expect(JSON.parse(reply!.text)).toMatchObject({ data: { code: 'capability_missing' } })
    expect(server.starts()).toBe(2)
  })

  it('are not offered where the operator does not want that, or the process serves all', async () => {
    for (const agent of [{ clientAccess: false }, { perSession: false }]) {
      const server = await start({ agent })
      const client = await connect(server.url, ALL, {})
      const id = await client.open({ agent: 'tiny' })
      const none = { readTextFile: false, writeTextFile: false, terminal: false }
      expect(await answerTo(client, id, 'told')).toEqual(none)
      expect(server.starts()).toBe(1)
    }
  })

  it('are refused by the client in its own words, and end with the turn', async () => {
    const server = await start()
    let waiting = 0
    const client = await connect(server.url, ALL, {
      'fs/read_text_file': () => {
        throw Object.assign(new Error('no such file'), { code: -32_002 })
      },
      'terminal/wait_for_exit': () => {
        waiting += 1
        return new Promise(() => undefined)
      },
    })
    const id = await client.open({ agent: 'tiny' })
    expect(await answerTo(client, id, READ)).toMatchObject({ code: expect.any(Number) })
    const prompt = client.prompt(id, 'client terminal/wait_for_exit {"terminalId":"t"}')
    await until(() => waiting === 1)
    await client.notify('session/cancel', { sessionId: id })
    expect(await prompt).toMatchObject({ stopReason: 'cancelled' })
  })

  it('fail when the client is lost, and go on when it comes back to its turn', async () => {
    const server = await start()
    const cutter = new ByteCutter(server.server.port, () => Number.POSITIVE_INFINITY)
    ends.push(() => cutter.close())
    let reads = 0
    const read = () => {
      reads += 1
      // The first is never answered.
      return reads === 1 ? new Promise(() => undefined) : { content: `read ${reads}` }
    }
    const { client, close } = shimHere(await cutter.listen(), { 'fs/read_text_file': read })
    ends.push(close)
    await client.initialize({ clientCapabilities: ALL })
    const id = await client.open({ agent: 'tiny' })
    const prompt = client.prompt(id, READ)
    await until(() => reads === 1)
    cutter.cut()
    expect(await prompt).toMatchObject({ stopReason: 'end_turn' })
    await until(() => client.said() !== '')
    expect(JSON.parse(client.said())).toMatchObject({ data: { code: 'cancelled' } })
    expect(await answerTo(client, id, READ)).toEqual({ content: 'read 2' })
  })

  it('stay with their client where another principal takes its prompt’s name', async () => {
    const files = await TokenFiles.make()
    ends.push(() => files.remove())
    const server = await start({ tokens: await files.open() })
    let reads = 0
    const answers = { 'fs/read_text_file': () => ((reads += 1), { content: 'mine' }) }
    const initialize = { _meta: { holdfast: { client: 'client-of-alice' } } }
    const token = secretOf('alice')
    const alice = await connect(server.url, ALL, answers, { token, initialize })
    const id = await alice.open({ key: 'k', agent: 'tiny' })
    const bearer = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
    const share = { with: 'tom', scopes: ['talk'] }
    const shared = await fetch(`${server.url}/v1/sessions/${id}/shares`, {
      ...{ method: 'POST', headers: bearer },
      body: JSON.stringify(share),
    })
    expect(shared.status).toBeLessThan(300)
    const byTom = async (input: string, key: string): Promise<string> => {
      const headers = {
        ...bearer,
        authorization: `Bearer ${secretOf('talker')}`,
        prefer: 'respond-async',
        'idempotency-key': key,
      }
      const body = JSON.stringify({ input })
      const url = `${server.url}/v1/sessions/${id}/turns`
      const submitted: any = await (await fetch(url, { method: 'POST', headers, body })).json()
      return submitted.turn.id as string
    }
    const running = await byTom('hang', 'x')
    // Tom guesses the name of her next prompt, and what it says.
    const guessed = await byTom(READ, 'acp/client-of-alice/p1')
    const prompt = alice.prompt(id, READ, { prompt: 'p1' }).catch((error: unknown) => error)
    // The server has read it.
    await alice.request('session/list', {})
    await server.holdfast.session(id).cancelTurn(running)
    const { reply } = await server.holdfast.session(id).finished(guessed)
    expect(JSON.parse(reply!.text)).toMatchObject({ data: { code: 'capability_missing' } })
    await prompt
    expect(reads).toBe(0)
    expect(await answerTo(alice, id, READ)).toEqual({ content: 'mine' })
  })
})

describe('MCP servers of the client', () => {
  it('are not used, and the client and its user are told so', async () => {
    const server = await start()
    const client = await connect(server.url, {})
    const mcpServers = [
      { name: 'shell', command: '/bin/sh', args: ['-c', 'id'], env: [] },
      { type: 'http', name: 'far', url: 'http://10.0.0.1/mcp', headers: [] },
    ]
    const opened = await client.request('session/new', { cwd: '/', mcpServers })
    expect(opened._meta.holdfast.ignored).toEqual({ mcpServers: ['shell', 'far'] })
    await until(() => client.said() !== '')
    expect(client.said()).toMatch(/not used here: shell, far\. /)
    const { turns, settings } = await server.holdfast.session(opened.sessionId).state()
    expect({ turns, settings }).toEqual({ turns: 0, settings: {} })
    const load = { sessionId: opened.sessionId, cwd: '/', mcpServers: [] }
    expect((await client.request('session/load', load))._meta.holdfast).not.toHaveProperty(
      'ignored',
    )
  })

  it('are the operator’s where the operator has configured that name', async () => {
    const mcpServers = { files: { command: 'serve-files' }, web: { command: 'serve-web' } }
    const server = await start({ agent: { mcpServers } })
    const client = await connect(server.url, {})
    const open = async (settings: object): Promise<any> => {
      const named = [
        { name: 'files', command: '/bin/sh', args: ['-c', 'id'], env: [] },
        { type: 'http', name: 'web', url: 'http://10.0.0.1/mcp', headers: [] },
      ]
      const params = { cwd: '/', mcpServers: named, _meta: { holdfast: { settings } } }
      return (await client.request('session/new', params))._meta.holdfast
    }
    expect(await open({})).not.toHaveProperty('ignored')
    expect((await open({ mcpServers: ['web'] })).ignored).toEqual({ mcpServers: ['files'] })
    const { body } = await server.get('/v1/agents')
    const tiny = body.agents.find(({ name }: any) => name === 'tiny')
    expect(tiny.capabilities.mcpServers).toEqual(['files', 'web'])
  })
})

describe('through a node that does not own the session', () => {
  it('they are reached all the same', async () => {
    const database = await openTestDatabase()
    ends.push(() => database.close())
    const store = database.freshUrl()
    const far = await start({ store, isNode: true })
    const near = await start({ store, isNode: true })
    await far.holdfast.resolve({ key: 'k', agent: 'tiny' })
    const client = await connect(near.url, ALL, {
      'fs/read_text_file': ({ path }) => ({ content: `content of ${path}` }),
    })
    const id = await client.open({ key: 'k' })
    expect(await answerTo(client, id, READ)).toEqual({ content: 'content of /w/a' })
    expect(far.starts()).toBe(1)
  })
})
