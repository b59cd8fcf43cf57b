/** Source files and their syntax trees, for the house rules and for the figures of `npm run house`. */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { parseSync } from 'vite'

export type File = { readonly path: string; readonly text: string }

export type Node = { readonly type: string; readonly [field: string]: unknown }

/** Every file of a folder below `root` whose name ends like that. Throws if there is none. */
export function filesBelow(root: string, folder: string, ending: string): File[] {
  const paths = readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(ending))
    .map((entry) => join(entry.parentPath, entry.name))
  if (paths.length === 0) throw new Error(`no ${ending} files in ${folder}: nothing is checked`)
  const relative = (path: string): string => path.slice(join(root, '/').length)
  return paths
    .map((path) => ({
      path: relative(path).replaceAll('\\', '/'),
      text: readFileSync(path, 'utf8'),
    }))
    .sort((one, other) => (one.path < other.path ? -1 : 1))
}

export function isNoTest({ path }: File): boolean {
  return !path.endsWith('.test.ts')
}

export function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value
}

export function syntax({ path, text }: File): unknown {
  const { program, errors } = parseSync(path, text)
  if (errors[0] !== undefined) throw new Error(`${path}: ${errors[0].message}`)
  return program
}

/** Every node of a syntax tree, except the names of properties: they name nothing in scope. */
export function* nodes(value: unknown): Generator<Node> {
  if (Array.isArray(value)) {
    for (const item of value) yield* nodes(item)
  } else if (isNode(value)) {
    yield value
    for (const [field, child] of Object.entries(value)) {
      const isName = field === 'key' || (field === 'property' && value.type === 'MemberExpression')
      if (!isName || value['computed'] === true) yield* nodes(child)
    }
  }
}

export function nameOf(node: unknown): string {
  return isNode(node) && node.type === 'Identifier' ? String(node['name']) : ''
}

/** What a file imports or re-exports, as it is written, `import()` and type imports included. */
export function imports(file: File): string[] {
  return importNodes(file).map(specifierOf)
}

/** Those that are left when the compiler has erased the types. */
export function importsAtRunTime(file: File): string[] {
  return importNodes(file)
    .filter(({ type, importKind, exportKind }) => {
      return type !== 'TSImportType' && importKind !== 'type' && exportKind !== 'type'
    })
    .map(specifierOf)
}

function importNodes(file: File): Node[] {
  return [...nodes(syntax(file))]
    .filter(({ type }) =>
      /^(Import|Export\w+)Declaration$|^(ImportExpression|TSImportType)$/.test(type),
    )
    .filter(({ source }) => isNode(source))
}

function specifierOf({ source }: Node): string {
  return isNode(source) ? String(source['value']) : ''
}

/** `src/stores/sqlite/log.ts` belongs to `stores`; what lies in src itself is the library's door. */
export function layerOf(path: string): string {
  return /^src\/([^/]+)\//.exec(path)?.[1] ?? 'library'
}
