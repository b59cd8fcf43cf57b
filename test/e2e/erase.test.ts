/** What is erased on request is gone, with its archives, and the file gets smaller. */
import { execFile } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { SCOPES } from '../../src/core/access.ts'
import { CLI } from '../support/repository.ts'
import { serve, type TestServer } from '../support/server.ts'

const SECRET = 'what alice said to her agent'
let folder: string
let server: TestServer

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-erase-'))
  server = await serve({
    store: `sqlite:${join(folder, 'holdfast.db')}`,
    retention: { archive: join(folder, 'archive') },
  })
})
afterAll(async () => {
  await server.close()
  rmSync(folder, { recursive: true })
})

function holdfastOf(id: string) {
  const access = { principal: id, groups: [], scopes: SCOPES }
  return server.holdfast.as({ kind: 'token', issuer: 'holdfast', id }, access)
}

const files = (): readonly string[] =>
  (readdirSync(folder, { recursive: true }) as string[])
    .map((name) => join(folder, name))
    .filter((file) => statSync(file).isFile())

const filesWith = (text: string): readonly string[] =>
  files().filter((file) => readFileSync(file).includes(text))

it('erases all sessions of a principal, open, closed and archived, and nobody else', async () => {
  const alice = holdfastOf('alice')
  const bob = await holdfastOf('bob').resolve({ key: 'of bob' })
  await bob.turn('what bob said')
  const open = await alice.resolve({ key: 'open' })
  for (let n = 0; n < 20; n += 1) await open.turn(`${SECRET} ${'x'.repeat(100_000)}`)
  const closed = await alice.resolve({ key: 'closed' })
  await closed.turn(SECRET)
  await closed.close()
  const { authority } = server.holdfast
  const { row } = await authority.store.read(closed.id, 0, 0)
  await authority.archive!.keep(row!, authority.store)
  const retired = await alice.resolve({ key: 'retired' })
  await retired.turn(SECRET)
  await retired.close()
  await authority.archive!.keep(
    (await authority.store.read(retired.id, 0, 0)).row!,
    authority.store,
  )
  // As retention does it.
  await authority.erase(retired.id, 'echo')
  const other = await holdfastOf('bob').resolve({ key: 'closed' })
  await other.close()
  await authority.archive!.keep((await authority.store.read(other.id, 0, 0)).row!, authority.store)
  const size = statSync(join(folder, 'holdfast.db')).size
  expect(filesWith(SECRET).length).toBeGreaterThan(1)
  const { status, body } = await server.delete('/v1/principals/alice')
  expect([status, body]).toEqual([
    200,
    {
      ...{ principal: 'alice', sessions: 2, bytes: expect.any(Number) },
      ...{ left: [], archives: 2, remaining: [] },
    },
  ])
  await expect.poll(() => filesWith(SECRET)).toEqual([])
  expect(files().filter((file) => file.endsWith('.jsonl'))).toHaveLength(1)
  await expect.poll(() => statSync(join(folder, 'holdfast.db')).size).toBeLessThan(size / 4)
  expect((await server.get(`/v1/sessions/${closed.id}`)).body.code).toBe('session_erased')
  expect((await bob.turn('more')).state).toBe('done')
  const again = await server.delete('/v1/principals/alice')
  expect(again.body).toMatchObject({ sessions: 0, remaining: [] })
})

it('tells at the command line what is gone, and what is still there', async () => {
  const session = await server.holdfast.resolve({ key: 'mine' })
  await session.turn(SECRET)
  const flags = ['--data', folder, '--absent', SECRET, '--url', server.url]
  const run = promisify(execFile)(process.execPath, [CLI, 'erase', 'mine', ...flags])
  expect((await run).stdout).toContain('none of the texts is in the files of the store')
})
