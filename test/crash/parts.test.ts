/** A server that dies while it stores the image of a turn leaves no event that names missing bytes. */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openHoldfast, type Agent } from 'holdfast'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { openSqlite } from '../../src/stores/sqlite/driver.ts'
import { CommandLine } from '../support/command-line.ts'

/** Ends the process at a call of the store, before or after that is carried out. */
const SCRIPT = `
  import { openHoldfast } from 'holdfast'
  import { openSqliteStore } from 'holdfast/sqlite'
  const [file, step, when] = process.argv.slice(1)
  const store = await openSqliteStore({ file })
  const die = () => process.kill(process.pid, 'SIGKILL')
  const original = store[step]
  store[step] = async (...given) => {
    if (!JSON.stringify(given).includes('sha256:')) return original(...given)
    if (when === 'before') die()
    const done = await original(...given)
    die()
    return done
  }
  const agent = Object.assign(async () => 'seen', { capabilities: { images: true } })
  const holdfast = await openHoldfast({ store, agents: { agent } })
  const part = { type: 'image', mediaType: 'image/png', data: new Uint8Array(100_000).fill(7) }
  await holdfast.turn({ key: 'k' }, { parts: [part] }, { idempotencyKey: 'one' })
`

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-crash-parts-'))
})
afterEach(() => rm(folder, { recursive: true }))

const viewer: Agent = Object.assign(
  (async ({ parts }) => String(parts?.[0]?.type === 'image' && parts[0].data.length)) as Agent,
  { capabilities: { images: true } },
)

async function verified(file: string): Promise<string> {
  const command = new CommandLine(['verify', '--store', `sqlite:${file}`])
  await command.exited
  return command.stdout
}

it.each([
  ['putBlobs', 'before', 0],
  ['putBlobs', 'after', 0],
  ['append', 'before', 0],
  ['append', 'after', 1],
])('killed at %s, %s it: %i turns name bytes, and only those are there', async (...given) => {
  const [step, when, turns] = given
  const file = join(folder, 'holdfast.db')
  const args = ['--input-type=module', '-e', SCRIPT, file, step, when]
  const child = spawn(process.execPath, args, { stdio: 'ignore' })
  const [, signal] = await once(child, 'exit')
  expect(signal).toBe('SIGKILL')
  expect(await verified(file)).toContain('1 checked, 0 bad')
  const holdfast = await openHoldfast({ store: `sqlite:${file}`, agents: { agent: viewer } })
  const session = await holdfast.resolve({ key: 'k' })
  expect((await session.state()).turns).toBe(turns)
  const data = new Uint8Array(100_000).fill(7)
  const part = { type: 'image', mediaType: 'image/png', data } as const
  // The bytes that no event names have gone with the request.
  const digest = `sha256:${createHash('sha256').update(data).digest('hex')}`
  const kept = await holdfast.authority.store.readBlob(session.id, digest)
  expect(kept?.length ?? 0).toBe(turns === 0 ? 0 : 100_000)
  const again = await session.turn({ parts: [part] }, { idempotencyKey: 'one' })
  expect([again.state, again.reply?.text]).toEqual(
    turns === 0 ? ['done', '100000'] : ['interrupted', undefined],
  )
  await holdfast.close()
  const database = openSqlite(file, { readOnly: true })
  const stored = database.prepare('SELECT count(*) AS count FROM blobs').get().count
  database.close()
  expect(stored).toBe(1)
})

it('is found by verify if bytes that an event names are missing or changed', async () => {
  const file = join(folder, 'holdfast.db')
  const holdfast = await openHoldfast({ store: `sqlite:${file}`, agents: { agent: viewer } })
  const data = new Uint8Array(100)
  await holdfast.turn({ key: 'k' }, { parts: [{ type: 'image', mediaType: 'image/png', data }] })
  await holdfast.close()
  const change = (sql: string): void => {
    const database = openSqlite(file)
    database.exec(sql)
    database.close()
  }
  change(`UPDATE blobs SET data = zeroblob(99)`)
  expect(await verified(file)).toContain('were changed')
  change('DELETE FROM blobs')
  expect(await verified(file)).toContain('are missing')
})
