/** What downloads and stored data of pages may take of the disk. */
import { existsSync, readdirSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Diagnostic } from 'holdfast'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp } from '../support/raw-cdp.ts'

/** An address of loopback that the tests allow. */
const PUBLIC = '127.0.0.2'

describe('downloads with an egress rule', () => {
  const endless = createServer((request, response) => {
    response.writeHead(200, { 'content-type': 'application/octet-stream' })
    const timer = setInterval(() => response.write(Buffer.alloc(1_048_576)), 5)
    response.once('close', () => clearInterval(timer))
  })
  let endlessPort: number
  const reached: Record<string, unknown>[] = []

  beforeAll(async () => {
    await new Promise<void>((resolve) => endless.listen(0, PUBLIC, resolve))
    endlessPort = (endless.address() as AddressInfo).port
  })
  afterAll(() => {
    endless.closeAllConnections()
    endless.close()
  })

  const serveBounded = (limits: object): Promise<CdpServer> =>
    serveCdp({
      browsers: { chromium: { program: 'chromium', egress: [PUBLIC] } },
      ...limits,
      onDiagnostic: ({ code, facts }: Diagnostic) => {
        if (code === 'limit_reached') reached.push(facts)
      },
    })

  async function download(client: RawCdp): Promise<void> {
    await client.send('Browser.setDownloadBehavior', { behavior: 'allow', downloadPath: '/x' })
    const { targetId } = await client.send('Target.createTarget', { url: 'about:blank' })
    const { sessionId } = await client.send('Target.attachToTarget', { targetId, flatten: true })
    const url = `http://${PUBLIC}:${endlessPort}/`
    await client.ask('Page.navigate', { url }, String(sessionId))
  }

  /** Folders of sessions with downloads, of all browsers of this test. */
  const folders = (): string[] =>
    readdirSync(tmpdir())
      .filter((name) => name.startsWith('holdfast-browser-'))
      .map((name) => join(tmpdir(), name, 'downloads'))
      .flatMap((path) => (existsSync(path) ? readdirSync(path) : []))

  it('end their session when they are too large, and leave nothing and others alone', async () => {
    const limits = { downloadBytesMax: 1_000_000, downloadsMs: 50 }
    const server = await serveBounded({ cdpLimits: limits })
    const [greedy, other] = [
      await RawCdp.open(server.socketUrl),
      await RawCdp.open(server.socketUrl),
    ]
    await download(greedy)
    expect(await greedy.closed).toBe(4429)
    expect(reached).toMatchObject([{ reason: 'downloads', limit: 1_000_000 }])
    await expect.poll(folders, { timeout: 10_000 }).toEqual([])
    expect(await other.send('Browser.getVersion')).toHaveProperty('product')
    other.close()
    await server.close()
  })

  it('end the browser when it takes too much of the disk', async () => {
    const server = await serveBounded({ browserLimits: { diskBytesMax: 60_000_000, diskMs: 100 } })
    const client = await RawCdp.open(server.socketUrl)
    await download(client)
    expect(await client.closed).toBe(4520)
    await server.close()
  })
})
