/**
 * What the tests need from the machine beyond Node: on Linux, strace to see the disk's syncs, and
 * bubblewrap to isolate agents; Chromium, for the inspector and the client in a real browser; and
 * PostgreSQL's server programs, unless DATABASE_URL names a database. They start servers of their
 * own. HAProxy and PgBouncer are tried with it where they can be had: without them their tests are
 * skipped.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, writeFileSync } from 'node:fs'

const NEEDED = [
  { name: 'strace', isThere: () => hasProgram('strace') },
  { name: 'bubblewrap', isThere: () => hasProgram('bwrap') },
  // Its tests start this very file. Its `--version` would be slow.
  { name: 'chromium', isThere: () => existsSync('/usr/bin/chromium') },
  // To make certificates that a browser does not trust. It knows no `--version`.
  { name: 'openssl', isThere: () => existsSync('/usr/bin/openssl') },
  { name: 'postgresql', isThere: hasPostgres },
  { name: 'haproxy', isThere: () => existsSync('/usr/sbin/haproxy'), isOptional: true },
  { name: 'pgbouncer', isThere: () => existsSync('/usr/sbin/pgbouncer'), isOptional: true },
]

/** By which Selenium drives Chromium: for `npm run e2e:browsers` alone. */
const DRIVER = { name: 'chromium-driver', isThere: () => existsSync('/usr/bin/chromedriver') }

/** True if all of it is there, or could be installed. */
export function prepareMachine({ withDriver = false } = {}) {
  if (process.platform !== 'linux') return true
  if (process.env.CI !== undefined) allowNamespaces()
  return [...NEEDED, ...(withDriver ? [DRIVER] : [])].map(provide).every(Boolean)
}

/**
 * Ubuntu, on which CI runs its containers, allows user namespaces only to some programs of users
 * without privileges. On a machine of a person that is not for the tests to change.
 */
function allowNamespaces() {
  try {
    writeFileSync('/proc/sys/kernel/apparmor_restrict_unprivileged_userns', '0')
  } catch {
    // Another system has no such restriction, or the tests of bubblewrap tell.
  }
}

function provide({ name, isThere, isOptional = false }) {
  if (isThere()) return true
  console.log(`installing ${name} …`)
  if (apt(name) && isThere()) return true
  const instead = isOptional ? 'its tests are skipped' : 'install it with your package manager'
  console.log(`${name} is missing and could not be installed: ${instead}`)
  return isOptional
}

function hasProgram(name) {
  return spawnSync(name, ['--version'], { stdio: 'ignore' }).status === 0
}

/** Debian keeps the server's programs out of the path. */
function hasPostgres() {
  if (process.env.DATABASE_URL !== undefined || hasProgram('initdb')) return true
  const folder = '/usr/lib/postgresql'
  const versions = existsSync(folder) ? readdirSync(folder) : []
  return versions.some((version) => existsSync(`${folder}/${version}/bin/initdb`))
}

function apt(name) {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  const run = (...args) => spawnSync('apt-get', args, { stdio: 'ignore', env }).status === 0
  const install = () => run('install', '-y', '--no-install-recommends', name)
  return install() || (run('update') && install())
}
