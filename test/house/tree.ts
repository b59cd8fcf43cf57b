/** The working tree, or another commit's files in a folder that is removed again. */
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, realpathSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ROOT } from '../support/repository.ts'

/** Null is the working tree, which is built already. Packages are those of the working tree. */
export async function withTree<Value>(
  commit: string | null,
  { build }: { readonly build: boolean },
  use: (root: string) => Promise<Value>,
): Promise<Value> {
  if (commit === null) return use(ROOT)
  const root = realpathSync(mkdtempSync(join(tmpdir(), 'holdfast-house-')))
  try {
    const files = join(root, 'files.tar')
    execFileSync('git', ['archive', '--output', files, commit], { cwd: ROOT })
    execFileSync('tar', ['-xf', files], { cwd: root })
    rmSync(files)
    symlinkSync(join(ROOT, 'node_modules'), join(root, 'node_modules'))
    if (build) buildIn(root)
    return await use(root)
  } finally {
    rmSync(root, { recursive: true })
  }
}

function buildIn(root: string): void {
  const run = (args: readonly string[]): void => {
    execFileSync(process.execPath, args, { cwd: root, stdio: ['ignore', 'ignore', 'inherit'] })
  }
  run(['node_modules/typescript/bin/tsc', '-p', 'tsconfig.build.json'])
  run(['scripts/static.mjs'])
}

/** The commit's short name. Throws if there is no such commit. */
export function commitName(commit: string): string {
  const args = ['rev-parse', '--short', '--verify', '--quiet', '--end-of-options']
  const { stdout, status } = spawnSync('git', [...args, `${commit}^{commit}`], {
    cwd: ROOT,
    encoding: 'utf8',
  })
  if (status !== 0) throw new Error(`there is no commit ${commit}`)
  return stdout.trim()
}
