/** The peers that only the bench needs: a package of its own, installed on first use. */
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const FOLDER = fileURLToPath(new URL('../../bench/peers/', import.meta.url))

/** True if they are there now. */
export function installPeers(): boolean {
  if (existsSync(join(FOLDER, 'node_modules', '.package-lock.json'))) return true
  console.log('installing the peers (npm ci in bench/peers) …')
  const flags = ['--no-audit', '--no-fund', '--loglevel=error']
  const shell = process.platform === 'win32'
  return spawnSync('npm', ['ci', ...flags], { cwd: FOLDER, stdio: 'inherit', shell }).status === 0
}

/** Some peers need a newer Node than the one that runs this. */
export const NEWER_NODE = join(FOLDER, 'node_modules', 'node', 'bin', 'node')

export const peerFile = (name: string): string => join(FOLDER, 'node_modules', name)

export function loadPeer(name: string): unknown {
  return createRequire(join(FOLDER, 'package.json'))(name)
}
