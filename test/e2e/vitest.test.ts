/**
 * Vitest #10537 in a real Vitest and a real Chromium: each step of the report fails without
 * `holdfast/vitest` and passes with it. The example is installed into a folder of its own, with the
 * newer Node that its Vitest needs.
 */
import { existsSync } from 'node:fs'
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runGuarded } from '../support/guarded.ts'
import { isWhole } from '../support/whole.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const INSTALL_MS = 300_000
const STEP_MS = 240_000
const NODE_MAJOR = 24

let folder = ''
let chromium = ''

beforeAll(async () => {
  chromium = findChromium()
  folder = await mkdtemp(join(tmpdir(), 'holdfast-vitest-'))
  await cp(join(ROOT, 'examples/vitest'), folder, {
    recursive: true,
    filter: (path) => !path.includes('node_modules'),
  })
  await install()
}, INSTALL_MS)

afterAll(async () => {
  if (folder !== '') await rm(folder, { recursive: true, force: true })
})

describe('a tab that is reloaded', () => {
  it.runIf(isWhole)(
    'cannot run the tests again in Vitest as it is: its session is invalid',
    async () => {
      expect(await step('reload', 'off')).toMatchObject({ rerun: false, invalidSession: true })
    },
    STEP_MS,
  )

  it(
    'runs the tests again with the plugin',
    async () => {
      expect(await step('reload', 'resume')).toMatchObject({ rerun: true, invalidSession: false })
    },
    STEP_MS,
  )

  it(
    'is told that its session is over where the policy is none',
    async () => {
      const { over } = await step('reload', 'none')
      expect(over).toContain('its reconnect policy lets none come back')
    },
    STEP_MS,
  )
})

describe('one lost socket in a headless run', () => {
  it.runIf(isWhole)(
    'fails the run in Vitest as it is',
    async () => {
      expect(await step('lost-socket', 'off')).toMatchObject({ passed: false })
    },
    STEP_MS,
  )

  it(
    'does no harm with the plugin',
    async () => {
      const result = await step('lost-socket', 'resume')
      expect(result).toEqual({ passed: true, tests: '2 passed (2)' })
    },
    STEP_MS,
  )
})

describe('the same URL in a second tab', () => {
  it.runIf(isWhole)(
    'is let in by Vitest as it is',
    async () => {
      // Mostly both freeze then, and the tests do not end; now and then one tab is fast enough.
      expect(await step('second-tab', 'off')).toMatchObject({ refused: false })
    },
    STEP_MS,
  )

  it(
    'is refused with the plugin, and the first tab goes on',
    async () => {
      const { messages, ...rest } = await step('second-tab', 'resume')
      expect(rest).toMatchObject({ refused: true, rerun: true })
      // What a run takes; without the plugin the two tabs send a thousand, and go on.
      expect(messages).toBeLessThan(100)
    },
    STEP_MS,
  )
})

async function step(name: string, holdfast: string): Promise<Record<string, any>> {
  const env = { ...process.env, HOLDFAST: holdfast, CHROMIUM: chromium }
  // The variables of the Vitest that runs this test are not for the one that it runs.
  for (const variable of Object.keys(env)) {
    if (/^(VITEST|VITE_|NODE_ENV|TEST$|DEV$|PROD$|MODE$|BASE_URL)/.test(variable)) {
      delete (env as NodeJS.ProcessEnv)[variable]
    }
  }
  const options = { cwd: folder, env, limitMs: STEP_MS - 5_000 }
  const { stdout } = await runGuarded(nodePath(), ['steps.mjs', name], options)
  return JSON.parse(stdout) as Record<string, any>
}

async function install(): Promise<void> {
  const path = join(folder, 'package.json')
  const manifest = JSON.parse(await readFile(path, 'utf8')) as {
    devDependencies: Record<string, string>
  }
  delete manifest.devDependencies['holdfast']
  if (!isNodeNewEnough()) manifest.devDependencies[nodePackage()] = `${NODE_MAJOR}`
  await writeFile(path, JSON.stringify(manifest))
  const flags = ['install', '--no-audit', '--no-fund', '--loglevel=error', '--prefer-offline']
  const options = { cwd: folder, limitMs: INSTALL_MS - 10_000 }
  await runGuarded('npm', flags, options).catch((error: unknown) => {
    const { stderr = '', message } = error as Error & { stderr?: string }
    throw new Error(`examples/vitest could not be installed with npm: ${stderr || message}`)
  })
  await symlink(ROOT, join(folder, 'node_modules/holdfast'), 'junction')
}

/** Vitest 5 needs Node 22.12: an older one gets a newer beside it, from npm. */
function isNodeNewEnough(): boolean {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  return major > 22 || (major === 22 && minor >= 12)
}

function nodePackage(): string {
  return `node-${process.platform === 'win32' ? 'win' : process.platform}-${process.arch}`
}

function nodePath(): string {
  if (isNodeNewEnough()) return process.execPath
  return join(folder, 'node_modules', nodePackage(), 'bin/node')
}

function findChromium(): string {
  const places = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']
  const found = [process.env['CHROMIUM'], ...places].find((path) => path && existsSync(path))
  if (found !== undefined) return found
  throw new Error('there is no Chromium: install it, or set CHROMIUM to its path')
}
