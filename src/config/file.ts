/** Finding and reading the configuration's file: JSON, or a module that exports it. */
import { access, readFile } from 'node:fs/promises'
import { dirname, extname, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { HoldfastError } from '../core/index.ts'

/** In this order; the first that is there is read. */
export const CONFIG_NAMES = ['holdfast.config.json', 'holdfast.config.mjs', 'holdfast.config.ts']

export type ConfigFile = {
  readonly file: string
  /** Its folder. */
  readonly base: string
  readonly content: unknown
}

/** The file that is named, or the one in `folder`, or null if there is none. */
export async function readConfigFile(
  folder: string,
  named: string | null,
): Promise<ConfigFile | null> {
  const file = named === null ? await findFile(folder) : resolve(folder, named)
  if (file === null) return null
  return { file, base: dirname(file), content: await contentOf(file) }
}

async function findFile(folder: string): Promise<string | null> {
  for (const name of CONFIG_NAMES) {
    const file = resolve(folder, name)
    // One that cannot be read fails when it is named by --config.
    const isThere = await access(file).then(
      () => true,
      () => false,
    )
    if (isThere) return file
  }
  return null
}

async function contentOf(file: string): Promise<unknown> {
  switch (extname(file)) {
    case '.json':
      return parseFile(file)
    case '.ts':
    case '.mts':
      assertTypeScript(file)
      return importDefault(file)
    case '.js':
    case '.mjs':
      return importDefault(file)
    default:
      throw unusable(file, 'must end in .json, .mjs, .js or .ts')
  }
}

async function parseFile(file: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as unknown
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    throw unusable(file, code === undefined ? `is no JSON: ${message}` : `cannot be read: ${code}`)
  }
}

async function importDefault(file: string): Promise<unknown> {
  const module = await import(pathToFileURL(file).href).catch((error: unknown) => {
    throw unusable(file, `cannot be loaded: ${(error as Error).message}`)
  })
  const { default: content } = module as { default?: unknown }
  if (content === undefined) throw unusable(file, 'has no default export')
  return content
}

/** Node strips the types itself, from some version on. */
function assertTypeScript(file: string): void {
  const { typescript } = process.features as { typescript?: unknown }
  if (typescript === 'strip' || typescript === 'transform') return
  throw unusable(
    file,
    `needs Node 22.18 or newer, which reads TypeScript; this is Node ${process.version}: ` +
      'name it .mjs, without types, or .json',
  )
}

function unusable(file: string, problem: string): HoldfastError {
  return new HoldfastError('invalid_field', `${file} ${problem}`, { field: file })
}
