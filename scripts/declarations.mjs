/**
 * Declaration files (`.d.ts`) without what their entry points do not need: every file keeps its place,
 * and of its statements those that an export of an entry point refers to.
 *
 * References are found by name, whatever the scope. So a declaration may be kept that is not needed,
 * but none is dropped that is.
 */
import { posix } from 'node:path'
import { parseSync } from 'vite'

/** `entries` are paths of declaration files; `read` returns the text of one. */
export function pruneDeclarations(entries, read) {
  const files = new Map()
  const open = (path) => {
    if (!files.has(path)) files.set(path, new DeclarationFile(path, read(path)))
    return files.get(path)
  }
  const names = entries.flatMap((path) =>
    open(path)
      .exported()
      .map((name) => ({ path, name })),
  )
  const seen = new Set()
  for (const { path, name } of names) {
    const id = `${path} ${name}`
    if (!seen.has(id)) names.push(...open(path).keep(name))
    seen.add(id)
  }
  return Array.from(files.values(), (file) => ({ path: file.path, text: file.text() }))
}

class DeclarationFile {
  constructor(path, source) {
    const { program, errors } = parseSync(path, source)
    if (errors.length > 0) throw new Error(`${path}: ${errors[0].message}`)
    if (program.body.some(isUnknown)) throw new Error(`${path}: only exports by name are known`)
    this.path = path
    this.directives = source.match(/^\/\/\/ <reference .*$/gm) ?? []
    let end = 0
    this.statements = program.body.map((node) => {
      const comment = source.slice(end, node.start).replace(/^\/\/\/ .*$/gm, '')
      end = node.end
      return node.specifiers?.length > 0
        ? namesStatement(node, source)
        : declaration(node, comment + source.slice(node.start, node.end))
    })
  }

  exported() {
    return this.statements.filter(({ isExport }) => isExport).flatMap(({ names }) => names)
  }

  /** Keeps the statements that declare `name`; returns what they refer to, as `{ path, name }`. */
  keep(name) {
    return this.#naming(name).flatMap((statement) => {
      statement.kept.add(name)
      return statement
        .references(name)
        .map((one) => ({ path: this.#resolve(one.from), name: one.name }))
        .filter((one) => one.path !== null)
        .filter((one) => one.path !== this.path || this.#naming(one.name).length > 0)
    })
  }

  text() {
    const kept = this.statements.filter((one) => one.names.length === 0 || one.kept.size > 0)
    return [...this.directives, ...kept.map((one) => one.print().trim()), ''].join('\n')
  }

  #naming(name) {
    return this.statements.filter(({ names }) => names.includes(name))
  }

  /** The file that a specifier names; this one without a specifier, null for a package. */
  #resolve(specifier) {
    if (specifier === null) return this.path
    if (!specifier.startsWith('.')) return null
    return posix.join(posix.dirname(this.path), specifier).replace(/\.[jt]s$/, '.d.ts')
  }
}

function isUnknown({ type, specifiers = [] }) {
  return (
    /^Export(All|Default)Declaration$/.test(type) ||
    specifiers.some((one) => !/^(Import|Export)Specifier$/.test(one.type))
  )
}

/** `import { A } from 'x'`, `export { A } from 'x'` or `export { A }`: loses names not kept. */
function namesStatement(node, source) {
  const isExport = node.type.startsWith('Export')
  const from = node.source?.value ?? null
  const parts = node.specifiers.map((one) => ({
    name: (one.exported ?? one.local).name,
    original: (one.imported ?? one.local).name,
    text: source.slice(one.start, one.end),
  }))
  const kept = new Set()
  return {
    isExport,
    kept,
    names: parts.map(({ name }) => name),
    references: (name) => [{ from, name: parts.find((one) => one.name === name).original }],
    print() {
      const texts = parts.filter(({ name }) => kept.has(name)).map(({ text }) => text)
      const isType = (node.exportKind ?? node.importKind) === 'type'
      const start = `${isExport ? 'export' : 'import'}${isType ? ' type' : ''}`
      return `${start} { ${texts.join(', ')} }${from === null ? '' : ` from '${from}'`};`
    },
  }
}

function declaration(node, text) {
  const declared = node.declaration ?? node
  const names = (declared.declarations ?? [declared]).map(({ id }) => id?.name)
  const within = [...nodesIn(node)]
  const imported = within
    .filter(({ type }) => type === 'TSImportType')
    .map(({ source, qualifier }) => ({ from: source.value, name: qualifier.name }))
  const local = within
    .filter(({ type }) => type === 'Identifier')
    .map(({ name }) => ({ from: null, name }))
  return {
    isExport: node.type.startsWith('Export'),
    kept: new Set(),
    names: names.filter((name) => name !== undefined),
    references: () => [...imported, ...local],
    print: () => text,
  }
}

function* nodesIn(value) {
  if (typeof value !== 'object' || value === null) return
  if (typeof value.type === 'string') yield value
  for (const child of Object.values(value)) yield* nodesIn(child)
}
