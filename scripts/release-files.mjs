/**
 * `npm run release:files [-- FOLDER]`: the files of a release, from the commit that is checked out: the
 * tarballs of both packages, their SBOM, notes from the changelog, and `SHA256SUMS` of all of them.
 * FOLDER is `release` by default, and must not exist. It publishes nothing.
 */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { sbom } from './sbom.mjs'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const folder = resolve(process.argv[2] ?? join(ROOT, 'release'))
const { version } = JSON.parse(readFileSync(`${ROOT}package.json`, 'utf8'))
const notes = notesOf(version)
if (notes === null) {
  console.error(`release: CHANGELOG.md has no section for ${version}`)
  process.exit(1)
}
mkdirSync(folder)
const npm = process.platform === 'win32' ? 'npm.cmd' : 'npm'
for (const workspace of [[], ['--workspace', 'holdfast-client']]) {
  const args = ['pack', '--silent', '--pack-destination', folder, ...workspace]
  execFileSync(npm, args, { cwd: ROOT, stdio: ['ignore', 'ignore', 'inherit'] })
}
writeFileSync(join(folder, `holdfast-${version}.cdx.json`), sbom())
writeFileSync(join(folder, 'NOTES.md'), notes)
const sums = readdirSync(folder).map((name) => `${digestOf(join(folder, name))}  ${name}\n`)
writeFileSync(join(folder, 'SHA256SUMS'), sums.join(''))
for (const name of readdirSync(folder)) console.log(join(folder, name))

/** The section of a version; of one that is not released yet, what is unreleased. */
function notesOf(wanted) {
  const sections = readFileSync(`${ROOT}CHANGELOG.md`, 'utf8').split(/^(?=## )/m)
  const title = wanted.includes('-') ? '## Unreleased' : `## ${wanted} `
  return sections.find((text) => text.startsWith(title)) ?? null
}

function digestOf(file) {
  return createHash('sha256').update(readFileSync(file)).digest('hex')
}
