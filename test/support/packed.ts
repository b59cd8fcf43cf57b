/** Packages as they would be published, and projects of users that have them installed. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { runGuarded } from './guarded.ts'
import { ROOT } from './repository.ts'

export type PackedFile = { readonly path: string; readonly size: number }

export type Packed = {
  readonly tarball: string
  /** Of the tarball, in bytes. */
  readonly size: number
  readonly unpackedSize: number
  readonly files: readonly PackedFile[]
}

/** Packs what was built: `prepack` would build it again, under the feet of other tests. */
export function pack(folder: string, destination: string): Packed {
  const args = ['pack', '--ignore-scripts', '--json', '--pack-destination', destination]
  const output = execFileSync('npm', args, {
    cwd: folder,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  const [{ filename, ...packed }] = JSON.parse(output) as [Packed & { filename: string }]
  return { ...packed, tarball: join(destination, filename) }
}

/** Lets a project import packages that are installed in the repository. */
export function linkPackages(project: string, names: readonly string[]): void {
  for (const name of names) {
    const path = join(project, 'node_modules', name)
    mkdirSync(dirname(path), { recursive: true })
    symlinkSync(`${ROOT}node_modules/${name}`, path)
  }
}

/** What the compiler reports about the text as a module of the project. */
export async function typeErrors(
  project: string,
  text: string,
  flags: readonly string[],
): Promise<string> {
  writeFileSync(join(project, 'main.ts'), text)
  const all = ['--noEmit', '--strict', '--exactOptionalPropertyTypes', '--target', 'es2022']
  const compiler = [`${ROOT}node_modules/typescript/bin/tsc`, ...all, ...flags, 'main.ts']
  const run = runGuarded(process.execPath, compiler, { cwd: project, limitMs: 60_000 })
  return run.then(
    ({ stdout }) => stdout,
    ({ stdout }: { stdout: string }) => stdout,
  )
}

/** The ways in which TypeScript finds a package's types, as flags. */
export const RESOLUTIONS = [
  ['--module', 'node16', '--moduleResolution', 'node16'],
  ['--module', 'nodenext', '--moduleResolution', 'nodenext'],
  ['--module', 'esnext', '--moduleResolution', 'bundler'],
] as const
