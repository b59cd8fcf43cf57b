/** The package as it is published, in an empty project: the types of every subpath compile. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { runGuarded } from '../support/guarded.ts'
import { ROOT } from '../support/node-process.ts'

const { exports, dependencies } = JSON.parse(readFileSync(`${ROOT}package.json`, 'utf8')) as {
  exports: Record<string, string>
  dependencies: Record<string, string>
}
const SUBPATHS = Object.keys(exports)
  .filter((path) => !path.endsWith('.json'))
  .map((path) => `holdfast${path.slice(1)}`)

let project = ''

beforeAll(() => {
  project = mkdtempSync(join(tmpdir(), 'holdfast-types-'))
  const modules = join(project, 'node_modules')
  mkdirSync(join(modules, 'holdfast'), { recursive: true })
  // What is packed is what was built; `prepack` would only build it again.
  const pack = ['pack', '--ignore-scripts', '--json', '--pack-destination', project]
  const [{ filename }] = JSON.parse(
    execFileSync('npm', pack, { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }),
  ) as [{ filename: string }]
  const into = ['-C', join(modules, 'holdfast'), '--strip-components=1']
  execFileSync('tar', ['-xzf', join(project, filename), ...into])
  for (const name of Object.keys(dependencies)) {
    mkdirSync(dirname(join(modules, name)), { recursive: true })
    symlinkSync(`${ROOT}node_modules/${name}`, join(modules, name))
  }
  writeFileSync(join(project, 'package.json'), '{"type":"module"}')
})
afterAll(() => rmSync(project, { recursive: true }))

/** What the compiler complains about. */
async function complaints(subpaths: readonly string[], flags: readonly string[]): Promise<string> {
  const lines = subpaths.map((path, index) => `export * as s${index} from '${path}'`)
  writeFileSync(join(project, 'main.ts'), lines.join('\n'))
  const all = ['--noEmit', '--strict', '--exactOptionalPropertyTypes', '--target', 'es2022']
  const compiler = [`${ROOT}node_modules/typescript/bin/tsc`, ...all, ...flags, 'main.ts']
  const run = runGuarded(process.execPath, compiler, { cwd: project, limitMs: 60_000 })
  return run.then(
    ({ stdout }) => stdout,
    ({ stdout }: { stdout: string }) => stdout,
  )
}

it.each([
  ['node16', 'node16'],
  ['nodenext', 'nodenext'],
  ['esnext', 'bundler'],
])(
  'of every subpath compile with module %s and moduleResolution %s',
  async (module, resolution) => {
    const flags = ['--module', module, '--moduleResolution', resolution]
    expect(SUBPATHS.length).toBeGreaterThanOrEqual(8)
    expect(await complaints(SUBPATHS, flags)).toBe('')
  },
)

it.each([['es2022'], ['es2022,dom']])(
  'of the client compile with the library %s alone',
  async (lib) => {
    const flags = ['--module', 'nodenext', '--types', '', '--lib', lib]
    expect(await complaints(['holdfast/client'], flags)).toBe('')
  },
)

it('that are wrong are complained about', async () => {
  expect(await complaints(['holdfast/nothing'], ['--module', 'nodenext'])).toContain('TS2307')
})
