/** `holdfast-client`, packed and installed offline into an empty project, used in Node and a page. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { build, type Rolldown } from 'vite'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { launchChromium } from '../support/chromium.ts'
import { runGuarded } from '../support/guarded.ts'
import { ROOT } from '../support/repository.ts'
import { linkPackages, pack, RESOLUTIONS, typeErrors, type Packed } from '../support/packed.ts'
import { serve } from '../support/server.ts'

const FOLDER = `${ROOT}packages/client`
const LIMIT = { limitMs: 60_000 }

let parent = ''
let packed: Packed
/** Has the package alone. */
let project = ''
/** Has its optional peers too. */
let withPeers = ''

beforeAll(async () => {
  const { fillClientPackage } = await import(`${ROOT}scripts/client-package.mjs`)
  fillClientPackage()
  parent = mkdtempSync(join(tmpdir(), 'holdfast-client-package-'))
  packed = pack(FOLDER, parent)
  project = await install()
  withPeers = await install()
  linkPackages(withPeers, ['ws', '@types/node'])
})
afterAll(() => rmSync(parent, { recursive: true }))

async function install(): Promise<string> {
  const folder = mkdtempSync(join(parent, 'project-'))
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
  const args = ['install', '--offline', '--no-audit', '--no-fund', packed.tarball]
  await runGuarded('npm', args, { ...LIMIT, cwd: folder })
  return folder
}

describe('the package', () => {
  it('brings no other package with it', () => {
    const installed = readdirSync(join(project, 'node_modules'))
    expect(installed.filter((name) => !name.startsWith('.'))).toEqual(['holdfast-client'])
    expect(manifest(FOLDER).dependencies).toBeUndefined()
  })

  it('is small: code, the types that it exports, a readme and the license', () => {
    expect(packed.size).toBeLessThan(60_000)
    expect(packed.unpackedSize).toBeLessThan(200_000)
    const parts = new Set(packed.files.map(({ path }) => path.replace(/^dist\/(\w+)\/.*/, '$1')))
    expect([...parts].sort()).toEqual(
      ['LICENSE', 'README.md', 'cdp', 'client', 'core', 'package.json', 'wire'].sort(),
    )
    const code = packed.files.filter(({ path }) => path.endsWith('.js'))
    expect(code.reduce((sum, { size }) => sum + size, 0)).toBeLessThan(120_000)
  })

  it('has the version and the licence of the main package', () => {
    const { version, license, engines } = manifest(ROOT)
    expect(manifest(FOLDER)).toMatchObject({ version, license, engines })
  })
})

const CONSUMER = `
import { connect, HoldfastClientError, type ClientState, type SessionEvent } from 'holdfast-client'
const client = connect({ url: 'http://127.0.0.1:7420', token: 'secret' })
const session = client.session({ key: 'a', answers: ['permission'] })
session.on('state', (state: ClientState) => state.name === 'ended' && state.hint)
session.on('event', (event: SessionEvent) => (event.type === 'turn.started' ? event.at : 0))
export async function ask(): Promise<string> {
  let text = ''
  for await (const part of session.turn('hello')) text += part
  return text
}
export const code = (error: unknown): string => (error instanceof HoldfastClientError ? error.code : '')
// @ts-expect-error: there is no such option
client.session({ key: 'a', colour: 'red' })
`

describe('its types', () => {
  it.each(RESOLUTIONS)('compile in a page with %s %s %s %s', async (...flags) => {
    const all = [...flags, '--types', '', '--lib', 'es2022,dom']
    expect(await typeErrors(project, CONSUMER, all)).toBe('')
  })

  it.each(RESOLUTIONS)('compile in Node with %s %s %s %s', async (...flags) => {
    const text = `${CONSUMER}\nexport * from 'holdfast-client/cdp'`
    expect(await typeErrors(withPeers, text, [...flags, '--lib', 'es2022'])).toBe('')
  })
})

const TALK = (url: string, webSocket: string): string => `
import { connect } from 'holdfast-client'
const client = connect({ url: ${url}, webSocket: ${webSocket} })
const session = client.session({ key: 'page' })
const { reply } = await session.turn('hello')
session.leave()
`

describe('its code', () => {
  it('talks to a server from Node', async () => {
    const server = await serve()
    const webSocket = `globalThis.WebSocket ?? (await import('ws')).WebSocket`
    const text = `${TALK(JSON.stringify(server.url), webSocket)}\nconsole.log(reply.text)`
    writeFileSync(join(withPeers, 'talk.mjs'), text)
    const { stdout } = await runGuarded(process.execPath, ['talk.mjs'], {
      ...LIMIT,
      cwd: withPeers,
    })
    expect(stdout).toBe('hello\n')
    await server.close()
  })

  it('talks to a server from a page that a bundler made, with 12 kB at most', async () => {
    const code = await bundle(TALK('location.origin', 'undefined') + 'document.title = reply.text')
    expect(gzipSync(code).length).toBeLessThan(12_000)
    const server = await serve()
    const browser = await launchChromium()
    const page = await browser.newPage({ bypassCSP: true })
    await page.goto(`${server.url}/healthz`)
    await page.addScriptTag({ type: 'module', content: code })
    await expect.poll(() => page.title()).toBe('hello')
    await browser.close()
    await server.close()
  })

  it('has the transports for browsers, which need ws', async () => {
    const script = `await import('holdfast-client/cdp').then((all) => console.log(Object.keys(all).sort().join()), (error) => console.log(error.message))`
    const run = async (cwd: string): Promise<string> => {
      const args = ['--input-type=module', '--eval', script]
      return (await runGuarded(process.execPath, args, { ...LIMIT, cwd })).stdout
    }
    expect(await run(withPeers)).toMatch(/playwrightTransport,puppeteerTransport,startRelay/)
    expect(await run(project)).toContain(`Cannot find package 'ws'`)
  })
})

async function bundle(text: string): Promise<string> {
  const entry = join(project, 'app.js')
  writeFileSync(entry, text)
  const result = (await build({
    configFile: false,
    root: project,
    logLevel: 'silent',
    build: {
      write: false,
      target: 'es2022',
      lib: { entry, formats: ['es'], fileName: 'app' },
      rolldownOptions: { external: [/^node:/] },
    },
  })) as Rolldown.RolldownOutput[]
  const [chunk, ...others] = result.flatMap(({ output }) => output) as Rolldown.OutputChunk[]
  expect(others).toEqual([])
  expect([...(chunk?.imports ?? []), ...(chunk?.dynamicImports ?? [])]).toEqual([])
  return chunk?.code ?? ''
}

type Manifest = {
  readonly version: string
  readonly license: string
  readonly engines: unknown
  readonly dependencies?: unknown
}

function manifest(folder: string): Manifest {
  return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as Manifest
}
