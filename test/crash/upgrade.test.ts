/** Killed under the format of 0.1.0, started under this one: nothing is lost and nothing is stuck. */
import { existsSync, readdirSync } from 'node:fs'
import { copyFile, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { CommandLine } from '../support/command-line.ts'
import { until } from '../support/gate.ts'
import { loadDump, openTestDatabase, schemaOf } from '../support/postgres.ts'
import { ServerProcess } from '../support/server-process.ts'

const FIXTURE = fileURLToPath(new URL('../fixtures/0.1.0/', import.meta.url))
/** The agents of these are not those of the server: their turns end, by failing. */
const OTHER_AGENTS = ['failed', 'running', 'queued', 'asking']

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-upgrade-'))
})
afterEach(() => rm(folder, { recursive: true, force: true }))

async function killedData(): Promise<string> {
  const data = join(folder, 'data')
  await mkdir(data)
  for (const suffix of ['', '-wal']) {
    await copyFile(`${FIXTURE}holdfast.db${suffix}`, join(data, `holdfast.db${suffix}`))
  }
  return data
}

async function get(url: string, path: string): Promise<any> {
  return (await fetch(`${url}${path}`)).json()
}

async function check(url: string, store: 'sqlite' | 'postgres'): Promise<void> {
  const facts = JSON.parse(await readFile(`${FIXTURE}facts.json`, 'utf8'))
  const { sessions, turns } = facts[store]
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

/** Starts a server, and kills it once the condition holds. */
async function killWhen(store: string[], isTime: (said: string) => boolean | Promise<boolean>) {
  const starting = new CommandLine(['serve', '--port', '0', ...store])
  await until(() => isTime(starting.stdout + starting.stderr))
  starting.child.kill('SIGKILL')
  await starting.exited
}

async function isSettled(...store: readonly string[]): Promise<void> {
  const verify = new CommandLine(['verify', '--settled', ...store])
  expect(await verify.exited, verify.stdout + verify.stderr).toBe(0)
}

describe('an upgrade after kill -9', () => {
  it('finds all that was acknowledged and ends what ran, also if killed at each step', async () => {
    const data = await killedData()
    const has = (name: string) => (): boolean =>
      readdirSync(data).some((file) => file.startsWith(`holdfast.db${name}`))
    // Locked, being copied, brought up to date, and serving.
    for (const file of ['.lock', '.schema-1', '.open']) await killWhen(['--data', data], has(file))
    await killWhen(['--data', data], (said) => said.includes('http://127.0.0.1'))
    expect(existsSync(join(data, 'holdfast.db.schema-1.backup'))).toBe(true)
    const server = await ServerProcess.start({ data })
    await check(server.url, 'sqlite')
    expect(await server.stop()).toBe(0)
    await isSettled('--data', data)
  })

  it('on PostgreSQL may be killed in the middle, which changes nothing, and is done next', async () => {
    const database = await openTestDatabase()
    try {
      const url = await loadDump(database, '0.1.0')
      // The migration waits for this reader with the first step of its transaction done.
      const reader = new pg.Client(url)
      await reader.connect()
      await reader.query(`BEGIN; LOCK TABLE ${schemaOf(url)}.sessions IN ACCESS SHARE MODE`)
      const waiting = `SELECT FROM pg_locks WHERE NOT granted AND relation =
        '${schemaOf(url)}.sessions'::regclass`
      const isWaiting = async (): Promise<boolean> => (await database.query(waiting)).length > 0
      await killWhen(['--store', url], isWaiting)
      await reader.end()
      await until(async () => !(await isWaiting()))
      const steps = `SELECT max(number) AS step FROM ${schemaOf(url)}.migrations`
      expect(await database.query(steps)).toEqual([{ step: 3 }])
      const server = await ServerProcess.start({ data: url })
      await check(server.url, 'postgres')
      expect(await server.stop()).toBe(0)
      expect(await database.query(steps)).toEqual([{ step: 8 }])
      await isSettled('--store', url)
    } finally {
      await database.close()
    }
  })
})
