/** `--browser`, `--cdp-port` and what belongs to them. */
import { BROWSER_LIMITS, type BrowserSpec } from '../browsers/index.ts'
import { CDP_LIMITS } from '../doors/cdp/limits.ts'
import type { Agent } from '../index.ts'
import type { HoldfastServer } from '../server/index.ts'
import type { Log } from './log.ts'
import { listFlag, numberFlag, textFlag, UsageError, type Flags, type Values } from './command.ts'

export type BrowserSettings = {
  readonly browsers: Readonly<Record<string, BrowserSpec>>
  /** Null: no port of its own. */
  readonly cdpPort: number | null
  readonly browsersMax: number
  readonly browserSessionsMax: number
  readonly browserMemoryMb: number
  readonly recordings: string | null
}

export const BROWSER_FLAGS: Flags = {
  browser: { type: 'string', multiple: true },
  'own-browsers': { type: 'boolean' },
  'browser-arg': { type: 'string', multiple: true },
  'browsers-max': { type: 'string' },
  'browser-sessions-max': { type: 'string' },
  'browser-memory': { type: 'string' },
  record: { type: 'string' },
  'cdp-port': { type: 'string' },
}

export const BROWSER_HELP = [
  [
    '--browser [NAME=]WHAT',
    'chromium, a program or a ws:// address, at /cdp/NAME; may be repeated',
  ],
  ['--browser-arg FLAG', 'a flag for every browser that is started; may be repeated'],
  ['--own-browsers', 'a browser for every session, instead of a browser context'],
  ['--browsers-max N', `how many browsers run at once (${BROWSER_LIMITS.runningMax})`],
  ['--browser-sessions-max N', `how many sessions share one (${CDP_LIMITS.browserSessionsMax})`],
  ['--browser-memory MB', 'what one browser may take of the memory (8590)'],
  ['--record DIR', 'where the traffic of clients that ask for it is written down, redacted'],
  ['--cdp-port N', 'the first browser on a port of its own, as Chrome would have it'],
] as const

/** What turns in a browser session are told. */
const browserAgent: Agent = () => {
  throw new Error('a browser session takes no turns: drive it over CDP')
}

export function readBrowsers(values: Values): BrowserSettings {
  const args = listFlag(values, 'browser-arg')
  const own = values['own-browsers'] === true
  const browsers: Record<string, BrowserSpec> = {}
  for (const text of listFlag(values, 'browser')) {
    const { name, spec } = readBrowser(text, { args, own })
    if (Object.hasOwn(browsers, name)) throw new UsageError(`--browser ${name} is there twice`)
    browsers[name] = spec
  }
  const cdpPort = numberFlag(values, 'cdp-port', { fallback: -1, min: 0, max: 65_535 })
  if (cdpPort !== -1 && Object.keys(browsers).length === 0) {
    throw new UsageError('--cdp-port needs a --browser')
  }
  const browsersMax = numberFlag(values, 'browsers-max', {
    fallback: BROWSER_LIMITS.runningMax,
    min: 1,
    max: 1_000,
  })
  const browserSessionsMax = numberFlag(values, 'browser-sessions-max', {
    fallback: CDP_LIMITS.browserSessionsMax,
    min: 1,
    max: 100_000,
  })
  const browserMemoryMb = numberFlag(values, 'browser-memory', {
    fallback: Math.round(BROWSER_LIMITS.memoryBytesMax / 1e6),
    min: 100,
    max: 10_000_000,
  })
  const port = cdpPort === -1 ? null : cdpPort
  const recordings = textFlag(values, 'record')
  const bounds = { browsersMax, browserSessionsMax, browserMemoryMb }
  return { browsers, cdpPort: port, ...bounds, recordings }
}

/** `NAME=WHAT`, or only what it is: then its name is `chromium`, or `browser` for an address. */
function readBrowser(text: string, options: { args: readonly string[]; own: boolean }) {
  const [, given, rest] = /^([\w.-]{1,64})=(.+)$/.exec(text) ?? []
  const what = rest ?? text
  const [, repaired, address] = /^(repair\+)?((?:ws|http)s?:\/\/.+)$/i.exec(what) ?? []
  const plain = /^[\w.-]{1,64}$/.test(what) ? what : 'browser'
  const spec: BrowserSpec =
    address === undefined
      ? { program: what, ...options }
      : { address, repair: repaired !== undefined }
  return { name: given ?? plain, spec }
}

/** The agent of browser sessions, where there are browsers. */
export function browserAgents({ browsers }: BrowserSettings): Readonly<Record<string, Agent>> {
  return Object.keys(browsers).length === 0 ? {} : { browser: browserAgent }
}

export async function listenCdp(
  server: HoldfastServer,
  { browsers, cdpPort }: BrowserSettings,
  { greet, diagnose }: Log,
): Promise<void> {
  const tell = (name: string, url: string): void => {
    diagnose('browser_listening', 'browser', { url, name })
    // A port of its own does not tell the name.
    greet(`browser (url: ${url}${url.endsWith(`/cdp/${name}`) ? '' : `, name: ${name}`})`)
  }
  const names = Object.keys(browsers)
  for (const name of names) tell(name, `${server.url}/cdp/${name}`)
  const [first] = names
  if (cdpPort === null || first === undefined) return
  const port = await server.listenCdp(first, cdpPort).catch((error: NodeJS.ErrnoException) => {
    throw new Error(`--cdp-port ${cdpPort} cannot be listened on: ${error.code ?? error.message}`)
  })
  tell(first, server.url.replace(/:\d+$/, `:${port}`))
}
