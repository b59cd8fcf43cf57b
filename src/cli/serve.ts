/** `holdfast serve`: opens the store, listens, and goes in order when it is told to. */
import { createServer } from 'node:net'
import { openAgents, readConfig, type Config } from '../config/index.ts'
import { builtinAgents, LIMITS, openHoldfast, type Holdfast, type Limits } from '../index.ts'
import { openTokenFile, startServer, type HoldfastServer, type TokenFile } from '../server/index.ts'
import { tryLine } from '../server/inspector-page.ts'
import { ACCESS_FLAGS, ACCESS_HELP, readAccess, type AccessSettings } from './access-flags.ts'
import { AGENT_FLAGS, AGENT_HELP, checkAgents } from './agent-flags.ts'
import {
  BROWSER_FLAGS,
  BROWSER_HELP,
  browserAgents,
  listenCdp,
  readBrowsers,
  type BrowserSettings,
} from './browser-flags.ts'
import { CLUSTER_FLAGS, CLUSTER_HELP, readCluster, type ClusterSettings } from './cluster-flags.ts'
import { listFlag, numberFlag, textFlag, UsageError, type Command, type Values } from './command.ts'
import { LOG_FLAGS, LOG_HELP, readLog, type Log } from './log.ts'
import { agentsFolder, STORE_FLAGS, storeName } from './store-flags.ts'

const DAY_MS = 86_400_000

type Settings = AccessSettings &
  BrowserSettings & {
    readonly port: number
    readonly store: string
    readonly clustering: ClusterSettings
    readonly drainMs: number
    /** Those that a flag sets; the configuration may set others. */
    readonly limits: Partial<Limits>
    /** Agents by name, the default one first. */
    readonly agents: readonly string[]
    readonly configFile: string | null
    readonly log: Log
  }

export const serve: Command = {
  name: 'serve',
  usage: 'serve [flags]',
  summary: 'Runs the server until it gets SIGINT or SIGTERM.',
  flags: {
    ...STORE_FLAGS,
    ...ACCESS_FLAGS,
    ...AGENT_FLAGS,
    ...BROWSER_FLAGS,
    ...CLUSTER_FLAGS,
    port: { type: 'string' },
    'wait-ms': { type: 'string' },
    queue: { type: 'string' },
    'turn-ms': { type: 'string' },
    'drain-ms': { type: 'string' },
    ...LOG_FLAGS,
  },
  help: [
    ['--port N', 'the port to listen on; 0: any that is free (7420)'],
    ...AGENT_HELP,
    ...ACCESS_HELP,
    ...BROWSER_HELP,
    ['--data DIR', 'the folder of the store, made if need be (./.holdfast)'],
    ['--store NAME', 'memory:, sqlite:FILE or postgres://…, instead of --data'],
    ...CLUSTER_HELP,
    ['--wait-ms N', 'how long a turn waits for its session before it is refused (30000)'],
    ['--queue N', 'how many turns of one session may wait (256)'],
    ['--turn-ms N', 'how long one turn may run (3600000)'],
    ['--drain-ms N', 'how long running turns may go on at shutdown (10000)'],
    ...LOG_HELP,
  ],
  run: (values, words) => runServer(readSettings(values, words)),
}

function readSettings(values: Values, words: readonly string[]): Settings {
  if (words[0] !== undefined) throw new UsageError(`serve takes no ${words[0]}: flags only`)
  const number = (name: string, fallback: number, min: number, max: number): number =>
    numberFlag(values, name, { fallback, min, max })
  const limit = (flag: string, name: keyof Limits, min: number, max: number): Partial<Limits> =>
    values[flag] === undefined ? {} : { [name]: number(flag, LIMITS[name], min, max) }
  return {
    ...readAccess(values),
    ...readBrowsers(values),
    port: number('port', 7420, 0, 65_535),
    store: storeName(values),
    clustering: readCluster(values),
    drainMs: number('drain-ms', 10_000, 0, DAY_MS),
    limits: {
      ...limit('wait-ms', 'waitMs', 0, LIMITS.waitMsMax),
      ...limit('queue', 'queuedTurnsMax', 1, 1_000_000),
      ...limit('turn-ms', 'turnMs', 1, 365 * DAY_MS),
    },
    agents: listFlag(values, 'agent'),
    configFile: textFlag(values, 'config'),
    log: readLog(values),
  }
}

async function runServer(settings: Settings): Promise<number> {
  const { log } = settings
  onCrash(log)
  try {
    return await runUntilStopped(settings)
  } catch (error) {
    if (error instanceof UsageError) throw error
    log.fail('start_failed', (error as Error).message)
    return 1
  } finally {
    log.close()
  }
}

/** What nobody caught ends the process, and is told as a line like all others. */
function onCrash(log: Log): void {
  process.on('uncaughtException', (error: unknown) => {
    const { stack } = error as Partial<Error>
    log.diagnose('crashed', stack ?? String(error))
    log.close()
    process.exit(1)
  })
}

async function runUntilStopped(settings: Settings): Promise<number> {
  const { log, tokensFile } = settings
  const config = await readConfig(process.cwd(), settings.configFile)
  checkAgents(settings.agents, config)
  // Before the store is opened: that alone goes on with turns that wait in it.
  await checkPort(settings)
  const tokens = tokensFile === null ? undefined : await openTokenFile(tokensFile, log.onDiagnostic)
  const holdfast = await open(settings, config)
  return new Promise<number>((exit, fail) => {
    listen(settings, { holdfast, tokens }, exit).catch(async (error: unknown) => {
      await holdfast.close()
      fail(new Error(listenProblem(error, settings)))
    })
  }).finally(() => tokens?.close())
}

async function open(settings: Settings, config: Config): Promise<Holdfast> {
  const { store, limits, agents, clustering } = settings
  const folder = agentsFolder(store)
  const configured = await openAgents(config, { folder, names: agents })
  const [first] = [...agents, ...[config.defaultAgent ?? []].flat(), ...Object.keys(configured)]
  return openHoldfast({
    store,
    ...clustering.node,
    onDiagnostic: settings.log.onDiagnostic,
    limits: { ...config.limits, ...limits, ...clustering.limits },
    // The operator's own first, also where one has the name of a built-in.
    agents: { ...configured, ...builtinAgents, ...configured, ...browserAgents(settings) },
    ...(first === undefined ? {} : { defaultAgent: first }),
  })
}

/** Throws if the port is taken, or the host is not this machine's. */
async function checkPort({ host, port }: Settings): Promise<void> {
  const probe = createServer()
  await new Promise<void>((resolve, reject) => {
    probe.once('error', (error) => reject(new Error(listenProblem(error, { host, port }))))
    probe.listen({ host, port }, () => probe.close(() => resolve()))
  })
}

function listenProblem(error: unknown, { host, port }: Pick<Settings, 'host' | 'port'>): string {
  const { code, message } = error as NodeJS.ErrnoException
  switch (code) {
    case 'EADDRINUSE':
      return `port ${port} is in use on ${host}: stop what uses it, or choose another with --port`
    case 'EACCES':
      return `port ${port} may not be used by this user: choose one above 1023 with --port`
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
      return `${host} is not an address of this machine`
    default:
      return message
  }
}

async function listen(
  settings: Settings,
  { holdfast, tokens }: { readonly holdfast: Holdfast; readonly tokens?: TokenFile },
  exit: (code: number) => void,
): Promise<void> {
  const { host, port, allowHosts, allowOrigins, trustProxy, rates, drainMs, log } = settings
  const access = { tokens, allowHosts, allowOrigins, trustProxy, rates }
  const server = await startServer({
    ...access,
    browsers: settings.browsers,
    cdpLimits: { browserSessionsMax: settings.browserSessionsMax },
    browserLimits: {
      runningMax: settings.browsersMax,
      memoryBytesMax: settings.browserMemoryMb * 1e6,
    },
    ...settings.clustering.server,
    ...(settings.recordings === null ? {} : { recordings: settings.recordings }),
    holdfast,
    host,
    port,
    onStoreFailed: () => void stop(server, 0, log).finally(() => exit(1)),
  })
  greet(settings, server)
  await listenCdp(server, settings, log)
  onSignals(
    (signal) => {
      log.greet(`${signal}: draining for up to ${drainMs} ms; once more to stop at once`)
      void stop(server, drainMs, log).then(exit)
    },
    () => {
      log.close()
      process.exit(1)
    },
  )
}

/** After the time to drain, for all else that has to be ended. */
const STOP_MS = 30_000

/** Resolves with the exit code. */
async function stop(server: HoldfastServer, drainMs: number, log: Log): Promise<number> {
  // A store or a runner that never answers must not keep the process.
  const late = setTimeout(() => {
    log.diagnose('stop_failed', `the server has not stopped within ${drainMs + STOP_MS} ms`)
    log.close()
    process.exit(1)
  }, drainMs + STOP_MS)
  try {
    await server.close({ drainMs, closeHoldfast: true })
    clearTimeout(late)
    return 0
  } catch (error) {
    log.diagnose('stop_failed', `stopped, but not cleanly: ${(error as Error).message}`)
    return 1
  }
}

function onSignals(first: (signal: string) => void, second: () => void): void {
  let isFirst = true
  const onSignal = (signal: string): void => {
    if (!isFirst) return second()
    isFirst = false
    first(signal)
  }
  process.on('SIGINT', onSignal)
  process.on('SIGTERM', onSignal)
}

function greet({ log, tokensFile }: Settings, { url, holdfast }: HoldfastServer): void {
  const { about, agents } = holdfast.authority
  log.greet(`listening on ${url}`)
  log.greet(`store ${about['store']}; agents ${agents.join(', ')}`)
  log.greet(`try: ${tryLine(url, tokensFile !== null)}`)
}
