/** `holdfast serve`: opens the store, listens, and drains on a signal. */
import { createServer } from 'node:net'
import { readConfig, readWebhooks, type Config } from '../config/index.ts'
import { diagnoseTo, type Diagnose } from '../core/index.ts'
import { DiagnosticPrinter, openHoldfast } from '../index.ts'
import type { DiagnosticLevel, DiagnosticListener, Holdfast } from '../index.ts'
import { dropInheritedDescriptors } from '../platform/processes.ts'
import { startServer, type HoldfastServer, type ServerOptions } from '../server/index.ts'
import { tryLine } from '../server/inspector-page.ts'
import { defineCommand, UsageError } from './command.ts'
import { note, say } from './output.ts'
import { onHangup, Reloader, settingsOf, type PrepareSettings } from './reload.ts'
import {
  checkAgents,
  readAccess,
  readBrowsers,
  readCluster,
  readCopilotPort,
  SERVE_FLAGS,
  withSettings,
  type ServeValues,
} from './serve-flags.ts'
import { coreSettings, retentionOf, ServedAgents } from './served-agents.ts'
import { openTokens, type OpenedTokens } from './served-tokens.ts'
import { storeName } from './stores.ts'

export const serve = defineCommand({
  name: 'serve',
  summary: 'Runs the server until it gets SIGINT or SIGTERM.',
  flags: SERVE_FLAGS,
  run: (values) => runServer(readSettings(values)),
})

/** What of a running server a new configuration changes. */
type ServedParts = {
  readonly config: Config
  readonly agents: ServedAgents
  readonly access: OpenedTokens
}

type ServeSettings = ReturnType<typeof readSettings>

function readSettings(values: ServeValues) {
  const store = storeName(values)
  return {
    values,
    store,
    browsers: readBrowsers(values),
    cluster: readCluster(values, store),
    log: readServeLog(values),
  }
}

async function runServer(settings: ServeSettings): Promise<number> {
  const { log } = settings
  // Until the server runs: then there is something to read again.
  const hangup = { reload: (): void => undefined }
  onHangup(
    () => hangup.reload(),
    () => process.kill(process.pid, 'SIGTERM'),
  )
  // The files of flags are read. Agents and browsers must not inherit what is open.
  dropInheritedDescriptors()
  // An uncaught exception ends the process, and is printed as a line like all others.
  process.on('uncaughtException', (error: unknown) => {
    const { stack } = error as Partial<Error>
    log.diagnose('crashed', stack ?? String(error))
    log.close()
    process.exit(1)
  })
  try {
    return await runUntilStopped(settings, hangup)
  } catch (error) {
    if (error instanceof UsageError) throw error
    log.fail('start_failed', (error as Error).message)
    return 1
  } finally {
    log.close()
  }
}

async function runUntilStopped(
  given: ServeSettings,
  hangup: { reload: () => void },
): Promise<number> {
  const { values } = given
  const config = await readConfig(process.cwd(), values.config)
  if (values['watch-config'] && config.file === null) {
    throw new UsageError('--watch-config needs a configuration file')
  }
  checkAgents(values.agent, config)
  const browsers = withSettings(given.browsers, config)
  const settings = { ...given, copilotPort: readCopilotPort(values, config) }
  const limitedAccess = { ...readAccess(values, config), sharedKeys: config.sharedKeys }
  // Before the store is opened, since an open store continues with its queued turns.
  await checkPort(values)
  const access = await openTokens(settings, config)
  const { tokens, warnings } = access
  const webhooks = await readWebhooks(config)
  const agents = new ServedAgents(settings)
  const holdfast = await open(settings, config, agents)
  return new Promise<number>((exit, fail) => {
    const configuration = configurationOf(settings, config)
    const fixed = { ...limitedAccess, browsers, webhooks }
    const served = { ...fixed, holdfast, tokens, warnings, configuration }
    const started = (server: HoldfastServer): void => {
      const reloader = reloaderFor(settings, { config, agents, access }, server)
      hangup.reload = () => void reloader.reload()
    }
    listen(settings, served, { exit, started }).catch(async (error: unknown) => {
      await holdfast.close()
      fail(new Error(listenProblem(error, values)))
    })
  }).finally(() => tokens?.close())
}

/** Each part checks a new configuration before any puts it in force. */
function reloaderFor(
  settings: ServeSettings,
  { config, agents, access }: ServedParts,
  server: HoldfastServer,
): Reloader {
  const { values, log } = settings
  const { authority } = server.holdfast
  const parts: readonly PrepareSettings[] = [
    (next) => {
      checkAgents(values.agent, next)
      return {}
    },
    async (next) => {
      const browsers = withSettings(settings.browsers, next)
      const configuration = configurationOf(settings, next)
      const { sharedKeys } = next
      const webhooks = await readWebhooks(next)
      return { apply: server.prepare({ sharedKeys, browsers, webhooks, configuration }) }
    },
    access.prepare,
    async (next) => {
      const { runners, changed, keep } = await agents.prepare(next)
      const applyCore = authority.prepare({ ...coreSettings(settings, next), runners })
      const apply = (): void => {
        keep()
        applyCore()
      }
      return { apply, changed }
    },
  ]
  const reloader = new Reloader({
    config,
    parts,
    readTokens: access.readAgain,
    hasTokensFile: values.tokens !== null,
    diagnose: log.diagnose,
  })
  if (values['watch-config'] && config.file !== null) reloader.watch(config.file)
  return reloader
}

/** What the audit compares at the next start: the configuration file, and the flags. */
function configurationOf({ values, cluster }: ServeSettings, config: Config) {
  return { settings: { ...settingsOf(config), flags: values }, server: cluster.advertise }
}

async function open(
  settings: ServeSettings,
  config: Config,
  agents: ServedAgents,
): Promise<Holdfast> {
  const { store, cluster, log } = settings
  const { runners, keep } = await agents.prepare(config)
  keep()
  return openHoldfast({
    ...coreSettings(settings, config),
    store,
    advertise: cluster.advertise,
    clusterSecret: cluster.secret,
    onDiagnostic: log.onDiagnostic,
    agents: runners,
    retention: retentionOf(config),
  })
}

type ListenAddress = Pick<ServeValues, 'host' | 'port'>

/** Throws if the port is in use, or the host is not an address of this machine. */
async function checkPort({ host, port }: ListenAddress): Promise<void> {
  const probe = createServer()
  await new Promise<void>((resolve, reject) => {
    probe.once('error', (error) => reject(new Error(listenProblem(error, { host, port }))))
    probe.listen({ host, port }, () => probe.close(() => resolve()))
  })
}

function listenProblem(error: unknown, { host, port }: ListenAddress): string {
  const { code = '', message } = error as NodeJS.ErrnoException
  const elsewhere = `${host} is not an address of this machine`
  const problems: Readonly<Record<string, string>> = {
    EADDRINUSE: `port ${port} is in use on ${host}: stop its user, or choose another with --port`,
    EACCES: `port ${port} may not be used by this user: choose one above 1023 with --port`,
    EADDRNOTAVAIL: elsewhere,
    ENOTFOUND: elsewhere,
  }
  return problems[code] ?? message
}

async function listen(
  settings: ServeSettings & { readonly copilotPort: number | null },
  served: ServerOptions,
  { exit, started }: { exit: (code: number) => void; started: (server: HoldfastServer) => void },
): Promise<void> {
  const { values, cluster, log } = settings
  const { host, port, 'drain-ms': drainMs } = values
  const server = await startServer({
    ...served,
    cdpLimits: { browserSessionsMax: values['browser-sessions-max'] },
    browserLimits: {
      runningMax: values['browsers-max'],
      memoryBytesMax: values['browser-memory'] * 1e6,
    },
    cluster: cluster.secret === undefined ? undefined : { secret: cluster.secret },
    recordings: values.record ?? undefined,
    host,
    port,
    onStoreFailed: () => void stop(server, 0, log).finally(() => exit(1)),
  })
  greet(settings, server, served)
  await listenCdp(settings, server)
  await listenCopilot(settings, server)
  started(server)
  let isStopping = false
  const onSignal = (signal: string): void => {
    if (isStopping) {
      log.close()
      process.exit(1)
    }
    isStopping = true
    log.greet(`${signal}: draining for up to ${drainMs} ms; a second signal stops at once`)
    void stop(server, drainMs, log).then(exit)
  }
  process.on('SIGINT', onSignal)
  process.on('SIGTERM', onSignal)
}

function greet(
  { log }: ServeSettings,
  { url, holdfast }: HoldfastServer,
  { tokens }: ServerOptions,
): void {
  const { about, agents } = holdfast.authority
  log.greet(`listening on ${url}`)
  log.greet(`store ${about['store']}; agents ${agents.join(', ')}`)
  log.greet(`try: ${tryLine(url, tokens !== undefined)}`)
}

/** Opens `--cdp-port`, and reports the addresses of all browsers. */
async function listenCdp(settings: ServeSettings, server: HoldfastServer): Promise<void> {
  const { browsers, values, log } = settings
  const { 'cdp-port': cdpPort } = values
  const report = (name: string, url: string): void => {
    log.diagnose('browser_listening', 'browser', { url, name })
    // The address of `--cdp-port` does not contain the name.
    log.greet(`browser (url: ${url}${url.endsWith(`/cdp/${name}`) ? '' : `, name: ${name}`})`)
  }
  const names = Object.keys(browsers)
  for (const name of names) report(name, `${server.url}/cdp/${name}`)
  const [first] = names
  if (cdpPort === null || first === undefined) return
  const port = await server.listenCdp(first, cdpPort).catch((error: NodeJS.ErrnoException) => {
    throw new Error(`cannot listen on --cdp-port ${cdpPort}: ${error.code ?? error.message}`)
  })
  report(first, server.url.replace(/:\d+$/, `:${port}`))
}

async function listenCopilot(
  { copilotPort, log }: Pick<ServeSettings, 'log'> & { readonly copilotPort: number | null },
  server: HoldfastServer,
): Promise<void> {
  if (copilotPort === null) return
  const port = await server.listenCopilot(copilotPort).catch((error: NodeJS.ErrnoException) => {
    throw new Error(
      `cannot listen on --copilot-port ${copilotPort}: ${error.code ?? error.message}`,
    )
  })
  const address = server.url.replace(/^http:\/\/|:\d+$/g, '')
  log.diagnose('copilot_listening', 'listening for Copilot SDKs', { address, port })
  log.greet(`Copilot SDK: RuntimeConnection.forUri("${address}:${port}", { connectionToken })`)
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

/** The bytes that may wait for a slow reader of a pipe; beyond them lines are dropped. */
const UNREAD_BYTES_MAX = 1_048_576
/** Diagnostics that the greeting replaces. */
const GREETED: ReadonlySet<string> = new Set([
  'listening',
  'browser_listening',
  'copilot_listening',
  'draining',
])

type ServeLog = ReturnType<typeof readServeLog>

/**
 * What `serve` prints: a greeting for people, and diagnostics as lines. Information goes to stdout,
 * warnings and errors to stderr. The input of a request is never printed.
 */
function readServeLog(values: ServeValues) {
  if (values['json-log'] && values['log-format'] !== null) {
    throw new UsageError('--json-log and --log-format exclude each other')
  }
  if (values.quiet && values['log-level'] !== null) {
    throw new UsageError('--quiet and --log-level exclude each other')
  }
  const format = values['json-log'] ? 'json' : (values['log-format'] ?? 'text')
  const level = values.quiet ? 'error' : (values['log-level'] ?? 'info')
  const printer = new DiagnosticPrinter({ write, format, level })
  const isGreeting = format === 'text' && (level === 'info' || level === 'debug')
  const onDiagnostic: DiagnosticListener = (diagnostic) => {
    if (!isGreeting || !GREETED.has(diagnostic.code)) printer.print(diagnostic)
  }
  const diagnose = diagnoseTo(onDiagnostic)
  /** The line that says why the command ends. */
  const fail: Diagnose = (code, message) =>
    format === 'text' ? note(message) : diagnose(code, message)
  return {
    onDiagnostic,
    diagnose,
    fail,
    /** A line for people; nothing where programs read, or below the level. */
    greet: (message: string) => (isGreeting ? say(message) : undefined),
    /** Prints the counts of repeated diagnostics. */
    close: () => printer.close(),
  }
}

/** Drops lines that the reader does not take, so that they do not fill the memory. */
function write(line: string, level: DiagnosticLevel): void {
  const stream = level === 'warn' || level === 'error' ? process.stderr : process.stdout
  if (stream.writableLength < UNREAD_BYTES_MAX) stream.write(line)
}
