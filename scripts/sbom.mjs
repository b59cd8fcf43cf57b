/**
 * `npm run sbom [-- FILE]`: the CycloneDX document of what an installed Holdfast runs, made by npm from
 * the lock file and what is installed, without a network. Without FILE it goes to stdout.
 */
import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('..', import.meta.url))

export function sbom() {
  // With NODE_ENV=production npm would leave out what development tools need too.
  const args = ['sbom', '--sbom-format=cyclonedx', '--sbom-type=application', '--include=dev']
  const npm = process.platform === 'win32' ? 'npm.cmd' : 'npm'
  const text = execFileSync(npm, args, {
    ...{ cwd: ROOT, encoding: 'utf8', maxBuffer: 2 ** 26 },
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  const { name, dependencies, optionalDependencies } = JSON.parse(
    readFileSync(`${ROOT}package.json`, 'utf8'),
  )
  const document = JSON.parse(text)
  // npm calls it by its folder.
  document.metadata.component.name = name
  const direct = Object.keys({ ...dependencies, ...optionalDependencies })
  return `${JSON.stringify(withoutOthers(document, direct), null, 2)}\n`
}

/** `npm sbom --omit=dev` leaves out what is needed at run time and by a development tool too. */
function withoutOthers(document, direct) {
  const { metadata, components, dependencies } = document
  const root = metadata.component['bom-ref']
  const needs = new Map(dependencies.map(({ ref, dependsOn }) => [ref, dependsOn]))
  const installed = new Map(components.map((component) => [component['bom-ref'], component]))
  const own = (needs.get(root) ?? []).filter((ref) => direct.includes(nameOf(installed.get(ref))))
  const kept = new Set(own)
  for (const ref of kept) for (const next of needs.get(ref) ?? []) kept.add(next)
  const graph = dependencies.filter(({ ref }) => kept.has(ref))
  return {
    ...document,
    components: components.filter((component) => kept.has(component['bom-ref'])),
    dependencies: [{ ref: root, dependsOn: own }, ...graph],
  }
}

function nameOf({ group, name } = {}) {
  return group === undefined ? name : `${group}/${name}`
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [file] = process.argv.slice(2)
  if (file === undefined) process.stdout.write(sbom())
  else writeFileSync(file, sbom())
}
