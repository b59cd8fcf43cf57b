/** `holdfast serve`: opens the store, listens, and drains on a signal. */
import { createServer } from 'node:net'
import { openAgents, readConfig, type Config } from '../config/index.ts'
import { builtinAgents, LIMITS, openHoldfast, type Agent, type Holdfast } from '../index.ts'
import { openTokenFile, startServer, type HoldfastServer, type TokenFile } from '../server/index.ts'
import { tryLine } from '../server/inspector-page.ts'
import { ACCESS_FLAGS, readAccess } from './access-flags.ts'
import { AGENT_FLAGS, checkAgents } from './agent-flags.ts'
import { BROWSER_FLAGS, listenCdp, readBrowsers } from './browser-flags.ts'
import { CLUSTER_FLAGS, readCluster } from './cluster-flags.ts'
import { defineCommand, NO_OPERANDS } from './command.ts'
import { number, orElse, showDefault, text, UsageError, type FlagValues } from './flags.ts'
import { LOG_FLAGS, readServeLog, type ServeLog } from './log-flags.ts'
import { agentsFolder, DEFAULT_FOLDER, storeName } from './store-flags.ts'

const DAY_MS = 86_400_000

const SERVE_FLAGS = {
  port: orElse(
    number('N', 'the port to listen on; 0: any free port', { min: 0, max: 65_535 }),
    7420,
  ),
  ...AGENT_FLAGS,
  ...ACCESS_FLAGS,
  ...BROWSER_FLAGS,
  data: showDefault(
    text('DIR', 'the folder of the store; the server creates it, readable only for you'),
    DEFAULT_FOLDER,
  ),
  store: text(
    'NAME',
    'instead of --data: sqlite:FILE, postgres://…, or memory:, which is not durable',
  ),
  ...CLUSTER_FLAGS,
  'wait-ms': showDefault(
    number('N', 'how long a request waits for its turn to start before it gets 429', {
      min: 0,
      max: LIMITS.waitMsMax,
    }),
    LIMITS.waitMs,
  ),
  queue: showDefault(
    number('N', 'how many turns of one session may wait', { min: 1, max: 1_000_000 }),
    LIMITS.queuedTurnsMax,
  ),
  'turn-ms': showDefault(
    number('N', 'how long one turn may run', { min: 1, max: 365 * DAY_MS }),
    LIMITS.turnMs,
  ),
  'drain-ms': orElse(
    number('N', 'how long running turns may continue at shutdown', { min: 0, max: DAY_MS }),
    10_000,
  ),
  ...LOG_FLAGS,
}

export const serve = defineCommand({
  name: 'serve',
  operands: NO_OPERANDS,
  summary: 'Runs the server until it gets SIGINT or SIGTERM.',
  flags: SERVE_FLAGS,
  run: (values) => runServer(readSettings(values)),
})

type ServeSettings = ReturnType<typeof readSettings>

function readSettings(values: FlagValues<typeof SERVE_FLAGS>) {
  const store = storeName(values)
  const limits = Object.entries({
    waitMs: values['wait-ms'],
    queuedTurnsMax: values.queue,
    turnMs: values['turn-ms'],
  }).filter(([, value]) => value !== null)
  return {
    values,
    store,
    access: readAccess(values),
    browsers: readBrowsers(values),
    clustering: readCluster(values, store),
    /** Limits that a flag sets; the configuration may set others. */
    limits: Object.fromEntries(limits),
    log: readServeLog(values),
  }
}

async function runServer(settings: ServeSettings): Promise<number> {
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

/** An uncaught exception ends the process, and is printed as a line like all others. */
function onCrash(log: ServeLog): void {
  process.on('uncaughtException', (error: unknown) => {
    const { stack } = error as Partial<Error>
    log.diagnose('crashed', stack ?? String(error))
    log.close()
    process.exit(1)
  })
}

async function runUntilStopped(settings: ServeSettings): Promise<number> {
  const { log, values } = settings
  const config = await readConfig(process.cwd(), values.config)
  checkAgents(values.agent, config)
  // Before the store is opened, since an open store continues with its queued turns.
  await checkPort(values)
  const tokens =
    values.tokens === null ? undefined : await openTokenFile(values.tokens, log.onDiagnostic)
  const holdfast = await open(settings, config)
  return new Promise<number>((exit, fail) => {
    listen(settings, { holdfast, tokens }, exit).catch(async (error: unknown) => {
      await holdfast.close()
      fail(new Error(listenProblem(error, values)))
    })
  }).finally(() => tokens?.close())
}

async function open(settings: ServeSettings, config: Config): Promise<Holdfast> {
  const { store, limits, values, clustering, browsers } = settings
  const folder = agentsFolder(store)
  const configured = await openAgents(config, { folder, names: values.agent })
  const hasBrowsers = Object.keys(browsers).length > 0
  const browser: Record<string, Agent> = hasBrowsers ? { browser: browserAgent } : {}
  const [first] = [
    ...values.agent,
    ...[config.defaultAgent ?? []].flat(),
    ...Object.keys(configured),
  ]
  return openHoldfast({
    store,
    ...clustering.node,
    onDiagnostic: settings.log.onDiagnostic,
    limits: { ...config.limits, ...limits, ...clustering.limits },
    // The configured agents are first, and replace built-in agents of the same name.
    agents: { ...configured, ...builtinAgents, ...configured, ...browser },
    ...(first === undefined ? {} : { defaultAgent: first }),
  })
}

/** The agent of browser sessions. */
const browserAgent: Agent = () => {
  throw new Error('a browser session takes no turns: drive it over CDP')
}

type ListenAddress = { readonly host: string; readonly port: number }

/** Throws if the port is in use, or the host is not an address of this machine. */
async function checkPort({ host, port }: ListenAddress): Promise<void> {
  const probe = createServer()
  await new Promise<void>((resolve, reject) => {
    probe.once('error', (error) => reject(new Error(listenProblem(error, { host, port }))))
    probe.listen({ host, port }, () => probe.close(() => resolve()))
  })
}

function listenProblem(error: unknown, { host, port }: ListenAddress): string {
  const { code, message } = error as NodeJS.ErrnoException
  switch (code) {
    case 'EADDRINUSE':
      return `port ${port} is in use on ${host}: stop its user, or choose another with --port`
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
  settings: ServeSettings,
  { holdfast, tokens }: { readonly holdfast: Holdfast; readonly tokens?: TokenFile },
  exit: (code: number) => void,
): Promise<void> {
  const { values, access, browsers, log } = settings
  const { host, port, record, 'drain-ms': drainMs } = values
  const server = await startServer({
    ...access,
    tokens,
    browsers,
    cdpLimits: { browserSessionsMax: values['browser-sessions-max'] },
    browserLimits: {
      runningMax: values['browsers-max'],
      memoryBytesMax: values['browser-memory'] * 1e6,
    },
    ...settings.clustering.server,
    ...(record === null ? {} : { recordings: record }),
    holdfast,
    host,
    port,
    onStoreFailed: () => void stop(server, 0, log).finally(() => exit(1)),
  })
  greet(settings, server)
  await listenCdp(server, Object.keys(browsers), values['cdp-port'], log)
  onSignals(
    (signal) => {
      log.greet(`${signal}: draining for up to ${drainMs} ms; a second signal stops at once`)
      void stop(server, drainMs, log).then(exit)
    },
    () => {
      log.close()
      process.exit(1)
    },
  )
}

/** The time for everything that ends after the drain. */
const STOP_MS = 30_000

/** Resolves with the exit code. */
async function stop(server: HoldfastServer, drainMs: number, log: ServeLog): Promise<number> {
  // A store or a runner that does not answer must not keep the process running.
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

function greet({ log, values }: ServeSettings, { url, holdfast }: HoldfastServer): void {
  const { about, agents } = holdfast.authority
  log.greet(`listening on ${url}`)
  log.greet(`store ${about['store']}; agents ${agents.join(', ')}`)
  log.greet(`try: ${tryLine(url, values.tokens !== null)}`)
}
