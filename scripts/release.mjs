/**
 * `npm run release -- X.Y.Z [--dry-run]`: makes the commit and the tag of a release, and the commit
 * that begins the next version. It pushes and publishes nothing: it prints the commands for that.
 *
 * Either all checks pass or nothing is changed. `--dry-run` checks, prints, and changes nothing.
 */
import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const USAGE = 'Usage: npm run release -- X.Y.Z [--dry-run]'
const BRANCH = 'main'
const UNRELEASED = '## Unreleased'

/** Where a version is written. The first is the one that the others must agree with. */
const VERSION_PLACES = [
  { file: 'package.json', pattern: /(?<=^ {2}"version": ")[^"]+/gm, count: 1 },
  { file: 'packages/client/package.json', pattern: /(?<=^ {2}"version": ")[^"]+/gm, count: 1 },
  {
    file: 'package-lock.json',
    pattern: /(?<=^ *"name": "holdfast(-client)?",\n *"version": ")[^"]+/gm,
    count: 3,
  },
  { file: 'src/wire/version.ts', pattern: /(?<=VERSION = ')[^']+/g, count: 1 },
]

/** Where the newest release is named: not changed when the next version begins. */
const RELEASE_PLACES = [
  { file: 'deploy/kubernetes.yaml', pattern: /(?<=\/holdfast:)[\w.-]+/g, count: 1 },
]

const { version, isDryRun } = readArguments()
const problems = findProblems()
if (problems.length > 0) {
  console.error(problems.map((problem) => `release: ${problem}`).join('\n'))
  process.exit(1)
}
const next = nextVersion()
commitRelease()
beginNext()
printCommands()

function readArguments() {
  try {
    const options = { 'dry-run': { type: 'boolean', default: false } }
    const { values, positionals } = parseArgs({ options, allowPositionals: true })
    const [only = '', ...others] = positionals
    if (!/^(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}$/.test(only) || others.length > 0) {
      throw new Error('one version of three numbers is needed, like 0.2.0')
    }
    return { version: only, isDryRun: values['dry-run'] }
  } catch (error) {
    console.error(`release: ${error.message}\n${USAGE}`)
    process.exit(2)
  }
}

function findProblems() {
  return [...repositoryProblems(), ...changelogProblems(), ...versionProblems()]
}

function repositoryProblems() {
  const branch = git('rev-parse', '--abbrev-ref', 'HEAD')
  return [
    branch !== BRANCH && `the branch is ${branch}, not ${BRANCH}`,
    git('status', '--porcelain') !== '' && 'the working tree has changes that are not committed',
    git('tag', '--list', tagName()) !== '' && `the tag ${tagName()} is there already`,
  ].filter(Boolean)
}

function changelogProblems() {
  const [unreleased, newest] = sections(read('CHANGELOG.md'))
  if (unreleased?.title !== UNRELEASED) return [`CHANGELOG.md does not begin with "${UNRELEASED}"`]
  const released = /^## (\d+\.\d+\.\d+) /.exec(newest?.title ?? '')?.[1]
  return [
    !/^- /m.test(unreleased.text) && `CHANGELOG.md has nothing under "${UNRELEASED}"`,
    released !== undefined &&
      !isNewer(version, released) &&
      `${version} is not newer than ${released}, the newest in CHANGELOG.md`,
  ].filter(Boolean)
}

function versionProblems() {
  const current = currentVersion()
  return [...VERSION_PLACES, ...RELEASE_PLACES].flatMap(({ file, pattern, count }, index) => {
    const found = read(file).match(pattern) ?? []
    if (found.length !== count) return [`${file} names ${found.length} versions, not ${count}`]
    const mustAgree = index < VERSION_PLACES.length
    const other = mustAgree ? found.find((one) => one !== current) : undefined
    return other === undefined ? [] : [`${file} says ${other}, package.json ${current}`]
  })
}

function commitRelease() {
  setVersion([...VERSION_PLACES, ...RELEASE_PLACES], version)
  const today = new Date().toISOString().slice(0, 10)
  const title = `## ${version} (${today})`
  write('CHANGELOG.md', read('CHANGELOG.md').replace(UNRELEASED, title), `"${title}"`)
  change('commit', '--all', '--message', `release: ${version}`)
  change('tag', '--annotate', tagName(), '--message', `Holdfast ${version}`)
}

/** What is built from the branch later must not call itself the release. */
function beginNext() {
  setVersion(VERSION_PLACES, next)
  const text = read('CHANGELOG.md').replace(/^## /m, `${UNRELEASED}\n\n## `)
  write('CHANGELOG.md', text, `"${UNRELEASED}"`)
  change('commit', '--all', '--message', `release: begin ${next}`)
}

function printCommands() {
  console.log(
    [
      isDryRun ? 'Nothing was changed.' : `${tagName()} is made, and nothing is published.`,
      'To publish it (docs/releasing.md says what to check before):',
      `  git push origin ${BRANCH} ${tagName()}`,
      `  git checkout ${tagName()} && npm ci`,
      '  npm publish && npm publish --workspace holdfast-client',
      `  git checkout ${BRANCH}`,
    ].join('\n'),
  )
}

function setVersion(places, value) {
  for (const { file, pattern } of places) write(file, read(file).replace(pattern, value), value)
}

/** A patch of an older release leaves the version that has begun as it is. */
function nextVersion() {
  const [major, minor] = version.split('.').map(Number)
  const begun = currentVersion()
  const following = `${major}.${minor + 1}.0`
  return isNewer(following, begun.replace(/-.*/, '')) ? `${following}-dev` : begun
}

function currentVersion() {
  return JSON.parse(read('package.json')).version
}

function isNewer(one, other) {
  const [left, right] = [one, other].map((text) => text.split('.').map(Number))
  const differs = left.findIndex((number, index) => number !== right[index])
  return differs !== -1 && left[differs] > right[differs]
}

/** The parts of a changelog that begin with `## `, newest first. */
function sections(text) {
  return text
    .split(/^(?=## )/m)
    .slice(1)
    .map((part) => ({ title: part.slice(0, part.indexOf('\n')).trim(), text: part }))
}

function tagName() {
  return `v${version}`
}

function read(file) {
  return readFileSync(ROOT + file, 'utf8')
}

function write(file, text, what) {
  console.log(`${file}: ${what}`)
  if (!isDryRun) writeFileSync(ROOT + file, text)
}

function change(...args) {
  console.log(`git ${args.join(' ')}`)
  if (!isDryRun) git(...args)
}

function git(...args) {
  return execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' }).trim()
}
