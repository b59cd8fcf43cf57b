/** Killed under the format of 0.1.0, started under this one: nothing is lost and nothing is stuck. */
import { copyFile, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { CommandLine } from '../support/command-line.ts'
import { ServerProcess } from './server.ts'

const FIXTURE = fileURLToPath(new URL('../fixtures/0.1.0/', import.meta.url))
/** The agents of these are not those of the server: their turns end, by failing. */
const OTHER_AGENTS = ['failed', 'running', 'queued', 'asking']

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-upgrade-'))
})
afterEach(() => rm(folder, { recursive: true, force: true }))

async function killedData(name: string): Promise<string> {
  const data = join(folder, name)
  await mkdir(data)
  for (const suffix of ['', '-wal']) {
    await copyFile(`${FIXTURE}holdfast.db${suffix}`, join(data, `holdfast.db${suffix}`))
  }
  return data
}

async function get(url: string, path: string): Promise<any> {
  return (await fetch(`${url}${path}`)).json()
}

async function check(url: string): Promise<void> {
  const { sessions, turns } = JSON.parse(await readFile(`${FIXTURE}facts.json`, 'utf8')).sqlite
  for (const { name, turn, text, state, reply } of turns) {
    if (name === 'erased') continue
    const { turn: found } = await get(url, `/v1/sessions/${sessions[name]}/turns/${turn}`)
    expect(found).toMatchObject({ id: turn, input: text })
    if (state === 'done') expect([found.state, found.reply.text]).toEqual(['done', reply])
  }
  for (const [name, id] of Object.entries(sessions)) {
    if (name === 'closed' || name === 'erased') continue
    const response = await fetch(`${url}/v1/sessions/${String(id)}/turns`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ input: 'still here' }),
    })
    const { turn } = (await response.json()) as any
    expect([name, turn?.state]).toEqual([name, OTHER_AGENTS.includes(name) ? 'failed' : 'done'])
    const { running, queued } = await get(url, `/v1/sessions/${String(id)}`)
    expect([name, running ?? null, queued]).toEqual([name, null, []])
  }
}

describe('an upgrade after kill -9', () => {
  it('finds all that was acknowledged, ends what ran, and goes on', async () => {
    const data = await killedData('data')
    const server = await ServerProcess.start(data)
    await check(server.url)
    expect(await server.stop()).toBe(0)
    const verify = new CommandLine(['verify', '--settled', '--data', data])
    expect(await verify.exited, verify.stdout).toBe(0)
  }, 120_000)

  it('may be killed at any moment of it, and is done by the next start', async () => {
    const data = await killedData('again')
    for (const ms of [120, 180, 240, 300, 400]) {
      const starting = new CommandLine(['serve', '--port', '0', '--data', data])
      await new Promise((resolve) => setTimeout(resolve, ms))
      starting.child.kill('SIGKILL')
      await starting.exited
    }
    const server = await ServerProcess.start(data)
    await check(server.url)
    expect(await server.stop()).toBe(0)
  }, 120_000)
})
