/**
 * `npm run test:nodes`: the fast tests and those of the stores on other versions of Node, by the
 * builds that npm's package `node` installs. What follows `--` names versions (22 24), and may name
 * tests to run instead: `npm run test:nodes -- 24 test/e2e/lease.test.ts`.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync } from 'node:fs'
import { delimiter, dirname, join, resolve } from 'node:path'
import { PACKAGE, prepare, ROOT } from './prepare.mjs'

const VERSION = /^\d+(\.\d+)*$/
const given = process.argv.slice(2)
const versions = given.filter((word) => VERSION.test(word))
const tests = given.filter((word) => !VERSION.test(word))
const runs =
  tests.length > 0
    ? [tests]
    : [
        ['--config', 'vitest.fast.config.ts'],
        ['test/conformance', 'test/e2e/upgrade.test.ts', 'test/e2e/formats.test.ts'],
      ]

if (!(await prepare([PACKAGE]))) process.exit(1)
const failed = (versions.length === 0 ? ['22', '24'] : versions).filter((version) => {
  const node = provide(version)
  console.log(`Node ${execFileSync(node, ['--version'], { encoding: 'utf8' }).trim()}`)
  return !runs.map((args) => runTests(node, args)).every(Boolean)
})
console.log(failed.length === 0 ? 'all passed' : `failed: ${failed.join(', ')}`)
process.exitCode = failed.length === 0 ? 0 : 1

/** The program of a version of Node, installed if need be. */
function provide(version) {
  const folder = resolve('.agents', `node-${version}`)
  const program = join(folder, 'node_modules', 'node', 'bin', 'node')
  if (existsSync(program)) return program
  mkdirSync(folder, { recursive: true })
  const flags = ['--no-save', '--no-audit', '--no-fund', '--loglevel=error']
  // The package copies the build of this platform by its install script.
  execFileSync('npm', ['install', ...flags, '--prefix', folder, `node@${version}`], {
    stdio: 'inherit',
  })
  return program
}

/** Programs that the tests start by name are of the same version. */
function runTests(node, args) {
  const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs')
  const path = `${dirname(node)}${delimiter}${process.env.PATH}`
  const env = { ...process.env, PATH: path }
  return spawnSync(node, [vitest, 'run', ...args], { stdio: 'inherit', env }).status === 0
}
