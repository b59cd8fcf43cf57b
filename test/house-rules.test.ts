/**
 * The project's own rules, as an ordinary test. Each rule is a pure function from files to
 * violations, and each is shown a planted violation first: a check that cannot fail is no check.
 */
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseSync } from 'vite'
import { describe, expect, it } from 'vitest'
import { DIAGNOSTICS } from '../src/core/diagnostics.ts'
import { ERRORS } from '../src/core/errors.ts'
import { LIMITS } from '../src/core/limits.ts'
import { BROWSER_LIMITS } from '../src/browsers/limits.ts'
import { CDP_LIMITS } from '../src/doors/cdp/limits.ts'
import { CONNECT_LIMITS } from '../src/doors/connect/hub.ts'
import { COPILOT_LIMITS } from '../src/doors/copilot/limits.ts'
import { ERROR_TABLE } from '../src/wire/error-table.ts'
import { cycleLine, cycles, fileGraph, roomGraph } from './house/cycles.ts'
import { centralFiles } from './house/figures.ts'
import {
  filesBelow,
  imports,
  importsAtRunTime,
  isNode,
  isNoTest,
  layerOf,
  nameOf,
  nodes,
  syntax,
  type File,
  type Node,
} from './house/syntax.ts'

/** Limits that can be set, and where they are read. */
const LIMIT_TABLES = [
  { table: LIMITS, where: ['src/core', 'src/runners', 'src/doors', 'src/server'] },
  { table: CONNECT_LIMITS, where: ['src/doors/connect', 'src/server'] },
  { table: CDP_LIMITS, where: ['src/doors/cdp', 'src/server/cdp', 'src/server/watched-sockets'] },
  { table: COPILOT_LIMITS, where: ['src/doors/copilot', 'src/server/copilot'] },
  { table: BROWSER_LIMITS, where: ['src/browsers', 'src/doors/cdp'] },
]

describe('the layers', () => {
  it('may import only along the arrows', () => {
    expect(layerViolations(sources())).toEqual([])
  })

  it.each([
    ['src/core/a.ts', `import { b } from '../wire/b.ts'`, 'core may not import wire'],
    ['src/core/a.ts', `import type { b } from 'node:fs'`, 'core may not import package node:fs'],
    ['src/core/a.ts', `export * from 'ws'`, 'core may not import package ws'],
    ['src/core/a.ts', `type B = import('../stores/b.ts').B`, 'core may not import stores'],
    ['src/stores/sqlite/a.ts', `import '../../runners/b.ts'`, 'stores may not import runners'],
    ['src/wire/a.ts', `const b = await import('../doors/b.ts')`, 'wire may not import doors'],
    ['src/doors/native/a.ts', `import '../../server/b.ts'`, 'doors may not import server'],
    ['src/server/a.ts', `import '../cli/main.ts'`, 'server may not import cli'],
    ['src/server/a.ts', `import '../stores/memory.ts'`, 'server may not import stores'],
    ['src/runners/a.ts', `import '../config/b.ts'`, 'runners may not import config'],
    ['src/platform/a.ts', `import '../runners/b.ts'`, 'platform may not import runners'],
    ['src/testing/a.ts', `import '../server/index.ts'`, 'testing may not import server'],
    ['src/index.ts', `export { serve } from './server/index.ts'`, 'library may not import server'],
    ['src/cli/a.ts', `import '../../test/b.ts'`, 'cli may not import ../../test/b.ts'],
    ['src/cli/a.ts', `import '../things/b.ts'`, 'cli may not import things'],
  ])('%s may not say: %s', (path, text, problem) => {
    expect(layerViolations([{ path, text }])).toEqual([`${path}: ${problem}`])
  })

  it('are all known', () => {
    const problems = layerViolations([{ path: 'src/things/a.ts', text: '' }])
    expect(problems).toEqual(['src/things/a.ts: things is no layer'])
  })

  it('may import along the arrows and inside themselves', () => {
    const text = `import './b.ts'; import '../../wire/b.ts'; import type { E } from '../../core/b.ts'`
    expect(layerViolations([{ path: 'src/doors/native/a.ts', text }])).toEqual([])
  })
})

describe('what a browser loads', () => {
  const entries = ['src/client/index.ts']

  it('needs no package, also not through what it imports', () => {
    expect(packagesLoaded(entries, sources())).toEqual([])
  })

  it('has the packages of the inspector in it, which nobody has to install', () => {
    const { dependencies, devDependencies } = JSON.parse(read('package.json')) as Manifest
    const loaded = packagesLoaded(['src/inspector/main.tsx'], sources())
    const names = loaded.map((line) =>
      line.replace(/^.*: /, '').replace(/^(@[^/]+\/[^/]+|[^/]+).*/, '$1'),
    )
    expect(names).toContain('preact')
    expect(names.filter((name) => !Object.hasOwn(devDependencies, name))).toEqual([])
    expect(names.filter((name) => Object.hasOwn(dependencies, name))).toEqual([])
  })

  it('may import types from everywhere, and nothing else from a package', () => {
    const files = [
      { path: 'src/client/index.ts', text: `import type { A } from 'ws'; import './b.ts'` },
      { path: 'src/client/b.ts', text: `import { c } from '../wire/c.ts'` },
      { path: 'src/wire/c.ts', text: `import { Type } from '@sinclair/typebox'` },
    ]
    expect(packagesLoaded(entries, files)).toEqual(['src/wire/c.ts: @sinclair/typebox'])
  })
})

describe('import cycles', () => {
  it('are none but the known ones, and each of those is still there', () => {
    expect(cycleProblems(sources(), KNOWN_CYCLES)).toEqual([])
  })

  it('are never between layers', () => {
    expect(cycles(roomGraph(fileGraph(sources())))).toEqual([])
  })

  const ring = [
    { path: 'src/core/a.ts', text: `import './b.ts'` },
    { path: 'src/core/b.ts', text: `import type { C } from './c.ts'` },
    { path: 'src/core/c.ts', text: `import { d } from '../core/a.ts'` },
  ]
  const known = { folder: 'src/core', names: 'a b c', imports: 3 }

  it('may not be new', () => {
    const members = 'src/core/a.ts src/core/b.ts src/core/c.ts'
    expect(cycleProblems(ring, [])).toEqual([`new: 3 members, 3 imports: ${members}`])
    expect(cycleProblems(ring, [known])).toEqual([])
  })

  it('may not get another import inside', () => {
    const more = { path: 'src/core/c.ts', text: `import './a.ts'; import './b.ts'` }
    const problems = cycleProblems([...ring.slice(0, 2), more], [known])
    expect(problems).toContainEqual(expect.stringMatching(/^new: 3 members, 4 imports/))
  })

  it('are taken off the list when they are gone', () => {
    const problems = cycleProblems(ring.slice(0, 2), [known])
    expect(problems).toEqual([expect.stringMatching(/^gone, take it off the list: 3 members/)])
  })
})

describe('the core', () => {
  it('uses no clock, no randomness, no timers, no console and no process', () => {
    expect(impurities(sources())).toEqual([])
  })

  it.each([
    ['const at = Date.now()', 'Date'],
    ['const at = new Date()', 'Date'],
    ['const id = Math.random()', 'Math.random'],
    ['setTimeout(() => {}, 1)', 'setTimeout'],
    ['const stop = setInterval', 'setInterval'],
    ['const text = `${process.pid}`', 'process'],
    ['console.log(1)', 'console'],
    ['performance.now()', 'performance'],
    ['const id = crypto.randomUUID()', 'crypto'],
    ['globalThis.fetch', 'globalThis'],
  ])('may not say: %s', (text, name) => {
    expect(impurities([{ path: 'src/core/a.ts', text }])).toEqual([`src/core/a.ts: uses ${name}`])
  })

  it('may name such a thing in a comment, a text, a property or a regular expression', () => {
    const text = `/* process */ const a = 'console'; b.crypto = { process: /Date'/ }.process`
    expect(impurities([{ path: 'src/core/a.ts', text }])).toEqual([])
  })
})

/** V8 keeps what the closure of such a getter refers to until its next full collection. */
describe('a getter', () => {
  it('belongs to a class, not to an object literal', () => {
    expect(literalGetters(sources().filter(({ path }) => !path.endsWith('.test.ts')))).toEqual([])
  })

  it('is found in an object literal, and not in a class', () => {
    const getter = '  get a() {\n    return b\n  }'
    const text = `const c = {\n${getter},\n  d,\n}\nclass E {\n${getter}\n}`
    expect(literalGetters([{ path: 'src/a.ts', text }])).toEqual(['src/a.ts: get a()'])
  })
})

describe('time', () => {
  it('is asked of the clocks alone, but for what people are shown or have said', () => {
    expect(wallClocks(sources())).toEqual([])
  })

  it('objects to a wall clock elsewhere', () => {
    const text = 'const late = Date.now() > at; const day = new Date(); show(new Date(at))'
    const file = { path: 'src/core/a.ts', text }
    expect(wallClocks([file])).toEqual(['src/core/a.ts: Date.now()', 'src/core/a.ts: new Date()'])
  })
})

describe('a WebSocket of ours', () => {
  it('has bounds for control frames', () => {
    expect(unboundSockets(sources())).toEqual([])
  })

  it.each([
    ['new WebSocket(url)', 1],
    ['new WebSocketServer({ ...SOCKET_OPTIONS })', 1],
    ['answerPings(new WebSocket(url, SOCKET_OPTIONS))', 0],
  ])('is reported without them: %s', (use, count) => {
    const text = `import { WebSocket, WebSocketServer } from 'ws'\n${use}`
    expect(unboundSockets([{ path: 'src/server/a.ts', text }])).toHaveLength(count)
  })
})

describe('limits', () => {
  it.each(LIMIT_TABLES)('of $where are all read, and not past what was set', ({ table, where }) => {
    expect(unreadLimits(Object.keys(table), sourcesBelow(where))).toEqual([])
  })

  it('objects to one that is only read as it is by default', () => {
    const file = {
      path: 'src/a.ts',
      text: 'use(limits.one, X_LIMITS.two); const { four } = limits',
    }
    expect(unreadLimits(['one', 'two', 'three', 'four'], [file])).toEqual(['two', 'three'])
  })
})

describe('names and sizes', () => {
  it('gives every file in src a noun', () => {
    expect(emptyNames(sources())).toEqual([])
  })

  it.each([
    'src/core/utils.ts',
    'src/helpers/a.ts',
    'src/wire/types.ts',
    'src/core/laneManager.ts',
  ])('does not accept %s', (path) => {
    expect(emptyNames([{ path, text: '' }])).toEqual([`${path}: what has no noun has no file`])
  })

  it('keeps lines within 100 characters and files within 500 lines', () => {
    expect(oversizes(sources())).toEqual([])
  })

  it('reports a long line and a long file, but no long test', () => {
    const long = 'x\n'.repeat(501)
    const files = [
      { path: 'src/a.ts', text: `${'é'.repeat(100)}\n${'x'.repeat(101)}\n` },
      { path: 'src/b.ts', text: long },
      { path: 'src/b.test.ts', text: long },
    ]
    expect(oversizes(files)).toEqual(['src/a.ts:2: 101 characters', 'src/b.ts: 501 lines'])
  })
})

describe('logging', () => {
  it('happens through a logger that is passed in, except in the command line', () => {
    expect(consoleUses(sources())).toEqual([])
  })

  it('is reported where it does not belong', () => {
    const text = 'console.error(1)'
    const files = ['src/server/a.ts', 'src/cli/a.ts'].map((path) => ({ path, text }))
    expect(consoleUses(files)).toEqual(['src/server/a.ts: uses console'])
  })
})

describe('an error', () => {
  it('is not dropped without a reason', () => {
    expect(droppedErrors(sources())).toEqual([])
  })

  it.each([
    ['function f() { try { g() } catch { return null } }', 1],
    ['function f() { try { g() } catch (error) { return null } }', 1],
    ['function f() { try { // above\n g() } catch {} }', 1],
    ['g().catch(() => undefined)', 1],
    ['g().catch(ignore)', 1],
    ['g().then(h, () => null)', 1],
    ["socket.on('error', () => undefined)", 1],
    ['// It is gone already.\ng().catch(() => undefined)', 0],
    ['// It is gone already.\nif (a) g().catch(() => undefined)', 0],
    ['try { g() } catch {\n  // It is gone already.\n}', 0],
    ['try { g() } catch (error) { tell(error) }', 0],
    ["try { g() } catch { throw new Error('told by another') }", 0],
    ['g().catch((error) => tell(error))', 0],
    ['/** Null if there is none. */\nfunction f() { try { return g() } catch { return null } }', 0],
  ])('in %j is reported: %i', (text, count) => {
    expect(droppedErrors([{ path: 'src/server/a.ts', text }])).toHaveLength(count)
  })
})

describe('the documentation', () => {
  it('names the central files in the sentence that npm run house reads', () => {
    expect(centralFiles(read('ARCHITECTURE.md'))).toContain('src/core/session.ts')
  })

  it('lists every error code with its status, and no other', () => {
    const codes = Object.keys(ERRORS) as (keyof typeof ERRORS)[]
    const rows = codes.map((code) => [code, { ...ERRORS[code], ...ERROR_TABLE[code] }] as const)
    const table = Object.fromEntries(rows)
    expect(errorTableProblems(read('docs/reference/errors.md'), table)).toEqual([])
    expect(Object.keys(ERROR_TABLE).toSorted()).toEqual(codes.toSorted())
  })

  it('is caught when its error table is wrong', () => {
    const table = [
      '| Code | Status | Retry | Meaning |',
      '| `a` | 404 | no | right |',
      '| `b` | 400 | no | another status |',
      '| `c` | 429 | no | another retry |',
      '| `x` | 500 | no | not in the code |',
    ].join('\n')
    const errors = {
      a: { status: 404, retry: false },
      b: { status: 409, retry: false },
      c: { status: 429, retry: true },
      d: { status: 500, retry: false },
    }
    expect(errorTableProblems(table, errors)).toEqual([
      'b: | 409 | no | expected, found | 400 | no |',
      'c: | 429 | yes | expected, found | 429 | no |',
      'd: | 500 | no | expected, found nothing',
      'x: not in the table of the code',
    ])
  })

  it('lists every diagnostic with its level, and no other', () => {
    expect(diagnosticTableProblems(read('docs/reference/diagnostics.md'), DIAGNOSTICS)).toEqual([])
  })

  it('is caught when its diagnostics table is wrong', () => {
    const table = [
      '| `a` | info | right |',
      '| `b` | warn | another level |',
      '| `x` | info | gone |',
    ]
    const levels = { a: 'info', b: 'error', c: 'info' }
    expect(diagnosticTableProblems(table.join('\n'), levels)).toEqual([
      'b: error expected, found warn',
      'c: info expected, found nothing',
      'x: not in the table of the code',
    ])
  })

  it('has no relative link to a file that is not there', () => {
    expect(brokenLinks(documents(), exists)).toEqual([])
  })

  it('is caught with a broken link', () => {
    const text = [
      '[good](guide.md#part) [bad](../gone.md) [web](https://example.com) [here](#part)',
      '`[code](no.md)` and ![picture](picture.png "title")',
      '```\n[block](no.md)\n```',
      '[reference]: ./lost.md',
    ].join('\n')
    const problems = brokenLinks([{ path: 'docs/a.md', text }], (path) => path === 'docs/guide.md')
    expect(problems).toEqual([
      'docs/a.md: ../gone.md',
      'docs/a.md: picture.png',
      'docs/a.md: ./lost.md',
    ])
  })
})

describe('the package', () => {
  it('exports only files that are built', () => {
    expect(missingExports(read('package.json'), exists)).toEqual([])
  })

  it('is caught when it exports a file that is not there', () => {
    const manifest = {
      bin: { a: './dist/main.js' },
      exports: {
        '.': './dist/index.js',
        './b': { types: './dist/b.d.ts', default: './dist/b.js' },
      },
    }
    const built = (path: string): boolean => path === 'dist/index.js' || path === 'dist/b.js'
    expect(missingExports(JSON.stringify(manifest), built)).toEqual([
      './dist/main.js',
      './dist/b.d.ts',
    ])
  })
})

describe('the tests', () => {
  it('are all run', () => {
    expect(unrunTests([...sources(), ...files('test', '.ts')])).toEqual([])
  })

  it.each([
    'it.skip',
    'it.only',
    'test.todo',
    'describe.only',
    'it.concurrent.skip',
    'it.skip.each',
  ])('may not say %s', (call) => {
    const file = { path: 'test/a.test.ts', text: `${call}('a claim', () => {})` }
    expect(unrunTests([file])).toHaveLength(1)
  })
})

type Manifest = Readonly<
  Record<'dependencies' | 'devDependencies', Readonly<Record<string, string>>>
>

/** Which layer may import which, besides itself. Only the core may import no package either. */
const LAYERS: Readonly<Record<string, readonly string[]>> = {
  core: [],
  schema: ['core'],
  wire: ['schema', 'core'],
  stores: ['core'],
  platform: ['core'],
  runners: ['schema', 'platform', 'core'],
  testing: ['core', 'stores', 'platform'],
  config: ['schema', 'runners', 'core'],
  library: ['core', 'stores', 'platform', 'runners', 'config', 'wire'],
  browsers: ['core', 'platform', 'wire'],
  doors: ['schema', 'wire', 'core', 'browsers'],
  server: ['doors', 'schema', 'wire', 'core', 'browsers', 'platform'],
  cli: [
    ...['library', 'server', 'doors', 'client', 'cdp', 'wire'],
    ...['core', 'stores', 'config', 'platform', 'browsers'],
  ],
  client: ['wire'],
  cdp: ['client', 'wire'],
  inspector: ['client', 'wire'],
  vitest: ['library', 'wire', 'core'],
}

function layerViolations(all: readonly File[]): string[] {
  return all.filter(isNoTest).flatMap((file) => {
    const layer = layerOf(file.path)
    const allowed = LAYERS[layer]
    if (allowed === undefined) return [`${file.path}: ${layer} is no layer`]
    return imports(file)
      .map((specifier) => importedLayer(file.path, specifier))
      .filter((name) => name !== layer && !allowed.includes(name))
      .filter((name) => layer === 'core' || !isPackage(name))
      .map((name) => `${file.path}: ${layer} may not import ${name}`)
  })
}

/** The layer of what is imported; a package, or a file outside src, stands for itself. */
function importedLayer(from: string, specifier: string): string {
  if (!specifier.startsWith('.')) return `package ${specifier}`
  const path = posix.join(posix.dirname(from), specifier)
  return path.startsWith('src/') ? layerOf(path) : specifier
}

function isPackage(name: string): boolean {
  return name.startsWith('package ')
}

function packagesLoaded(entries: readonly string[], all: readonly File[]): string[] {
  const byPath = new Map(all.map((file) => [file.path, file]))
  const paths = new Set(entries)
  const packages: string[] = []
  for (const path of paths) {
    const file = byPath.get(path)
    for (const specifier of file === undefined ? [] : importsAtRunTime(file)) {
      if (specifier.startsWith('.')) paths.add(posix.join(posix.dirname(path), specifier))
      else packages.push(`${path}: ${specifier}`)
    }
  }
  return packages
}

type KnownCycle = { readonly folder: string; readonly names: string; readonly imports: number }

/** What is left to be untangled. This list may only get shorter, and its numbers smaller. */
const KNOWN_CYCLES: readonly KnownCycle[] = []

function cycleProblems(all: readonly File[], known: readonly KnownCycle[]): string[] {
  const found = cycles(fileGraph(all)).map(cycleLine)
  const expected = known.map(({ folder, names, imports: count }) => {
    const members = names.split(/\s+/).map((name) => `${folder}/${name}.ts`)
    return cycleLine({ members, imports: count })
  })
  return [
    ...found.filter((line) => !expected.includes(line)).map((line) => `new: ${line}`),
    ...expected
      .filter((line) => !found.includes(line))
      .map((line) => `gone, take it off the list: ${line}`),
  ]
}

const IMPURE_NAMES = new Set([
  'Date',
  'setTimeout',
  'setInterval',
  'setImmediate',
  'console',
  'process',
  'performance',
  'crypto',
  'globalThis',
  'Buffer',
])

function impurities(all: readonly File[]): string[] {
  return all
    .filter(({ path }) => path.startsWith('src/core/'))
    .filter(isNoTest)
    .flatMap((file) =>
      [...nodes(syntax(file))]
        .map((node) => (node.type === 'MemberExpression' ? chain(node).join('.') : nameOf(node)))
        .filter((name) => IMPURE_NAMES.has(name) || name === 'Math.random')
        .map((name) => `${file.path}: uses ${name}`),
    )
}

function consoleUses(all: readonly File[]): string[] {
  return all
    .filter(({ path }) => !path.startsWith('src/cli/'))
    .filter((file) => [...nodes(syntax(file))].some((node) => nameOf(node) === 'console'))
    .map(({ path }) => `${path}: uses console`)
}

function unrunTests(all: readonly File[]): string[] {
  return all.flatMap((file) =>
    [...nodes(syntax(file))]
      .filter(({ type }) => type === 'MemberExpression')
      .map(chain)
      .filter(([root = '']) => ['it', 'test', 'describe', 'suite', 'bench'].includes(root))
      .filter((names) => ['skip', 'only', 'todo'].includes(names.at(-1) ?? ''))
      .map((names) => `${file.path}: ${names.join('.')}`),
  )
}

const EMPTY_NAMES = /^(utils?|helpers?|common|types|impl|managers?|services?)$/i

function emptyNames(all: readonly File[]): string[] {
  return all
    .filter(({ path }) =>
      path.split(/[/._-]|(?<=[a-z])(?=[A-Z])/).some((word) => EMPTY_NAMES.test(word)),
    )
    .map(({ path }) => `${path}: what has no noun has no file`)
}

/** The clocks, what a person sees on a page or says on a command line, and a date for people. */
const WALL_CLOCKS = [
  'src/platform/clock.ts',
  'src/client/platform.ts',
  'src/stores/postgres/database.ts',
  'src/stores/sqlite/migrations.ts',
  'src/cli/token.ts',
  'src/inspector/',
]

function literalGetters(files: readonly File[]): string[] {
  const getter = /^( +)(get \w+\(\))[^\n]*\{\n(?:\1 .*\n|\n)*\1\},$/gm
  return files.flatMap(({ path, text }) =>
    [...text.matchAll(getter)].map((match) => `${path}: ${match[2]}`),
  )
}

function wallClocks(all: readonly File[]): string[] {
  return all
    .filter((file) => isNoTest(file) && !WALL_CLOCKS.some((path) => file.path.startsWith(path)))
    .flatMap(({ path, text }) =>
      [...text.matchAll(/Date\.now\(\)|new Date\(\)/g)].map(([use]) => `${path}: ${use}`),
    )
}

function unboundSockets(all: readonly File[]): string[] {
  return all
    .filter((file) => isNoTest(file) && imports(file).includes('ws'))
    .filter(({ text }) => /new WebSocket(Server)?\(/.test(text))
    .filter(({ text }) => !/\bSOCKET_OPTIONS\b/.test(text) || !/\banswerPings\(/.test(text))
    .map(({ path }) => `${path}: answers any number of pings`)
}

/** Those that can be set, and the code that has to follow what was set. */
function unreadLimits(names: readonly string[], all: readonly File[]): string[] {
  const reads = (name: string): RegExp =>
    new RegExp(`(?<!LIMITS)\\.${name}\\b|[{,]\\s*${name}\\s*(=[^,}]*)?[,}]`)
  return names.filter((name) => !all.some(({ text }) => reads(name).test(text)))
}

function sourcesBelow(folders: readonly string[]): File[] {
  return sources().filter(
    (file) =>
      isNoTest(file) &&
      !file.path.endsWith('/limits.ts') &&
      folders.some((folder) => file.path.startsWith(folder)),
  )
}

function oversizes(all: readonly File[]): string[] {
  return all.flatMap((file) => {
    const lines = file.text.trimEnd().split('\n')
    const wide = lines.flatMap((line, index) => {
      const width = Array.from(line).length
      return width > 100 ? [`${file.path}:${index + 1}: ${width} characters`] : []
    })
    const isLong = lines.length > 500 && isNoTest(file)
    return isLong ? [...wide, `${file.path}: ${lines.length} lines`] : wide
  })
}

type ErrorTable = Readonly<Record<string, { readonly status: number; readonly retry: boolean }>>

function errorTableProblems(markdown: string, errors: ErrorTable): string[] {
  const rows = new Map(
    Array.from(markdown.matchAll(/^\| +`(\w+)` +\| +(\d+) +\| +(yes|no) +\|/gm), (row) => [
      row[1] ?? '',
      `| ${row[2]} | ${row[3]} |`,
    ]),
  )
  const wrong = Object.entries(errors).flatMap(([code, { status, retry }]) => {
    const expected = `| ${status} | ${retry ? 'yes' : 'no'} |`
    const found = rows.get(code) ?? 'nothing'
    return found === expected ? [] : [`${code}: ${expected} expected, found ${found}`]
  })
  const unknown = [...rows.keys()].filter((code) => !Object.hasOwn(errors, code))
  return [...wrong, ...unknown.map((code) => `${code}: not in the table of the code`)]
}

function diagnosticTableProblems(
  markdown: string,
  levels: Readonly<Record<string, string>>,
): string[] {
  const rows = new Map(
    Array.from(markdown.matchAll(/^\| +`(\w+)` +\| +(debug|info|warn|error) +\|/gm), (row) => [
      row[1] ?? '',
      row[2] ?? '',
    ]),
  )
  const wrong = Object.entries(levels).flatMap(([code, level]) => {
    const found = rows.get(code) ?? 'nothing'
    return found === level ? [] : [`${code}: ${level} expected, found ${found}`]
  })
  const unknown = [...rows.keys()].filter((code) => !Object.hasOwn(levels, code))
  return [...wrong, ...unknown.map((code) => `${code}: not in the table of the code`)]
}

/**
 * Errors that are caught and neither used nor replaced by another, without a comment: in the clause
 * or statement itself, right above it, or above a function that does little else.
 */
function droppedErrors(all: readonly File[]): string[] {
  return all.filter(isNoTest).flatMap(({ path, text }) => {
    const { program, comments } = parseSync(path, text)
    const isCommented = (from: number, to: number): boolean =>
      comments.some(
        ({ start, end }) =>
          (start >= from && end <= to) || (end <= from && text.slice(end, from).trim() === ''),
      )
    return [...droppingNodes(program, [])].flatMap(({ node, statement, routine }) => {
      const [from, to] = [Number(node['start']), Number(node['end'])]
      const isClause = node.type === 'CatchClause'
      const isExplained =
        (isClause && isCommented(from + 1, to)) ||
        isCommented(Number(statement?.['start'] ?? from), isClause ? 0 : to) ||
        (routine !== null && isCommented(routine, 0))
      const line = text.slice(0, from).split('\n').length
      return isExplained ? [] : [`${path}:${line}: an error is dropped without a reason`]
    })
  })
}

type Dropping = {
  readonly node: Node
  readonly statement: Node | null
  /** Where the function around it begins, if it does little else. */
  readonly routine: number | null
}

function* droppingNodes(value: unknown, above: readonly Node[]): Generator<Dropping> {
  if (Array.isArray(value)) {
    for (const item of value) yield* droppingNodes(item, above)
  } else if (isNode(value)) {
    if (dropsError(value)) {
      yield { node: value, statement: statementOf(above), routine: routineOf(above) }
    }
    for (const child of Object.values(value)) yield* droppingNodes(child, [...above, value])
  }
}

/** The statement around it, with the condition or loop that it is all of. */
function statementOf(above: readonly Node[]): Node | null {
  let index = above.findLastIndex(({ type }) => /Statement$|VariableDeclaration$/.test(type))
  while (/^(If|For\w*|While)Statement$/.test(above[index - 1]?.type ?? '')) index -= 1
  return above[index] ?? null
}

function routineOf(above: readonly Node[]): number | null {
  const index = above.findLastIndex(({ type }) => /^Function(Declaration|Expression)$/.test(type))
  const routine = above[index]
  const statements = isNode(routine?.['body']) ? routine['body']['body'] : null
  if (!Array.isArray(statements) || statements.length > 3) return null
  // A method's comment, or an export's, stands above what holds it.
  const holder = above[index - 1]
  const isHeld = /^(MethodDefinition|Export\w+Declaration)$/.test(holder?.type ?? '')
  return Number((isHeld ? holder : routine)?.['start'])
}

function dropsError(node: Node): boolean {
  if (node.type === 'CatchClause') {
    const name = nameOf(node['param'])
    const body = [...nodes(node['body'])]
    const isUsed = name !== '' && body.some((inner) => nameOf(inner) === name)
    const isPattern = isNode(node['param']) && name === ''
    return !isUsed && !isPattern && !body.some(({ type }) => type === 'ThrowStatement')
  }
  if (node.type !== 'CallExpression' || !isNode(node['callee'])) return false
  const method = nameOf(node['callee']['property'])
  const args = node['arguments'] as readonly unknown[]
  const [first, second] = args
  if (method === 'catch') return ignores(first)
  if (method === 'then') return ignores(second)
  const isError = isNode(first) && first['value'] === 'error'
  return /^(on|once|addEventListener)$/.test(method) && isError && ignores(second)
}

/** A function that takes no error, or one of a name that says so. */
function ignores(handler: unknown): boolean {
  if (nameOf(handler).startsWith('ignore')) return true
  if (!isNode(handler) || !/^(Arrow)?FunctionExpression$/.test(handler.type)) return false
  return (handler['params'] as readonly unknown[]).length === 0
}

function brokenLinks(all: readonly File[], isThere: (path: string) => boolean): string[] {
  return all.flatMap(({ path, text }) => {
    const prose = text.replace(/^```.*?^```/gms, '').replace(/`[^`\n]*`/g, '')
    const links = prose.matchAll(/\]\(([^)\s]+)[^)]*\)|^\[[^\]]+\]: +(\S+)/gm)
    return Array.from(links, (link) => link[1] ?? link[2] ?? '')
      .filter((link) => !/^([a-z][a-z\d+.-]*:|#)/i.test(link))
      .filter((link) => !isThere(posix.join(posix.dirname(path), link.replace(/#.*/, ''))))
      .map((link) => `${path}: ${link}`)
  })
}

function missingExports(manifest: string, isThere: (path: string) => boolean): string[] {
  const { bin, exports } = JSON.parse(manifest) as { bin: unknown; exports: unknown }
  return [...leaves(bin), ...leaves(exports)].filter((path) => !isThere(posix.normalize(path)))
}

function leaves(value: unknown): string[] {
  if (typeof value === 'string') return [value]
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(leaves) : []
}

/** `a.b.c` as its names; whatever else it is made of is an empty name. */
function chain(node: unknown): string[] {
  if (!isNode(node) || node.type !== 'MemberExpression') return [nameOf(node)]
  return [...chain(node['object']), nameOf(node['property'])]
}

const ROOT = fileURLToPath(new URL('..', import.meta.url))

function sources(): File[] {
  return [...files('src', '.ts'), ...files('src', '.tsx')]
}

function documents(): File[] {
  const roots = readdirSync(ROOT).filter((path) => path.endsWith('.md'))
  const folders = ['.github', 'docs', 'test'].flatMap((folder) => files(folder, '.md'))
  return [...roots.map((path) => ({ path, text: read(path) })), ...folders]
}

function files(folder: string, ending: string): File[] {
  return filesBelow(ROOT, folder, ending)
}

function read(path: string): string {
  return readFileSync(ROOT + path, 'utf8')
}

function exists(path: string): boolean {
  return existsSync(ROOT + path)
}
