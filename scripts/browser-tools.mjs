/**
 * Tools that drive browsers and are too large to be dependencies: installed from npm, without their
 * install scripts, into `.agents/browser-tools`, where they stay from one run to the next.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from './prepare.mjs'

const TOOLS = {
  '@playwright/mcp': '0.0.83',
  'chrome-devtools-mcp': '1.11.0',
  lighthouse: '12.8.2',
  'puppeteer-core': '25.16.0',
  'selenium-webdriver': '4.46.0',
}

/** `test/support/browser-tools.ts` looks there too. */
const FOLDER = join(ROOT, '.agents', 'browser-tools')

/** True if all of them are there, or could be installed. */
export function prepareBrowserTools() {
  const wanted = `${JSON.stringify({ private: true, dependencies: TOOLS }, null, 2)}\n`
  const path = join(FOLDER, 'package.json')
  const isThere = Object.keys(TOOLS).every((name) => existsSync(join(FOLDER, 'node_modules', name)))
  if (isThere && readFileSync(path, 'utf8') === wanted) return true
  console.log(`installing ${Object.keys(TOOLS).join(', ')} …`)
  mkdirSync(FOLDER, { recursive: true })
  writeFileSync(path, wanted)
  const args = ['install', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error']
  const { status, stderr } = spawnSync('npm', args, { cwd: FOLDER, encoding: 'utf8' })
  if (status !== 0) console.log(stderr)
  return status === 0
}
