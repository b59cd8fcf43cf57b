/** A configuration that changes while the server runs. */
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { CommandLine } from '../support/command-line.ts'
import { lines } from '../support/server.ts'
import { SECRET, WebhookReceiver } from '../support/webhook-receiver.ts'
import { ServerProcess } from '../support/server-process.ts'

const until = (isSo: () => boolean | Promise<boolean>) =>
  expect.poll(isSo, { timeout: 10_000 }).toBe(true)

let folder: string
let file: string
let server: ServerProcess

const ROOT = 'hf_secret-of-root'
const TOM = 'hf_secret-of-tom'
const headersOf = (token: string) => ({ authorization: `Bearer ${token}` })
const headers = headersOf(ROOT)

/** Answers with its word once a client has answered its ask. */
const asking = (word: string) =>
  `export default async ({ text }, { ask }) => {
    if (text === 'ask') await ask({ kind: 'question', question: 'go on?' })
    return ${JSON.stringify(word)}
  }`
/** Its program ends when a file is there. */
const WAITING = `
  const { existsSync } = require('node:fs')
  const timer = setInterval(() => {
    if (existsSync(process.argv[1])) console.log('program'), clearInterval(timer)
  }, 20)`

const BASE = {
  agents: {
    word: { runner: 'function', module: './word.mjs' },
    program: {
      runner: 'process',
      command: process.execPath,
      args: ['-e', WAITING, '--', '{text}'],
      killGraceMs: 1_000,
    },
  },
}

/** All diagnostics of a code that were printed: of many in a short time only some are. */
const told = (code: string): any[] =>
  server.output.flatMap((line) => lines(line)).filter((one) => one.code === code)

const write = (settings: object) => writeFile(file, JSON.stringify(settings))

let changes = 0

/** Writes the configuration with another agent besides, and has it read. */
async function change({ agents, ...settings }: any, isSignalled = true): Promise<void> {
  const marker = `v${(changes += 1)}`
  await write({ ...settings, agents: { ...agents, [marker]: BASE.agents.word } })
  if (isSignalled) server.child.kill('SIGHUP')
  const isRead = async () => {
    const { body } = await call('GET', '/v1/agents')
    return body.agents.some(({ name }: any) => name === marker)
  }
  await until(isRead)
}

/** Has a file read that cannot be used. */
async function refused(): Promise<any> {
  const before = told('config_unusable').length
  server.child.kill('SIGHUP')
  await until(() => told('config_unusable').length > before)
  return told('config_unusable').at(-1).problem
}

const call: ServerProcess['call'] = (method, path, request) =>
  server.call(method, path, { headers, ...request })

async function session(agent: string, key?: string): Promise<string> {
  const { body } = await call('POST', '/v1/sessions', { body: { agent, key } })
  return `/v1/sessions/${body.id}`
}

async function say(path: string, input: string): Promise<string> {
  const { body } = await call('POST', `${path}/turns`, { body: { input } })
  return body.turn.reply?.text ?? JSON.stringify(body)
}

async function ask(path: string) {
  const asks = async () => (await call('GET', `${path}/asks`)).body.asks
  await until(async () => (await asks()).length === 1)
  return (await asks())[0].id
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-reload-'))
  file = join(folder, 'holdfast.config.json')
  const tokens = [
    { name: 'root', scopes: ['admin'], sha256: digest(ROOT) },
    { name: 'tom', scopes: ['talk'], principal: 'tom', sha256: digest(TOM) },
  ]
  const tokensFile = join(folder, 'tokens.json')
  await writeFile(tokensFile, JSON.stringify({ version: 3, tokens }), { mode: 0o600 })
  await writeFile(join(folder, 'word.mjs'), asking('first'))
  await write(BASE)
  server = await ServerProcess.start({
    data: join(folder, 'data'),
    cwd: folder,
    flags: ['--tokens', tokensFile, '--allow-unisolated-agents', '--log-format', 'json'],
  })
})

afterAll(async () => {
  await server.stop()
  await rm(folder, { recursive: true })
})

const digest = (token: string) => createHash('sha256').update(token).digest('hex')

describe('a new configuration', () => {
  it('names what has changed, and what needs a restart and does not change', async () => {
    await writeFile(join(folder, 'word.mjs'), `${asking('first')}\n`)
    await change({ ...BASE, copilotPort: 1, limits: { leaseMs: 5_000, watchersMax: 9 } })
    const [read] = told('config_read')
    expect(read.changed).toMatch(/^agents\.v1\..*, limits\.watchersMax, agents\.word$/)
    expect(read.restart).toBe('copilotPort, limits.leaseMs')
    expect(read.message).toContain('need a restart')
  })

  it('has new turns run by the new agent, while a running one ends on the old one', async () => {
    const old = await session('word')
    const running = say(old, 'ask')
    const id = await ask(old)
    await writeFile(join(folder, 'word.mjs'), asking('second'))
    await change(BASE)
    expect(await say(await session('word'), 'hello')).toBe('second')
    await call('POST', `${old}/asks/${id}`, { body: { answer: 'yes' } })
    expect(await running).toBe('first')
    expect(await say(old, 'hello')).toBe('second')
  })

  it('does not stop programs of agents that stay, or that still have a turn', async () => {
    const go = join(folder, 'go')
    const { word, program } = BASE.agents
    const [stays, other] = [program, { ...program, killGraceMs: 1 }]
    await change({ agents: { word, program, stays, other } })
    const turns = [say(await session('program'), go), say(await session('stays'), go)]
    await until(() => told('agent_started').length === 2)
    await change({ agents: { word, stays } })
    await change({ agents: { word, program: other, stays } })
    await writeFile(go, '')
    expect(await Promise.all(turns)).toEqual(['program', 'program'])
  })

  it('ends what an agent that is gone would run, with the reason', async () => {
    const path = await session('program')
    await change({ agents: { word: BASE.agents.word } })
    expect(await say(path, 'hello')).toContain('agent_unknown')
    const { body } = await call('GET', '/v1/agents')
    expect(body.agents.map(({ name }: any) => name)).not.toContain('program')
  })

  it('has rules, limits, quotas, shared keys and the default agent count from now on', async () => {
    await change(BASE)
    const tom = { headers: headersOf(TOM) }
    const before = await call('POST', '/v1/sessions', { ...tom, body: {} })
    expect(before).toMatchObject({ status: 201, body: { agent: 'word' } })
    await change({
      ...BASE,
      defaultAgent: 'echo',
      limits: { listMax: 1 },
      quotas: { principals: { tom: { openSessions: 1 } } },
      rules: [{ name: 'never', decision: 'deny', message: 'no' }],
      sharedKeys: { 'team/': 'team' },
    })
    const after = await call('POST', '/v1/sessions', { ...tom, body: {} })
    expect(after).toMatchObject({ status: 429, body: { quota: 'openSessions' } })
    expect((await call('POST', '/v1/sessions', { body: {} })).body.agent).toBe('echo')
    expect((await call('GET', '/v1/sessions?limit=2')).status).toBe(422)
    await change(BASE)
    expect((await call('POST', '/v1/sessions', { ...tom, body: {} })).status).toBe(201)
    expect((await call('GET', '/v1/sessions?limit=2')).status).toBe(200)
  })

  it('has webhooks deliver elsewhere, from where they stand', async () => {
    const [first, second] = [await WebhookReceiver.start(), await WebhookReceiver.start()]
    await writeFile(join(folder, 'secret'), SECRET, { mode: 0o600 })
    const hook = (url: string) => {
      const more = { events: ['turn.done'], allow: ['127.0.0.1'] }
      return { webhooks: [{ name: 'hook', url, secrets: [{ file: 'secret' }], ...more }] }
    }
    const path = await session('word')
    await change({ ...BASE, ...hook(first.url) })
    const standing = async () => (await call('GET', '/v1/webhooks')).body.webhooks[0]
    await until(async () => (await standing()).node !== null)
    await say(path, 'one')
    await until(() => first.received.length === 1)
    await change({ ...BASE, ...hook(second.url) })
    await until(async () => (await standing()).origin === new URL(second.url).origin)
    await say(path, 'two')
    await until(() => second.received.length === 1)
    await change(BASE)
    expect((await call('GET', '/v1/webhooks')).body.webhooks).toEqual([])
    await Promise.all([first.close(), second.close()])
  })

  it('is in the audit, by the names of its settings', async () => {
    await change({ ...BASE, limits: { askMs: 1 } })
    const last = async () => {
      const { body } = await call('GET', '/v1/audit')
      return body.records.filter(({ code }: any) => code === 'configured').at(-1)
    }
    await until(async () => (await last()).facts.changed?.includes('limits.askMs'))
    expect((await last()).message).toBe('the server runs on with another configuration')
  })
})

describe('a configuration that cannot be used', () => {
  it.each([
    ['is no JSON', '{', 'is no JSON'],
    ['has an unknown field', '{"rule":[]}', 'rule is no field'],
    ['names a program that is not there', program('nowhere-to-be-found'), 'names no program'],
    [
      'has a rule that is wrong',
      '{"rules":[{"name":"a","decision":"ask","paths":["x"]}]}',
      'begin',
    ],
    ['names a browser that there is none of', '{"browsers":{"c":{"egress":[]}}}', '--browser'],
    ['has a default agent that is not there', '{"defaultAgent":"nobody"}', 'nobody'],
    ['has a limit that is wrong', '{"limits":{"listMax":0}}', 'listMax'],
  ])('changes nothing if it %s, and says so', async (_, text, problem) => {
    await change(BASE)
    const agents = (await call('GET', '/v1/agents')).body
    await writeFile(file, text)
    expect(await refused()).toContain(problem)
    expect((await call('GET', '/v1/agents')).body).toEqual(agents)
    expect(await say(await session('word'), 'hello')).toBe('second')
  })

  it('is not taken for an empty one when the file is gone', async () => {
    await rename(file, `${file}.away`)
    expect(await refused()).toContain('ENOENT')
    await rename(`${file}.away`, file)
    expect(existsSync(file)).toBe(true)
  })
})

function program(command: string): string {
  return JSON.stringify({ agents: { other: { runner: 'process', command } } })
}

describe('holdfast check', () => {
  const check = async () => {
    const line = new CommandLine(['check', file])
    return { code: await line.exited, text: line.stdout + line.stderr }
  }

  it('tells whether a configuration can be used, and starts nothing', async () => {
    await write(BASE)
    const good = await check()
    expect(good.code).toBe(0)
    expect(good.text).toContain('can be used; agents word, program')
    await write({ ...BASE, rules: [{ name: '', decision: 'ask' }] })
    const bad = await check()
    expect(bad.code).not.toBe(0)
    expect(bad.text).toContain('rules.0.name')
  })
})
