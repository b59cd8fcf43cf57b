/** `npm run release`, in a repository of its own that has the files which name a version. */
import { spawnSync, type SpawnSyncReturns } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const FILES = [
  'package.json',
  'package-lock.json',
  'packages/client/package.json',
  'src/wire/version.ts',
  'deploy/kubernetes.yaml',
  'scripts/release.mjs',
]
const CHANGELOG = [
  '# Changelog\n',
  '## Unreleased\n',
  '### Fixed\n',
  '- A thing.\n',
  '## 7.1.0 (2026-01-01)\n',
  '- An older thing.\n',
].join('\n')

let template = ''
let folder = ''

/** Made once and copied: a copy is quicker than the commands that make it. */
beforeAll(() => {
  template = mkdtempSync(join(tmpdir(), 'holdfast-release-'))
  folder = template
  for (const file of FILES) cpSync(join(ROOT, file), join(folder, file), { recursive: true })
  for (const file of ['package.json', 'packages/client/package.json']) {
    edit(file, (text) => text.replace(/"version": ".*"/, '"version": "7.2.0-dev"'))
  }
  edit('package-lock.json', (text) =>
    text.replace(/("name": "holdfast(-client)?",\s*"version": )".*"/g, '$1"7.2.0-dev"'),
  )
  edit('src/wire/version.ts', (text) => text.replace(/'.*'/, "'7.2.0-dev'"))
  writeFileSync(join(folder, 'CHANGELOG.md'), CHANGELOG)
  git('init', '--quiet', '--template=', '--initial-branch', 'main')
  git('add', '.')
  git('commit', '--quiet', '--message', 'begin')
})
afterAll(() => rmSync(template, { recursive: true }))

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-release-'))
  cpSync(template, folder, { recursive: true, preserveTimestamps: true })
})
afterEach(() => rmSync(folder, { recursive: true }))

describe('a release', () => {
  it('is a tagged commit with its version everywhere, followed by the next version', () => {
    const { status, output } = release('7.2.0')
    expect(output).toContain('git push origin main v7.2.0')
    expect(output).toContain('npm publish && npm publish --workspace holdfast-client')
    expect(status).toBe(0)
    expect(git('log', '--format=%s').split('\n')).toEqual([
      'release: begin 7.3.0-dev',
      'release: 7.2.0',
      'begin',
    ])
    expect(git('cat-file', '-t', 'v7.2.0')).toBe('tag')
    expect(new Set(versions('v7.2.0'))).toEqual(new Set(['7.2.0']))
    expect(new Set(versions('main'))).toEqual(new Set(['7.3.0-dev']))
    expect([imageVersion('v7.2.0'), imageVersion('main')]).toEqual(['7.2.0', '7.2.0'])
    expect(git('status', '--porcelain')).toBe('')
  })

  it('takes what was unreleased, and leaves room for what comes', () => {
    release('7.2.0')
    const released = git('show', 'v7.2.0:CHANGELOG.md')
    expect(released).toMatch(/^## 7\.2\.0 \(\d{4}-\d\d-\d\d\)\n\n### Fixed\n\n- A thing\.$/m)
    expect(released).not.toContain('Unreleased')
    expect(read('CHANGELOG.md').trim()).toBe(
      released.replace('## 7.2.0', '## Unreleased\n\n## 7.2.0'),
    )
  })

  it('that patches an older one leaves the version that has begun', () => {
    expect(release('7.1.1').status).toBe(0)
    expect(versions('v7.1.1')[0]).toBe('7.1.1')
    expect(versions('main')[0]).toBe('7.2.0-dev')
  })

  it('is only told of by a dry run', () => {
    const { status, output } = release('7.2.0', '--dry-run')
    expect(status).toBe(0)
    expect(output).toContain('git tag --annotate v7.2.0')
    expect(output).toContain('Nothing was changed.')
    expect(git('log', '--format=%s')).toBe('begin')
    expect(git('tag')).toBe('')
    expect(git('status', '--porcelain')).toBe('')
  })
})

describe('a release is refused, and changes nothing,', () => {
  it.each<[string, () => void, string]>([
    [
      'with changes that are not committed',
      () => writeFileSync(join(folder, 'new'), ''),
      'changes',
    ],
    ['on another branch', () => git('checkout', '--quiet', '-b', 'other'), 'branch is other'],
    ['when its tag is there', () => git('tag', 'v7.2.0'), 'v7.2.0 is there'],
    [
      'with nothing unreleased',
      () => commitEdit('CHANGELOG.md', '- A thing.', ''),
      'nothing under',
    ],
    [
      'without a section for what is unreleased',
      () => commitEdit('CHANGELOG.md', '## Unreleased', '## Soon'),
      'does not begin with',
    ],
    [
      'when it is not newer than the newest one',
      () => commitEdit('CHANGELOG.md', '7.1.0', '7.2.0'),
      'not newer than 7.2.0',
    ],
    [
      'when versions differ',
      () => commitEdit('src/wire/version.ts', '7.2.0', '7.0.0'),
      'version.ts says 7.0.0-dev, package.json 7.2.0-dev',
    ],
    [
      'when the versions of the packages differ',
      () => commitEdit('packages/client/package.json', '7.2.0', '7.0.0'),
      'packages/client/package.json says 7.0.0-dev, package.json 7.2.0-dev',
    ],
    [
      'when a place of a version is gone',
      () => commitEdit('src/wire/version.ts', 'VERSION =', 'OTHER ='),
      'version.ts names 0 versions',
    ],
  ])('%s', (_name, spoil, complaint) => {
    spoil()
    const before = state()
    const { status, output } = release('7.2.0')
    expect(output).toContain(complaint)
    expect(status).toBe(1)
    expect(state()).toBe(before)
  })

  it.each([[[]], [['v7.2.0']], [['7.2.0-rc.1']], [['7.2.0', '7.3.0']]])(
    'with the arguments %j',
    (args) => {
      const { status, output } = release(...args)
      expect(output).toContain('Usage: npm run release -- X.Y.Z')
      expect(status).toBe(2)
    },
  )
})

/** The versions in the packages, the lock (of both, the main one twice) and the code, at a commit. */
function versions(commit: string): (string | undefined)[] {
  const at = (file: string): string => git('show', `${commit}:${file}`)
  const lock = JSON.parse(at('package-lock.json')) as { version: string; packages: Packages }
  return [
    (JSON.parse(at('package.json')) as { version: string }).version,
    (JSON.parse(at('packages/client/package.json')) as { version: string }).version,
    lock.version,
    lock.packages['']?.version,
    lock.packages['packages/client']?.version,
    /VERSION = '(.*)'/.exec(at('src/wire/version.ts'))?.[1],
  ]
}

function imageVersion(commit: string): string | undefined {
  const example = git('show', `${commit}:deploy/kubernetes.yaml`)
  return /\/holdfast:(.*)/.exec(example)?.[1]
}

type Packages = Readonly<Record<string, { readonly version: string }>>

/** All commits and tags, and what is not committed. */
function state(): string {
  return git('show-ref', '--head') + git('status', '--porcelain')
}

function release(...args: string[]): { status: number | null; output: string } {
  const script = join(folder, 'scripts/release.mjs')
  const { status, stdout, stderr } = run(process.execPath, [script, ...args])
  return { status, output: stdout + stderr }
}

function commitEdit(file: string, from: string, to: string): void {
  edit(file, (text) => text.replace(from, to))
  git('commit', '--quiet', '--all', '--message', 'spoil')
}

function edit(file: string, change: (text: string) => string): void {
  writeFileSync(join(folder, file), change(read(file)))
}

function read(file: string): string {
  return readFileSync(join(folder, file), 'utf8')
}

function git(...args: string[]): string {
  const { status, stdout, stderr } = run('git', args)
  if (status !== 0) throw new Error(`git ${args.join(' ')}: ${stderr}`)
  return stdout.trim()
}

/** Without the settings of this machine, and of a hook that may be running these tests. */
function run(command: string, args: readonly string[]): SpawnSyncReturns<string> {
  const names = { GIT_AUTHOR_NAME: 'a', GIT_COMMITTER_NAME: 'a' }
  const addresses = { GIT_AUTHOR_EMAIL: 'a@example.com', GIT_COMMITTER_EMAIL: 'a@example.com' }
  const own = Object.entries(process.env).filter(([name]) => !name.startsWith('GIT_'))
  const env = { ...Object.fromEntries(own), ...names, ...addresses, ...NO_SETTINGS }
  return spawnSync(command, args, { cwd: folder, encoding: 'utf8', env })
}

const NO_SETTINGS = { GIT_CONFIG_GLOBAL: '/dev/null', GIT_CONFIG_NOSYSTEM: '1' }
