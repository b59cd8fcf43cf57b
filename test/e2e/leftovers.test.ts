/** Requests of OpenAI's API without a session key leave no files behind, however they end. */
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { openHoldfast, processRunner } from 'holdfast'
import { until } from '../support/gate.ts'
import { serve, type TestServer } from '../support/server.ts'
import { ServerProcess } from '../support/server-process.ts'

/** Writes to its folder, and a transcript as Claude Code does; then does what it is told. */
const SCRIPT = `
  const fs = require('fs')
  const projects = process.env.CLAUDE_CONFIG_DIR + '/projects/-work'
  fs.mkdirSync(projects, { recursive: true })
  fs.writeFileSync(projects + '/' + process.argv.at(-1) + '.jsonl', 'secret')
  fs.writeFileSync('work.txt', 'secret')
  const text = fs.readFileSync(0, 'utf8')
  if (text === 'fail') process.exit(3)
  if (text === 'hang') setInterval(() => {}, 1000)
  else console.log(JSON.stringify({ type: 'result', result: text, num_turns: 1 }))`

let root: string
let data: string

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'holdfast-leftovers-'))
  data = join(root, 'data')
})
afterEach(async () => {
  vi.useRealTimers()
  await rm(root, { recursive: true, force: true, maxRetries: 5 })
})

const options = () => ({
  command: process.execPath,
  args: ['-e', SCRIPT, '--', '{sessionUuid}'],
  output: 'claude' as const,
  env: { CLAUDE_CONFIG_DIR: join(root, 'claude') },
})

/** The files of the agent, wherever they are. */
async function files(): Promise<string[]> {
  const folders = [join(data, 'agents'), join(root, 'claude')]
  const found = await Promise.all(
    folders.map((folder) =>
      readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []),
    ),
  )
  return found
    .flat()
    .filter((entry) => entry.isFile() || /^[0-9a-f]{32}/.test(entry.name))
    .map(({ name }) => name)
}

const ask = (url: string, content: string, more = {}): Promise<Response> =>
  fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'writer', messages: [{ role: 'user', content }], ...more }),
  })

/** The folder, the file in it and the transcript. */
const isWorking = async (): Promise<boolean> => (await files()).length === 3

async function serveWriter(): Promise<TestServer> {
  const writer = processRunner({ ...options(), folder: join(data, 'agents') })
  return serve({ agents: { writer } })
}

it.each([
  ['is answered', 'hello', 200],
  ['fails', 'fail', 500],
])('one that %s leaves nothing', async (_, content, status) => {
  const server = await serveWriter()
  expect((await ask(server.url, content)).status).toBe(status)
  await until(async () => (await files()).length === 0)
  await server.close()
})

it('one that is cancelled leaves nothing', async () => {
  const server = await serveWriter()
  const answer = await ask(server.url, 'hang', { stream: true })
  await until(isWorking)
  const session = server.holdfast.session(answer.headers.get('x-session-id') ?? '')
  await session.cancelTurn(answer.headers.get('x-turn-id') ?? '')
  expect(await answer.text()).toContain('turn_cancelled')
  await until(async () => (await files()).length === 0)
  await server.close()
})

it('one whose server is killed leaves nothing, once the server is back', async () => {
  const config = join(root, 'holdfast.config.json')
  await writeFile(
    config,
    JSON.stringify({ agents: { writer: { runner: 'process', ...options() } } }),
  )
  const server = await ServerProcess.start({ data, flags: ['--config', config] })
  const answer = ask(server.url, 'hang').catch(() => null)
  await until(isWorking)
  await server.kill()
  await answer
  expect(await files()).toHaveLength(3)
  // Its session ends a minute after its turn.
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 300_000 })
  const writer = processRunner({ ...options(), folder: join(data, 'agents') })
  const store = `sqlite:${join(data, 'holdfast.db')}`
  const holdfast = await openHoldfast({ store, agents: { writer }, limits: { sweepMs: 50 } })
  vi.setSystemTime(Date.now() + 600_000)
  await until(async () => (await files()).length === 0)
  await holdfast.close()
})
