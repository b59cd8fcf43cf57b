/** `holdfast serve --browser …` from outside: the real command, and stock clients by addresses. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import CDP from 'chrome-remote-interface'
import { chromium } from 'playwright-core'
import puppeteer from 'puppeteer-core'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { startBareChromium, type BareChromium } from '../support/bare-chromium.ts'
import { CommandLine, killCommands } from '../support/command-line.ts'

let folder: string
let bare: BareChromium
let serving: CommandLine
/** The server, and the port of its own that the first browser has. */
let url: string
let ownPort: number

/** What it tells of itself, once it has said the words that follow. */
async function told(command: CommandLine, words: string, line: RegExp): Promise<string> {
  await command.said(words)
  return line.exec(command.stdout + command.stderr)?.[1] ?? ''
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-serve-'))
  bare = await startBareChromium()
  const browsers = ['--browser', 'chromium', '--browser', `farm=${bare.socketUrl}`]
  const flags = ['--port', '0', '--data', folder, '--cdp-port', '0', '--browser-sessions-max', '5']
  serving = new CommandLine(['serve', ...browsers, ...flags])
  ownPort = Number(await told(serving, ', name: chromium', /:(\d+), name: chromium/))
  url = await told(serving, 'listening on ', /listening on (\S+)/)
})
afterAll(async () => {
  killCommands()
  await bare.close()
  await rm(folder, { recursive: true, force: true })
})

it('serves each browser at its name, whether it starts it or somebody else runs it', async () => {
  for (const name of ['chromium', 'farm']) {
    const browser = await chromium.connectOverCDP(`${url}/cdp/${name}`)
    const page = await browser.contexts()[0]!.newPage()
    expect(await page.evaluate('6 * 7')).toBe(42)
    await browser.close()
  }
  expect((await fetch(`${url}/cdp/other/json/version`)).status).toBe(404)
})

it('reads what pages may reach from the configuration, and refuses what is wrong in it', async () => {
  const config = join(folder, 'egress.json')
  const flags = ['--port', '0', '--store', 'memory:', '--browser', 'chromium', '--config', config]
  const wrong: [object, string][] = [
    [{ chromium: { egress: ['http://a'] } }, 'browsers.chromium.egress must be names'],
    [{ chrome: { egress: [] } }, 'browsers.chrome must be the name of a --browser'],
  ]
  for (const [browsers, problem] of wrong) {
    await writeFile(config, JSON.stringify({ browsers }))
    const refused = new CommandLine(['serve', ...flags])
    expect([await refused.exited, refused.stderr]).toEqual([1, expect.stringContaining(problem)])
  }
  await writeFile(config, JSON.stringify({ browsers: { chromium: { egress: [] } } }))
  const command = new CommandLine(['serve', ...flags])
  const at = await told(command, '/cdp/chromium', /listening on (\S+)/)
  const browser = await chromium.connectOverCDP(`${at}/cdp/chromium`)
  const visit = browser
    .contexts()[0]!
    .newPage()
    .then((page) => page.goto(`${url}/healthz`))
  await expect(visit).rejects.toThrow('ERR_SOCKS_CONNECTION_FAILED')
  expect(command.stderr).toContain('egress_refused')
  await browser.close()
  command.child.kill('SIGTERM')
  expect(await command.exited).toBe(0)
})

it('serves the first at a port of its own, where tools look for Chrome', async () => {
  const browserURL = `http://127.0.0.1:${ownPort}`
  const one = await puppeteer.connect({ browserURL })
  const page = await one.newPage()
  await page.goto('data:text/html,<title>by puppeteer</title>')
  const client = await CDP({ port: ownPort })
  const { result } = await client.send('Runtime.evaluate', { expression: 'document.title' })
  expect(result.value).toBe('by puppeteer')
  await client.close()
  const other = await chromium.connectOverCDP(browserURL)
  const titles = await Promise.all(
    other
      .contexts()[0]!
      .pages()
      .map((each) => each.title()),
  )
  expect(titles).toContain('by puppeteer')
  await other.close()
  await one.close()
})

it('bounds the sessions that share one, as it was told', async () => {
  const sessions = async (): Promise<unknown> => {
    const { browsers } = (await (await fetch(`${url}/v1/browsers`)).json()) as { browsers: any[] }
    return browsers.find(({ name }) => name === 'chromium')?.sessions
  }
  await expect.poll(sessions).toBe(0)
  const sockets = await Promise.allSettled(
    Array.from({ length: 8 }, () =>
      puppeteer.connect({ browserWSEndpoint: `${url.replace('http', 'ws')}/cdp/chromium` }),
    ),
  )
  const refused = sockets.filter(({ status }) => status === 'rejected')
  expect(refused).toHaveLength(3)
  expect(String((refused[0] as PromiseRejectedResult).reason.message)).toContain('429')
  for (const each of sockets) if (each.status === 'fulfilled') await each.value.disconnect()
})

it('has a relay for clients that take nothing but an address', async () => {
  const relay = new CommandLine(['cdp', '--remote', `${url}/cdp/chromium`, '--listen', '0'])
  const browserURL = await told(relay, 'listening on ', /listening on (\S+)/)
  const browser = await puppeteer.connect({ browserURL })
  expect(await (await browser.newPage()).evaluate('6 * 7')).toBe(42)
  await browser.disconnect()
  relay.child.kill('SIGTERM')
  expect(await relay.exited).toBe(0)
})

it('shows its browsers to people, and takes those that it started along when it stops', async () => {
  const browser = await chromium.connectOverCDP(`${url}/cdp/chromium`)
  const table = new CommandLine(['sessions', '--url', url])
  expect(await table.exited).toBe(0)
  const pid = Number(/^chromium +shared +(\d+) +good /m.exec(table.stdout)?.[1])
  expect(table.stdout).toMatch(/^farm +shared +- +good /m)
  expect(() => process.kill(pid, 0)).not.toThrow()
  const disconnected = new Promise((resolve) => browser.once('disconnected', resolve))
  serving.child.kill('SIGTERM')
  await disconnected
  expect(await serving.exited).toBe(0)
  await expect.poll(() => isAlive(pid)).toBe(false)
  // The other goes on: it is not ours.
  const { host } = new URL(bare.socketUrl)
  expect((await fetch(`http://${host}/json/version`)).status).toBe(200)
})

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
