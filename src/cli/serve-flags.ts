/** The flags of `serve`, and the options that they make. */
import { readFileSync, statSync } from 'node:fs'
import { BROWSER_LIMITS, EgressRule, type BrowserSpec } from '../browsers/index.ts'
import { CONFIG_NAMES, PRESETS, type Config } from '../config/index.ts'
import { HoldfastError, invalid } from '../core/index.ts'
import { LINE_FORMATS, LOG_LEVELS } from '../diagnostic-printer.ts'
import { CDP_LIMITS } from '../doors/cdp/limits.ts'
import { builtinAgents, LIMITS } from '../index.ts'
import { CLUSTER_LIMITS } from '../open.ts'
import { checkAccessOptions, isWildcard, type AccessOptions } from '../server/access.ts'
import { isLoopback } from '../server/rates.ts'
import { RATE_LIMITS } from '../server/limits.ts'
import {
  choice,
  number,
  repeated,
  text,
  toggle,
  unknownName,
  UsageError,
  type FlagValues,
} from './command.ts'
import { isOpenToOthers } from './separation.ts'
import { DEFAULT_FOLDER, isPostgres } from './stores.ts'

const DAY_MS = 86_400_000

export const SERVE_FLAGS = {
  port: number('N', 'the port to listen on; 0: any free port').between(0, 65_535).or(7420),
  agent: repeated(
    'NAME',
    `an agent to serve: ${Object.keys(PRESETS).join(', ')}, or one of the configuration;` +
      ' the first is the default',
  ),
  'allow-unisolated-agents': toggle(
    'starts although clients of several principals use agents that are not isolated: each could ' +
      'read what the agents of the others, and the server itself, have',
  ),
  config: text(
    'FILE',
    `the configuration; without it ${CONFIG_NAMES.join(', ')} in the working folder, if it exists`,
  ),
  'watch-config': toggle(
    'reads the configuration again whenever its file changes; without it, at SIGHUP only',
  ),
  host: text(
    'ADDRESS',
    'the address to listen on; only a loopback address without --tokens or jwt in the ' +
      'configuration',
  ).or('127.0.0.1'),
  tokens: text(
    'FILE',
    'the tokens file; without it and jwt in the configuration every client on this machine may ' +
      'do everything',
  ),
  'allow-host': repeated(
    'NAME',
    'a host name of the server, without port; required with --host 0.0.0.0 or ::',
  ),
  'allow-origin': repeated(
    'URL',
    'another origin whose pages may use the server, like https://app.example',
  ),
  'trust-proxy': toggle(
    "all requests come through a proxy: a client's address is the last in X-Forwarded-For",
  ),
  rate: number('N', 'requests per second from one remote address, with bursts of twice as many')
    .between(1, 1_000_000)
    .or(RATE_LIMITS.requestsPerSecond),
  browser: repeated(
    '[NAME=]WHAT',
    'a browser for CDP clients at /cdp/NAME: chromium, a program, ws://…, or repair+ws://…',
  ),
  'browser-arg': repeated('FLAG', 'a flag for every browser that the server starts'),
  'own-browsers': toggle('a browser process for every session, instead of a browser context'),
  record: text('DIR', 'the folder for recordings of clients that request one, redacted'),
  'browsers-max': number('N', 'the maximum number of running browsers')
    .between(1, 1_000)
    .or(BROWSER_LIMITS.runningMax),
  'browser-sessions-max': number('N', 'how many sessions share one browser; more get 429')
    .between(1, 100_000)
    .or(CDP_LIMITS.browserSessionsMax),
  'browser-memory': number(
    'MB',
    'the maximum memory of one browser (Linux); beyond it the server stops the browser and ' +
      'tells its clients the reason',
  )
    .between(100, 10_000_000)
    .or(Math.round(BROWSER_LIMITS.memoryBytesMax / 1e6)),
  'cdp-port': number(
    'N',
    'a port for the first browser alone, with the paths that Chrome has',
  ).between(0, 65_535),
  'copilot-port': number(
    'N',
    'a TCP port for clients with the Copilot SDK; needs --tokens, or jwt in the configuration',
  ).between(0, 65_535),
  data: text(
    'DIR',
    'the folder of the store; the server creates it, readable only for you',
  ).showing(DEFAULT_FOLDER),
  store: text(
    'NAME',
    'instead of --data: sqlite:FILE, postgres://…, or memory:, which is not durable',
  ),
  advertise: text('URL', 'the address at which other nodes on the same PostgreSQL reach this one'),
  'cluster-secret-file': text(
    'FILE',
    'the secret by which nodes authenticate each other, the same on all: 32 characters or more, ' +
      'readable only for you',
  ),
  'lease-ms': number('N', 'on PostgreSQL: how long a dead node blocks its sessions')
    .between(500, 3_600_000)
    .showing(CLUSTER_LIMITS.leaseMs),
  'wait-ms': number('N', 'how long a request waits for its turn to start before it gets 429')
    .between(0, LIMITS.waitMsMax)
    .showing(LIMITS.waitMs),
  queue: number('N', 'how many turns of one session may wait')
    .between(1, 1_000_000)
    .showing(LIMITS.queuedTurnsMax),
  'turn-ms': number('N', 'how long one turn may run')
    .between(1, 365 * DAY_MS)
    .showing(LIMITS.turnMs),
  'drain-ms': number('N', 'how long running turns may continue at shutdown')
    .between(0, DAY_MS)
    .or(10_000),
  'log-format': choice(
    'WHAT',
    'text, or json: one object per line, for programs',
    LINE_FORMATS,
  ).showing('text'),
  'log-level': choice(
    'LEVEL',
    'the lowest level that the server prints: debug, info, warn or error',
    LOG_LEVELS,
  ).showing('info'),
  quiet: toggle('the same as --log-level error'),
  'json-log': toggle('the same as --log-format json'),
}

export type ServeValues = FlagValues<typeof SERVE_FLAGS>

/** Every agent must be a preset, in the configuration, or built in. */
export function checkAgents(agents: readonly string[], config: Config): void {
  const known = [...new Set([config.agents, PRESETS, builtinAgents].flatMap(Object.keys))]
  const unknown = agents.find((name) => !known.includes(name))
  if (unknown === undefined) return
  throw unknownName('agent', unknown, known, `there are: ${known.join(', ')}`)
}

/** Which clients are admitted; the tokens are read later. */
export function readAccess(values: ServeValues, { jwt }: Config): Omit<AccessOptions, 'tokens'> {
  const { host, tokens, 'allow-host': allowHosts, rate } = values
  const isOpen = tokens === null && jwt.length === 0
  if (isOpen && !isLoopback(host)) {
    throw new UsageError(
      `--host ${host} is not a loopback address and would be open to others: ` +
        'add --tokens FILE, or jwt to the configuration',
    )
  }
  if (isWildcard(host) && allowHosts.length === 0) {
    throw new UsageError(`--host ${host} needs --allow-host NAME: a host name of this server`)
  }
  const options = {
    allowHosts,
    allowOrigins: values['allow-origin'],
    trustProxy: values['trust-proxy'],
    rates: { requestsPerSecond: rate, requestsBurst: 2 * rate },
  }
  try {
    checkAccessOptions(host, { ...options, tokens: isOpen ? undefined : SOME_TOKENS })
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error
    const field = String(error.details['field'])
    throw new UsageError(error.message.replace(field, FLAG_OF[field] ?? field))
  }
  return options
}

/** The port for Copilot SDKs; null: none. */
export function readCopilotPort(
  { tokens, 'copilot-port': flag }: ServeValues,
  { jwt, copilotPort }: Config,
): number | null {
  const port = flag ?? copilotPort
  if (port === null || tokens !== null || jwt.length > 0) return port
  throw new UsageError('--copilot-port needs --tokens FILE, or jwt in the configuration')
}

const FLAG_OF: Readonly<Record<string, string>> = {
  allowHosts: '--allow-host',
  allowOrigins: '--allow-origin',
}

/** Stands for the tokens until their file is opened. */
const SOME_TOKENS = { scopesOf: () => null, revision: () => 0, close: () => undefined }

export function readBrowsers(values: ServeValues): Readonly<Record<string, BrowserSpec>> {
  const browsers: Record<string, BrowserSpec> = {}
  for (const given of values.browser) {
    const { name, spec } = readBrowser(given, values)
    if (Object.hasOwn(browsers, name)) throw new UsageError(`--browser ${name} is given twice`)
    browsers[name] = spec
  }
  if (values['cdp-port'] !== null && values.browser.length === 0) {
    throw new UsageError('--cdp-port needs a --browser')
  }
  return browsers
}

/** `NAME=WHAT`, or WHAT alone: then the name is that of the program, or `browser`. */
function readBrowser(given: string, values: ServeValues): { name: string; spec: BrowserSpec } {
  const [, named, rest] = /^([\w.-]{1,64})=(.+)$/.exec(given) ?? []
  const what = rest ?? given
  const [, repaired, address] = /^(repair\+)?((?:ws|http)s?:\/\/.+)$/i.exec(what) ?? []
  const name = named ?? (/^[\w.-]{1,64}$/.test(what) ? what : 'browser')
  if (address !== undefined) return { name, spec: { address, repair: repaired !== undefined } }
  const { 'browser-arg': args, 'own-browsers': own } = values
  return { name, spec: { program: what, args, own } }
}

/** Browsers of the flags with their settings of the configuration. */
export function withSettings(
  browsers: Readonly<Record<string, BrowserSpec>>,
  config: Config,
): Readonly<Record<string, BrowserSpec>> {
  const all = { ...browsers }
  for (const [name, { egress }] of Object.entries(config.browsers)) {
    const field = `browsers.${name}`
    const spec = Object.hasOwn(all, name) ? all[name] : undefined
    if (spec === undefined) throw invalid(field, 'must be the name of a --browser')
    if (egress === undefined) continue
    if ('address' in spec) throw invalid(`${field}.egress`, 'is for browsers that are started here')
    // Checked before the store is opened.
    if (egress !== 'any') EgressRule.read(egress, `${field}.egress`)
    all[name] = { ...spec, egress }
  }
  return all
}

const CLUSTER_FLAGS = ['advertise', 'cluster-secret-file', 'lease-ms'] as const

/** The options for many nodes on one PostgreSQL; none on a store for one node. */
export function readCluster(values: ServeValues, store: string) {
  const { advertise, 'cluster-secret-file': file } = values
  if (!isPostgres(store)) {
    const given = CLUSTER_FLAGS.find((name) => values[name] !== null)
    if (given === undefined) return {}
    throw new UsageError(`--${given} needs --store postgres://…: other stores have one node`)
  }
  if (advertise === null && file === null) return {}
  if (advertise === null || file === null) {
    throw new UsageError('--advertise and --cluster-secret-file go together')
  }
  return { advertise: checkUrl(advertise), secret: readSecret(file) }
}

function checkUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null
  const isPlain = url !== null && url.href === `${url.origin}/` && /^https?:$/.test(url.protocol)
  if (isPlain) return url.origin
  throw new UsageError('--advertise must be like http://10.0.0.5:7420, without path or password')
}

const SECRET_CHARS_MIN = 32

function readSecret(file: string): string {
  let secret: string
  try {
    if (isOpenToOthers(statSync(file))) {
      throw new UsageError(`${file} is readable for others: chmod 600 ${file}`)
    }
    secret = readFileSync(file, 'utf8').trim()
  } catch (error) {
    if (error instanceof UsageError) throw error
    throw new UsageError(`cannot read ${file}: ${(error as NodeJS.ErrnoException).code}`)
  }
  if (secret.length >= SECRET_CHARS_MIN) return secret
  throw new UsageError(
    `${file} must hold at least ${SECRET_CHARS_MIN} characters: openssl rand -hex 32 > ${file}`,
  )
}
