/** What is written down of a client's traffic, when it wants that. */
import { execFile } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp } from '../support/raw-cdp.ts'
import { lines } from '../support/server.ts'

const MAIN = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))

let folder: string
let server: CdpServer

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-recordings-'))
  server = await serveCdp({ recordings: folder })
})
afterAll(async () => {
  await server.close()
  await rm(folder, { recursive: true, force: true })
})

it('is everything, in order, both ways, without secrets; and nothing of others', async () => {
  const [client, other] = [
    await RawCdp.open(`${server.socketUrl}?record=1`),
    await RawCdp.open(server.socketUrl),
  ]
  const { targetId } = await client.send('Target.createTarget', { url: 'about:blank' })
  const { sessionId } = await client.send('Target.attachToTarget', { targetId, flatten: true })
  await client.send('Input.insertText', { text: 'hunter2' }, sessionId)
  await client.ask('Nothing.here')
  await other.send('Browser.getVersion')
  client.say('garbage with hunter2 in it')
  await client.until((message) => message['error']?.code === -32700)
  client.close()
  other.close()
  await client.closed
  const [name = ''] = await readdir(folder)
  const path = join(folder, name)
  const said = client.messages.length + 5
  await expect.poll(async () => lines(await readFile(path, 'utf8')).length).toBe(said)
  const text = await readFile(path, 'utf8')
  const recorded = lines(text)
  expect(await readdir(folder)).toHaveLength(1)
  expect((await stat(path)).mode & 0o777).toBe(0o600)
  expect(recorded.map(({ n }) => n)).toEqual(recorded.map((_, index) => index + 1))
  expect(recorded.filter(({ from }) => from === 'browser').map(({ message }) => message)).toEqual(
    client.messages,
  )
  expect(text).not.toContain('hunter2')
  const verified = await promisify(execFile)(process.execPath, [MAIN, 'verify', path])
  expect(verified.stdout).toContain('1 checked, 0 bad')
  await writeFile(path, text.replace(/^.*"createTarget".*\n|^.*Target\.createTarget.*\n/m, ''))
  const bad = promisify(execFile)(process.execPath, [MAIN, 'verify', path])
  await expect(bad).rejects.toMatchObject({ code: 1, stdout: expect.stringContaining('1 bad') })
})

it('is refused where the operator has not allowed it', async () => {
  const plain = await serveCdp()
  const response = await fetch(`${plain.url}/json/version?record=2`)
  expect(response.status).toBe(422)
  const client = new RawCdp(`${plain.socketUrl}?record=1`)
  expect(await client.closed).toBe(1006)
  await plain.close()
})
