/**
 * What every script needs first: the right Node, the dependencies, and a build that is not older
 * than its sources. Plain Node, because nothing may be installed yet.
 */
import { spawn } from 'node:child_process'
import { existsSync, readFileSync, readdirSync, rmSync, statSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const ROOT = fileURLToPath(new URL('..', import.meta.url))

/** What tsc makes: the package itself, and the package with its tests and measurements. */
export const PACKAGE = {
  config: 'tsconfig.build.json',
  output: 'dist',
  sources: ['src', 'scripts/static.mjs'],
  hasInspector: true,
}
export const PROGRAMS = {
  config: 'tsconfig.json',
  output: '.build',
  sources: ['src', 'test', 'bench', 'examples'],
}

const SETTINGS = ['package.json', 'package-lock.json', 'tsconfig.json', 'tsconfig.build.json']

/** The tools by their own files: `node_modules/.bin` is not the same on every platform. */
const TOOLS = {
  oxfmt: 'oxfmt/bin/oxfmt',
  oxlint: 'oxlint/bin/oxlint',
  tsc: 'typescript/bin/tsc',
  vitest: 'vitest/vitest.mjs',
}

/** Installs and builds what is missing or out of date; false when that failed and was told. */
export async function prepare(builds, { quiet = false } = {}) {
  const say = quiet ? () => {} : (line) => console.error(`holdfast: ${line}`)
  if (!(await install(say))) return false
  for (const build of builds) {
    if (isFresh(build)) continue
    say(`building ${build.output} (tsc)`)
    if (!(await compile(build))) return false
  }
  return true
}

/** Ends the process with one clear line if this Node is too old for `engines` in package.json. */
export function checkNode() {
  const { engines } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
  const [major, minor] = engines.node.match(/\d+/g).map(Number)
  const [ownMajor, ownMinor] = process.versions.node.split('.').map(Number)
  if (ownMajor > major || (ownMajor === major && ownMinor >= minor)) return
  console.error(`Holdfast needs Node ${major}.${minor} or newer; this is Node ${process.version}.`)
  process.exit(1)
}

/**
 * npm sends SIGTERM only to the shell between it and this process, and some shells (dash) end without
 * passing it on. So the end of that shell counts as the signal: no server is left behind.
 */
export function endWithNpm() {
  if (process.env.npm_lifecycle_event === undefined) return
  const shell = process.ppid
  const watch = setInterval(() => {
    if (process.ppid === shell) return
    clearInterval(watch)
    process.kill(process.pid, 'SIGTERM')
  }, 200)
  watch.unref()
}

async function install(say) {
  if (isInstalled()) return true
  say('installing dependencies (npm ci)')
  // TypeScript is a devDependency, so NODE_ENV=production must not leave it out; and even under
  // `npm --silent` a failure has to say why.
  const flags = ['--include=dev', '--loglevel=error', '--no-audit', '--no-fund']
  return run('npm', ['ci', ...flags], { quiet: true })
}

/** npm writes its own copy of the lock file last: without it an install was cut short. */
function isInstalled() {
  const installed = join(ROOT, 'node_modules/.package-lock.json')
  const complete = existsSync(installed) && existsSync(join(ROOT, 'node_modules', TOOLS.tsc))
  return complete && modifiedAt(installed) >= modifiedAt(join(ROOT, 'package-lock.json'))
}

function isFresh({ output, sources }) {
  const outputs = [...entries(join(ROOT, output))].filter(({ isFile }) => isFile)
  if (outputs.length === 0) return false
  // Folders too: their time tells of a source that was removed.
  const inputs = sources.flatMap((source) => [...entries(join(ROOT, source))])
  const changed = [...inputs.map(({ path }) => path), ...SETTINGS.map((file) => join(ROOT, file))]
  const newest = Math.max(...changed.map(modifiedAt))
  return outputs.every(({ path }) => modifiedAt(path) > newest)
}

/** Compiles whole or not at all, and removes what an earlier build left behind. */
export async function compile({ config, output, hasInspector = false }) {
  const startedAt = Date.now()
  if (!(await runTool('tsc', ['-p', config, '--noEmitOnError'], { quiet: true }))) return false
  if (hasInspector) {
    // Loaded here: it needs a package, which may have been installed just now.
    const { buildInspector } = await import('./static.mjs')
    await buildInspector()
  }
  for (const { path, isFile } of entries(join(ROOT, output))) {
    if (isFile && modifiedAt(path) < startedAt) rmSync(path)
  }
  return true
}

function* entries(path) {
  if (!existsSync(path)) return
  const isFile = !statSync(path).isDirectory()
  yield { path, isFile }
  if (isFile) return
  for (const name of readdirSync(path)) {
    if (name !== 'node_modules') yield* entries(join(path, name))
  }
}

function modifiedAt(path) {
  return statSync(path).mtimeMs
}

export function runTool(name, args, options) {
  return run(process.execPath, [join(ROOT, 'node_modules', TOOLS[name]), ...args], options)
}

/** Runs a program and tells whether it succeeded; a quiet one shows its output only if it failed. */
async function run(command, args, { quiet = false } = {}) {
  const child = spawn(command, args, {
    cwd: ROOT,
    stdio: quiet ? ['ignore', 'pipe', 'pipe'] : 'inherit',
    shell: command === 'npm' && process.platform === 'win32',
  })
  const output = []
  child.stdout?.on('data', (chunk) => output.push(chunk))
  child.stderr?.on('data', (chunk) => output.push(chunk))
  const { code, signal } = await ended(child)
  if (signal !== null) process.exit(128 + constants.signals[signal])
  if (code !== 0) process.stderr.write(Buffer.concat(output))
  return code === 0
}

/** Waits for the child; what would end this process meanwhile ends the child first. */
async function ended(child) {
  let received = null
  const passOn = (signal) => {
    received = signal
    child.kill(signal)
  }
  process.on('SIGINT', passOn).on('SIGTERM', passOn)
  const [code, signal] = await new Promise((resolve) => {
    child.once('error', (error) => {
      console.error(error.message)
      resolve([1, null])
    })
    child.once('close', (...end) => resolve(end))
  })
  process.off('SIGINT', passOn).off('SIGTERM', passOn)
  return { code, signal: received ?? signal }
}
