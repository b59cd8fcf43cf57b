/** The package as it is published, in an empty project: the types of every subpath compile. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { ROOT } from '../support/repository.ts'
import { linkPackages, pack, RESOLUTIONS, typeErrors } from '../support/packed.ts'

const { exports, dependencies } = JSON.parse(readFileSync(`${ROOT}package.json`, 'utf8')) as {
  exports: Record<string, string>
  dependencies: Record<string, string>
}
const SUBPATHS = Object.keys(exports)
  .filter((path) => !path.endsWith('.json'))
  .map((path) => `holdfast${path.slice(1)}`)

let project = ''
let paths: readonly string[] = []

beforeAll(() => {
  project = mkdtempSync(join(tmpdir(), 'holdfast-types-'))
  const installed = join(project, 'node_modules', 'holdfast')
  mkdirSync(installed, { recursive: true })
  const { tarball, files } = pack(ROOT, project)
  paths = files.map(({ path }) => path)
  execFileSync('tar', ['-xzf', tarball, '-C', installed, '--strip-components=1'])
  linkPackages(project, Object.keys(dependencies))
  writeFileSync(join(project, 'package.json'), '{"type":"module"}')
})
afterAll(() => rmSync(project, { recursive: true }))

function exportingAll(subpaths: readonly string[]): string {
  return subpaths.map((path, index) => `export * as s${index} from '${path}'`).join('\n')
}

it.each(RESOLUTIONS)('of every subpath compile with %s %s %s %s', async (...flags) => {
  expect(SUBPATHS.length).toBeGreaterThanOrEqual(8)
  expect(await typeErrors(project, exportingAll(SUBPATHS), flags)).toBe('')
})

it.each([['es2022'], ['es2022,dom']])(
  'of the client compile with the library %s alone',
  async (lib) => {
    const flags = ['--module', 'nodenext', '--types', '', '--lib', lib]
    expect(await typeErrors(project, exportingAll(['holdfast/client']), flags)).toBe('')
  },
)

it('that are wrong are reported', async () => {
  const flags = ['--module', 'nodenext']
  expect(await typeErrors(project, exportingAll(['holdfast/nothing']), flags)).toContain('TS2307')
})

it('come without the pictures of the documentation', () => {
  expect(paths).toContain('docs/guide/inspector.md')
  expect(paths.filter((path) => path.endsWith('.png'))).toEqual([])
})
