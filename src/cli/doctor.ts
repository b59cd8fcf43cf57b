/** `holdfast doctor`: whether this machine can run a server as configured, and what to mend. */
import { constants, existsSync, statSync } from 'node:fs'
import { access } from 'node:fs/promises'
import { createServer } from 'node:net'
import { dirname, resolve } from 'node:path'
import { openAgents, readConfig } from '../config/index.ts'
import { openSqlite, checkSqliteVersion } from '../stores/sqlite/driver.ts'
import { openPostgresStore } from '../stores/postgres/index.ts'
import { systemClock } from '../platform/clock.ts'
import { VERSION } from '../wire/version.ts'
import { defineCommand, number, text, toggle, type FlagValues } from './command.ts'
import { isoTime, printable, printJson } from './output.ts'
import { Remote, REMOTE_FLAGS } from './remote.ts'
import { agentsFolder, DEFAULT_FOLDER, isPostgres, storeName, storePaths } from './stores.ts'

type Found = {
  readonly check: string
  readonly state: 'ok' | 'warn' | 'bad'
  readonly message: string
  /** What to do about it. */
  readonly mend?: string
}

const NODE_MIN = [20, 19] as const
const DESCRIPTORS_MIN = 1_024
/** A clock may be so far from that of the server. */
const CLOCK_MS = 5_000

const FLAGS = {
  data: text('DIR', 'the folder of the store, as for serve').showing(DEFAULT_FOLDER),
  store: text('STORE', 'instead of --data: memory:, sqlite:FILE or postgres://…'),
  port: number('N', 'the port that serve would listen on').between(0, 65_535).or(7_420),
  host: text('NAME', 'the address that serve would listen on').or('127.0.0.1'),
  config: text('FILE', 'the configuration, instead of the one that is here'),
  browser: text('FILE', 'the browser of the CDP door').showing('/usr/bin/chromium'),
  json: toggle('one JSON object for each check, for programs'),
  ...REMOTE_FLAGS,
}
type Values = FlagValues<typeof FLAGS>

export const doctor = defineCommand({
  name: 'doctor',
  summary:
    'Checks what a server needs here: versions, configuration, agents, store, permissions of ' +
    'files, port, browser and clock; with --url also a running server. Says how to mend what it ' +
    'finds, and ends with 1 if something is bad. Changes nothing.',
  flags: FLAGS,
  async run(values) {
    let isBad = false
    for (const [name, check] of Object.entries(CHECKS)) {
      const found = await checked(name, check, values)
      for (const one of found) {
        isBad ||= one.state === 'bad'
        if (values.json) printJson([one])
        else print(one)
      }
    }
    return isBad ? 1 : 0
  },
})

type Check = (values: Values) => Promise<readonly Omit<Found, 'check'>[]>

async function checked(name: string, check: Check, values: Values): Promise<readonly Found[]> {
  try {
    return (await check(values)).map((found) => ({ check: name, ...found }))
  } catch (error) {
    return [{ check: name, state: 'bad', message: (error as Error).message }]
  }
}

function print({ check, state, message, mend }: Found): void {
  console.log(`${state.padEnd(5)} ${check.padEnd(14)} ${printable(message)}`)
  if (mend !== undefined) console.log(`${' '.repeat(21)}→ ${printable(mend)}`)
}

const ok = (message: string) => [{ state: 'ok', message }] as const
const warn = (message: string, mend: string) => [{ state: 'warn', message, mend }] as const
const bad = (message: string, mend: string) => [{ state: 'bad', message, mend }] as const

const CHECKS: Readonly<Record<string, Check>> = {
  version: async () => {
    const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
    const isEnough = major > NODE_MIN[0] || (major === NODE_MIN[0] && minor >= NODE_MIN[1])
    const what = `holdfast ${VERSION}, Node ${process.versions.node}, ${process.platform}`
    return isEnough ? ok(what) : bad(what, `install Node ${NODE_MIN.join('.')} or newer`)
  },
  configuration: async ({ config: named }) => {
    const { file } = await readConfig(process.cwd(), named)
    return ok(file === null ? 'none here, and none is needed' : `${file} is good`)
  },
  agents: async ({ config: named }) => {
    const config = await readConfig(process.cwd(), named)
    const found = await openAgents(config, { folder: agentsFolder('memory:'), names: [] })
    const names = Object.keys(found)
    return ok(
      names.length === 0 ? 'none configured' : `${names.join(', ')}: their programs are here`,
    )
  },
  store: checkStore,
  permissions: async (values) => {
    const open = storePaths(values).filter((path) => {
      return existsSync(path) && (statSync(path).mode & 0o077) !== 0
    })
    if (process.platform === 'win32' || open.length === 0)
      return ok('only this user reads the store')
    return open.flatMap((path) => warn(`other users can read ${path}`, `chmod go-rwx ${path}`))
  },
  descriptors: async () => {
    const report = process.report?.getReport() as
      | { userLimits?: Record<string, { soft?: string | number }> }
      | undefined
    const soft = Number(report?.userLimits?.['open_files']?.soft ?? Number.NaN)
    if (!Number.isFinite(soft)) return ok('no limit of open files is known')
    const what = `${soft} open files are allowed`
    if (soft >= DESCRIPTORS_MIN) return ok(what)
    return warn(what, 'raise the limit: ulimit -n 16384, or LimitNOFILE of the service')
  },
  port: async ({ host, port }) => {
    const server = createServer()
    return new Promise((resolved) => {
      server.once('error', (error: NodeJS.ErrnoException) => {
        const mend =
          error.code === 'EADDRINUSE'
            ? 'a server runs there already, or pass another --port to serve'
            : 'pass another --host or --port to serve'
        resolved(warn(`${host}:${port} cannot be listened on: ${error.code}`, mend))
      })
      server.listen(port, host, () => server.close(() => resolved(ok(`${host}:${port} is free`))))
    })
  },
  browser: async ({ browser }) => {
    const file = browser ?? '/usr/bin/chromium'
    try {
      await access(file, constants.X_OK)
      return ok(`${file} can be run`)
    } catch {
      // It is told as what it means.
      const mend = 'install Chromium, or name another with browsers.NAME.executable'
      return warn(`${file} cannot be run: only the CDP door needs it`, mend)
    }
  },
  clock: async () => {
    const isWrong = systemClock.now() < Date.parse('2025-01-01')
    if (!isWrong) return ok(isoTime(systemClock.now()))
    return bad(`the clock says ${isoTime(systemClock.now())}`, 'set it: timedatectl set-ntp true')
  },
  server: checkServer,
}

async function checkStore(values: Values): ReturnType<Check> {
  const name = storeName(values)
  if (name === 'memory:') return warn('memory: forgets everything', 'use --data for a file')
  if (isPostgres(name)) {
    const store = await openPostgresStore({ url: name, readOnly: true })
    await store.close()
    return ok('the database answers, and its schema is that of this version')
  }
  const file = resolve(name.slice('sqlite:'.length))
  const database = openSqlite(':memory:')
  try {
    checkSqliteVersion(database)
  } finally {
    database.close()
  }
  let folder = dirname(file)
  while (!existsSync(folder)) folder = dirname(folder)
  try {
    await access(folder, constants.W_OK)
    if (existsSync(file)) await access(file, constants.R_OK | constants.W_OK)
  } catch {
    // It is told as what it means.
    return bad(`${file} cannot be written`, `let this user write to ${folder}, or pass --data DIR`)
  }
  return ok(existsSync(file) ? `${file} can be written` : `${file} will be made`)
}

/** Only if one is named, or runs where one runs by default. */
async function checkServer(values: Values): ReturnType<Check> {
  const remote = new Remote(values)
  const isNamed = values.url !== null || (process.env['HOLDFAST_URL'] ?? '') !== ''
  try {
    const response = await remote.call('/v1/me')
    const { version } = (await response.json()) as { readonly version: string }
    const skew = Date.parse(response.headers.get('date') ?? '') - systemClock.now()
    if (Math.abs(skew) > CLOCK_MS) {
      const seconds = Math.round(skew / 1_000)
      return warn(`the clock of ${remote.url} is ${seconds} s off`, 'keep both by NTP')
    }
    if (version === VERSION) return ok(`${remote.url} runs ${version}`)
    return warn(`${remote.url} runs ${version}, this is ${VERSION}`, 'use the same version')
  } catch (error) {
    if (!isNamed) return ok('none is asked: name one with --url')
    const mend = 'start it with holdfast serve, or pass another --url or --token-file'
    return bad(`${remote.url}: ${(error as Error).message}`, mend)
  }
}
