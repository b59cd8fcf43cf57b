/**
 * Fills `packages/client`, the package `holdfast-client`, from `dist`: the modules that its entry
 * points import, and of the types the declarations that their exports refer to. So nothing is
 * compiled twice, and no type of the server is shipped with the client.
 *
 * The package has no dependencies: an import of a package that is not among its peers is an error.
 */
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseSync } from 'vite'
import { pruneDeclarations } from './declarations.mjs'
import { PACKAGE, prepare, ROOT } from './prepare.mjs'

const FOLDER = join(ROOT, 'packages/client')

export function fillClientPackage() {
  const { exports, peerDependencies } = JSON.parse(read('packages/client/package.json'))
  const entries = Object.values(exports)
    .filter((path) => path.endsWith('.js'))
    .map((path) => posix.normalize(path))
  const types = entries.map((path) => path.replace(/js$/, 'd.ts'))
  const files = [...modules(entries), ...pruneDeclarations(types, read)]
  const allowed = Object.keys(peerDependencies)
  for (const file of files) checkImports(file, allowed)
  rmSync(join(FOLDER, 'dist'), { recursive: true, force: true })
  for (const { path, text } of files) {
    mkdirSync(dirname(join(FOLDER, path)), { recursive: true })
    writeFileSync(join(FOLDER, path), text)
  }
  copyFileSync(join(ROOT, 'LICENSE'), join(FOLDER, 'LICENSE'))
}

/** The entry points, and every module that one of them imports, also indirectly. */
function modules(entries) {
  const paths = new Set(entries)
  for (const path of paths) {
    const { staticImports, staticExports } = parseSync(path, read(path)).module
    const specifiers = [
      ...staticImports.map(({ moduleRequest }) => moduleRequest.value),
      ...staticExports.flatMap(({ entries: all }) => all.map((one) => one.moduleRequest?.value)),
    ]
    for (const specifier of specifiers.filter((one) => one?.startsWith('.'))) {
      paths.add(posix.join(posix.dirname(path), specifier))
    }
  }
  return Array.from(paths, (path) => ({ path, text: read(path) }))
}

function checkImports({ path, text }, allowed) {
  for (const [, name] of text.matchAll(/\b(?:from|import)\s*\(?\s*['"]([^'".][^'"]*)['"]/g)) {
    if (name.startsWith('node:') || allowed.includes(name)) continue
    throw new Error(`holdfast-client may not import ${name}, as ${path} does`)
  }
}

function read(path) {
  return readFileSync(join(ROOT, path), 'utf8')
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (!(await prepare([PACKAGE]))) process.exit(1)
  fillClientPackage()
}
