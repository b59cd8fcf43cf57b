/**
 * What lies around the code is true too: the commands and files that documents name, the list of fast
 * tests, the versions of Node that CI runs on. Each check is shown a violation as well.
 */
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { FAST_TESTS } from '../vitest.fast.config.ts'

type File = { readonly path: string; readonly text: string }

describe('the fast tests', () => {
  it('are all there', () => {
    expect(unmatched(FAST_TESTS, tests())).toEqual([])
  })

  it('are caught when one is gone', () => {
    const patterns = ['src/**/*.test.ts', 'test/a/*.test.ts', 'test/gone.test.ts']
    expect(unmatched(patterns, ['src/b.test.ts', 'test/a/b/c.test.ts'])).toEqual([
      'test/a/*.test.ts',
      'test/gone.test.ts',
    ])
  })

  it('need no browser, no PostgreSQL and no agent', () => {
    const fast = tests().filter((path) => FAST_TESTS.some((pattern) => matches(pattern, path)))
    expect(fast.length).toBeGreaterThan(50)
    expect(fast.flatMap((path) => neededPrograms(path, read))).toEqual([])
  })

  it('are caught when one of them does', () => {
    const files: Record<string, string> = {
      'test/a.test.ts': `import { b } from './support/b.ts'`,
      'test/support/b.ts': `import type { A } from '../a.test.ts'\nexport * from './postgres.ts'`,
    }
    const problems = neededPrograms('test/a.test.ts', (path) => files[path] ?? '')
    expect(problems).toEqual(['test/a.test.ts: test/support/postgres.ts'])
  })
})

describe('the documents', () => {
  it('name only commands of npm that are there', () => {
    expect(unknownCommands(documents(), Object.keys(manifest().scripts))).toEqual([])
  })

  it('are caught with a command that is not there', () => {
    const file = { path: 'a.md', text: '`npm run\nbuild`, `npm run test:slow -- --all`' }
    expect(unknownCommands([file], ['build'])).toEqual(['a.md: npm run test:slow'])
  })

  it('name only files that are there', () => {
    expect(unknownPaths(documents(), exists)).toEqual([])
  })

  it('are caught with a file that is not there', () => {
    const text = '`src/there.ts`, `src/gone.ts`, `test/x`, `test/vectors/*.json`, src/prose.ts'
    const problems = unknownPaths([{ path: 'a.md', text }], (path) => path === 'src/there.ts')
    expect(problems).toEqual(['a.md: src/gone.ts', 'a.md: test/x'])
  })

  it('for contributors call files by names that are there', () => {
    const guides = documents().filter(({ path }) => /^(CONTRIBUTING|ARCHITECTURE)\.md$/.test(path))
    expect(guides).toHaveLength(2)
    expect(unknownNames(guides, allFiles())).toEqual([])
  })

  it('for contributors are caught with a name that is not there', () => {
    const file = { path: 'a.md', text: '`turns.ts`, `gone.ts`, `stores/sqlite`, `x.mjs`' }
    expect(unknownNames([file], ['src/core/turns.ts'])).toEqual(['a.md: gone.ts', 'a.md: x.mjs'])
  })
})

describe('the stock clients of the OpenAI door', () => {
  it('are documented in the versions that are tried', () => {
    const tried = read('scripts/openai-clients.mjs')
    expect(undocumentedClients(tried, read('docs/reference/openai.md'))).toEqual([])
  })

  it('are caught in a version that is not documented', () => {
    const problems = undocumentedClients(
      "openai: '1.2.3',\n'@a/b': '2.0.0'",
      '| `openai` | 1.2.4 |',
    )
    expect(problems).toEqual(['openai 1.2.3', '@a/b 2.0.0'])
  })
})

/** Those that only accompany others are not listed. */
function undocumentedClients(script: string, page: string): readonly string[] {
  const rows = page.split('\n')
  return Array.from(script.matchAll(/'?([@\w/-]+)'?: '(\d+\.\d+\.\d+)'/g))
    .filter(([, name = '']) => name !== 'zod' && name !== '@langchain/core')
    .filter(([, name = '', version = '']) => {
      return !rows.some((row) => row.startsWith(`| \`${name}\``) && row.includes(version))
    })
    .map(([, name, version]) => `${name} ${version}`)
}

describe('the decisions', () => {
  it('have numbers without a gap, each once, in name and title', () => {
    expect(wrongNumbers(documents())).toEqual([])
  })

  it('are caught with a number that is there twice, or another in the title', () => {
    const files = [
      { path: 'docs/decisions/0001-a.md', text: '# 0001 A' },
      { path: 'docs/decisions/0001-b.md', text: '# 0001 B' },
      { path: 'docs/decisions/0003-c.md', text: '# 0004 C' },
    ]
    expect(wrongNumbers(files)).toEqual(['docs/decisions/0001-b.md', 'docs/decisions/0003-c.md'])
  })
})

describe('CI', () => {
  it('begins with the oldest Node that the package supports', () => {
    const { jobs } = parse(read('.github/workflows/ci.yml')) as {
      jobs: { test: { strategy: { matrix: { node: string[] } } } }
    }
    expect(`>=${jobs.test.strategy.matrix.node[0]}`).toBe(manifest().engines.node)
  })

  it('runs only commands that are there', () => {
    const runs = commands(read('.github/workflows/ci.yml'))
    expect(runs.length).toBeGreaterThan(3)
    expect(unknownScripts(runs, Object.keys(manifest().scripts))).toEqual([])
  })

  it('is caught with a command that is not there', () => {
    const workflow = 'jobs: { a: { steps: [{ uses: x }, { run: "npm ci\\nnpm run gone" }] } }'
    const runs = [...commands(workflow), 'npm test', 'make']
    expect(unknownScripts(runs, ['build'])).toEqual(['npm run gone', 'npm test', 'make'])
  })

  it.each(['ISSUE_TEMPLATE/bug', 'ISSUE_TEMPLATE/feature', 'dependabot'])(
    'has .github/%s.yml, which can be read',
    (name) => {
      expect(parse(read(`.github/${name}.yml`))).toBeTypeOf('object')
    },
  )
})

describe('the examples', () => {
  it('are each run or read by a test', () => {
    const texts = tests().map(read)
    expect(withoutTest(readdirSync(`${ROOT}examples`), texts)).toEqual([])
  })

  it('are caught when one is not', () => {
    const texts = ["example('one.mjs')", 'examples/two/', "'examples/threefold'"]
    expect(withoutTest(['one.mjs', 'two', 'three'], texts)).toEqual(['three'])
  })
})

function unmatched(patterns: readonly string[], paths: readonly string[]): string[] {
  return patterns.filter((pattern) => !paths.some((path) => matches(pattern, path)))
}

/** As much of a glob as the list of fast tests uses. */
function matches(pattern: string, path: string): boolean {
  const parts = pattern.split(/(\*\*\/|\*)/).map((part) => {
    if (part === '**/') return '(.*/)?'
    return part === '*' ? '[^/]*' : part.replaceAll('.', String.raw`\.`)
  })
  return new RegExp(`^${parts.join('')}$`).test(path)
}

/** What starts a program that npm does not install. */
const PROGRAMS =
  /^test\/support\/((bare-)?chromium|browser-tools|cdp-server|postgres|real-agents)\.ts$/

/** What a test imports of that, also by what it imports. */
function neededPrograms(test: string, text: (path: string) => string): string[] {
  const seen = new Set([test])
  for (const path of seen) {
    if (PROGRAMS.test(path)) continue
    for (const [, specifier = ''] of text(path).matchAll(
      /^(?:import|export|\}).*'(\.[^']+\.ts)'$/gm,
    )) {
      seen.add(posix.join(posix.dirname(path), specifier))
    }
  }
  return [...seen].filter((path) => PROGRAMS.test(path)).map((path) => `${test}: ${path}`)
}

function wrongNumbers(all: readonly File[]): string[] {
  const decisions = all.filter(({ path }) => path.startsWith('docs/decisions/'))
  return decisions
    .toSorted((one, other) => (one.path < other.path ? -1 : 1))
    .filter(({ path, text }, index) => {
      const number = String(index + 1).padStart(4, '0')
      return !path.startsWith(`docs/decisions/${number}-`) || !text.startsWith(`# ${number} `)
    })
    .map(({ path }) => path)
}

function unknownCommands(all: readonly File[], names: readonly string[]): string[] {
  return all.flatMap(({ path, text }) =>
    Array.from(text.matchAll(/npm run\s+([\w:-]+)/g), (found) => found[1] ?? '')
      .filter((name) => !names.includes(name))
      .map((name) => `${path}: npm run ${name}`),
  )
}

/** Every line of every `run` of a workflow. */
function commands(workflow: string): string[] {
  const { jobs } = parse(workflow) as {
    jobs: Record<string, { steps: readonly { run?: string }[] }>
  }
  return Object.values(jobs)
    .flatMap(({ steps }) => steps.flatMap(({ run = '' }) => run.split('\n')))
    .filter((line) => line !== '')
}

/** Those that are neither `npm ci` nor a script of the package. */
function unknownScripts(runs: readonly string[], scripts: readonly string[]): string[] {
  const known = ['npm ci', ...scripts.flatMap((name) => [`npm run ${name}`, `npm ${name}`])]
  return runs.filter((run) => !known.includes(run.replace(/ -- .*/, '')))
}

function withoutTest(examples: readonly string[], texts: readonly string[]): string[] {
  return examples.filter((name) => {
    const named = new RegExp(`(example\\('|examples/)${name.replaceAll('.', '\\.')}['/]`)
    return !texts.some((text) => named.test(text))
  })
}

function unknownPaths(all: readonly File[], isThere: (path: string) => boolean): string[] {
  const named = /`((?:bench|docs|examples|scripts|src|test)\/[\w./-]+)`/g
  return all.flatMap(({ path, text }) =>
    Array.from(text.matchAll(named), (found) => found[1] ?? '')
      .filter((name) => !isThere(name))
      .map((name) => `${path}: ${name}`),
  )
}

function unknownNames(all: readonly File[], paths: readonly string[]): string[] {
  const names = new Set(paths.map((path) => posix.basename(path)))
  return all.flatMap(({ path, text }) =>
    Array.from(
      text.matchAll(/`([\w-]+(?:\.[\w-]+)*\.(?:ts|mjs|md|json))`/g),
      ([, name = '']) => name,
    )
      .filter((name) => !names.has(name))
      .map((name) => `${path}: ${name}`),
  )
}

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const FOLDERS = ['.github', 'bench', 'docs', 'examples', 'packages', 'scripts', 'src', 'test']

/** In the folders above and at the top, without what is installed or built. */
function allFiles(): string[] {
  const nested = FOLDERS.flatMap((folder) =>
    readdirSync(ROOT + folder, { recursive: true, encoding: 'utf8' })
      .map((name) => `${folder}/${name.replaceAll('\\', '/')}`)
      .filter((path) => !path.includes('/node_modules/')),
  )
  return [...readdirSync(ROOT), ...nested]
}

function tests(): string[] {
  return allFiles().filter((path) => path.endsWith('.test.ts'))
}

function documents(): File[] {
  return allFiles()
    .filter((path) => path.endsWith('.md'))
    .map((path) => ({ path, text: read(path) }))
}

function manifest(): { scripts: Record<string, string>; engines: { node: string } } {
  return JSON.parse(read('package.json')) as ReturnType<typeof manifest>
}

function read(path: string): string {
  return readFileSync(ROOT + path, 'utf8')
}

function exists(path: string): boolean {
  return existsSync(ROOT + path)
}
