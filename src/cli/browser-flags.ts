/** The browsers of `serve`: `--browser`, `--cdp-port` and related flags. */
import { BROWSER_LIMITS, type BrowserSpec } from '../browsers/index.ts'
import { CDP_LIMITS } from '../doors/cdp/limits.ts'
import type { HoldfastServer } from '../server/index.ts'
import { number, orElse, repeated, text, toggle, UsageError, type FlagValues } from './flags.ts'
import type { ServeLog } from './log-flags.ts'

export const BROWSER_FLAGS = {
  browser: repeated(
    '[NAME=]WHAT',
    'a browser for CDP clients at /cdp/NAME: chromium, a program, ws://…, or repair+ws://…',
  ),
  'browser-arg': repeated('FLAG', 'a flag for every browser that the server starts'),
  'own-browsers': toggle('a browser process for every session, instead of a browser context'),
  record: text('DIR', 'the folder for recordings of clients that request one, redacted'),
  'browsers-max': orElse(
    number('N', 'the maximum number of running browsers', { min: 1, max: 1_000 }),
    BROWSER_LIMITS.runningMax,
  ),
  'browser-sessions-max': orElse(
    number('N', 'how many sessions share one browser; more get 429', { min: 1, max: 100_000 }),
    CDP_LIMITS.browserSessionsMax,
  ),
  'browser-memory': orElse(
    number(
      'MB',
      'the maximum memory of one browser (Linux); beyond it the server stops the browser and ' +
        'tells its clients the reason',
      { min: 100, max: 10_000_000 },
    ),
    Math.round(BROWSER_LIMITS.memoryBytesMax / 1e6),
  ),
  'cdp-port': number('N', 'a port for the first browser alone, with the paths that Chrome has', {
    min: 0,
    max: 65_535,
  }),
}

type BrowserValues = FlagValues<typeof BROWSER_FLAGS>

export function readBrowsers(values: BrowserValues): Readonly<Record<string, BrowserSpec>> {
  const options = { args: values['browser-arg'], own: values['own-browsers'] }
  const browsers: Record<string, BrowserSpec> = {}
  for (const given of values.browser) {
    const { name, spec } = readBrowser(given, options)
    if (Object.hasOwn(browsers, name)) throw new UsageError(`--browser ${name} is given twice`)
    browsers[name] = spec
  }
  if (values['cdp-port'] !== null && values.browser.length === 0) {
    throw new UsageError('--cdp-port needs a --browser')
  }
  return browsers
}

/** `NAME=WHAT`, or WHAT alone: then the name is that of the program, or `browser`. */
function readBrowser(
  given: string,
  options: { readonly args: readonly string[]; readonly own: boolean },
): { readonly name: string; readonly spec: BrowserSpec } {
  const [, named, rest] = /^([\w.-]{1,64})=(.+)$/.exec(given) ?? []
  const what = rest ?? given
  const [, repaired, address] = /^(repair\+)?((?:ws|http)s?:\/\/.+)$/i.exec(what) ?? []
  const name = named ?? (/^[\w.-]{1,64}$/.test(what) ? what : 'browser')
  if (address === undefined) return { name, spec: { program: what, ...options } }
  return { name, spec: { address, repair: repaired !== undefined } }
}

/** Opens `--cdp-port`, and reports the addresses of all browsers. */
export async function listenCdp(
  server: HoldfastServer,
  browsers: readonly string[],
  cdpPort: number | null,
  { greet, diagnose }: ServeLog,
): Promise<void> {
  const report = (name: string, url: string): void => {
    diagnose('browser_listening', 'browser', { url, name })
    // The address of `--cdp-port` does not contain the name.
    greet(`browser (url: ${url}${url.endsWith(`/cdp/${name}`) ? '' : `, name: ${name}`})`)
  }
  for (const name of browsers) report(name, `${server.url}/cdp/${name}`)
  const [first] = browsers
  if (cdpPort === null || first === undefined) return
  const port = await server.listenCdp(first, cdpPort).catch((error: NodeJS.ErrnoException) => {
    throw new Error(`cannot listen on --cdp-port ${cdpPort}: ${error.code ?? error.message}`)
  })
  report(first, server.url.replace(/:\d+$/, `:${port}`))
}
