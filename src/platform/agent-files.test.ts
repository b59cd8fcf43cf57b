/** What an agent puts in the place of files that this process reads and writes. */
import { execFileSync } from 'node:child_process'
import {
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { attachFile, openWithin, writeInto } from './agent-files.ts'

const data = Buffer.from('bytes')
let root: string
let own: string
let secrets: string

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'holdfast-agent-files-'))
  ;[own, secrets] = [join(root, 'own'), join(root, 'secrets')]
  for (const folder of [own, secrets]) await mkdir(folder, { mode: 0o700 })
  await writeFile(join(secrets, 'token'), 'secret', { mode: 0o600 })
})
afterAll(() => rm(root, { recursive: true }))

const modeOf = async (path: string): Promise<number> => (await stat(path)).mode & 0o777

describe('a file that is attached', () => {
  it('is in a folder of its own, where another user can read it, under any umask', async () => {
    const umask = process.umask(0o077)
    const path = await attachFile(own, 'a.bin', data).finally(() => process.umask(umask))
    expect(dirname(dirname(path))).toBe(own)
    expect(await readFile(path)).toEqual(data)
    expect([await modeOf(dirname(path)), await modeOf(path)]).toEqual([0o755, 0o644])
  })

  it('goes nowhere if there is a link in the place of its folder', async () => {
    const link = join(own, 'attached-1')
    await symlink(secrets, link)
    await expect(writeInto(link, 'authorized_keys', data)).rejects.toThrow(/ELOOP|ENOTDIR/)
    expect(await readdir(secrets)).toEqual(['token'])
    expect(await modeOf(secrets)).toBe(0o700)
  })

  it('replaces nothing, and follows no link in its own place', async () => {
    const folder = join(own, 'attached-2')
    await mkdir(folder)
    await symlink(join(secrets, 'made'), join(folder, 'link'))
    await writeFile(join(folder, 'there'), 'before')
    for (const name of ['link', 'there']) {
      await expect(writeInto(folder, name, data)).rejects.toThrow('EEXIST')
    }
    expect(await readdir(secrets)).toEqual(['token'])
  })
})

describe('a file that is read', () => {
  it('is one in the agent’s folders', async () => {
    const path = join(own, 'plain')
    await writeFile(path, 'text')
    const file = await openWithin(path, [own])
    expect(await file?.readFile('utf8')).toBe('text')
    await file?.close()
    await expect(openWithin(join(own, 'none'), [own])).rejects.toThrow('ENOENT')
  })

  it('is none elsewhere, whether named or linked to', async () => {
    await symlink(join(secrets, 'token'), join(own, 'linked'))
    await symlink(secrets, join(own, 'folder'))
    const paths = [join(secrets, 'token'), join(own, 'linked'), join(own, 'folder', 'token')]
    for (const path of paths) expect([path, await openWithin(path, [own])]).toEqual([path, null])
  })

  it('is no pipe, which would hold up a thread', async () => {
    const pipe = join(own, 'pipe')
    execFileSync('mkfifo', [pipe])
    await chmod(pipe, 0o600)
    expect(await openWithin(pipe, [own])).toBeNull()
  })
})
