/** What the tests need from the machine beyond Node: on Linux, strace to see the disk's syncs. */
import { spawnSync } from 'node:child_process'

/** True if all of it is there, or could be installed. */
export function prepareMachine() {
  if (process.platform !== 'linux' || hasProgram('strace')) return true
  console.log('installing strace …')
  if (apt('strace')) return true
  console.log('strace is missing and could not be installed: install it with your package manager')
  return false
}

function hasProgram(name) {
  return spawnSync(name, ['--version'], { stdio: 'ignore' }).status === 0
}

function apt(name) {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  const run = (...args) => spawnSync('apt-get', args, { stdio: 'ignore', env }).status === 0
  const install = () => run('install', '-y', '--no-install-recommends', name)
  return install() || (run('update') && install())
}
