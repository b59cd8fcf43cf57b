/**
 * What a client may not do in a browser whose pages may reach allowed addresses only (egress):
 * commands that lead around the browser's proxy, or to files of the machine. The network itself is
 * guarded by the proxy. This comes before all other rules, also in a browser of the client's own.
 */
import { join } from 'node:path'
import { CdpCommand } from './command.ts'
import type { Params } from './protocol.ts'

const FILES = 'it reaches files of the machine that the browser runs on'
const AROUND = 'pages of this browser may reach the network only through its proxy'
const SCHEME = 'only http:, https:, data:, blob: and about:blank can be opened here'

/** Methods, and whole domains, that are refused. */
const REFUSED: Readonly<Record<string, string>> = {
  'DOM.setFileInputFiles': FILES,
  'Page.handleFileChooser': FILES,
  PWA: FILES,
  Extensions: AROUND,
  Tethering: AROUND,
  Cast: AROUND,
  'Target.exposeDevToolsProtocol': AROUND,
  'Target.setRemoteLocations': AROUND,
  'Target.openDevTools': AROUND,
}

const OPEN_URL = /^(view-source:)?(https?:|data:|blob:|javascript:|about:(blank|srcdoc)($|[?#]))/i

/** Whether a URL leads to the network or to the page's own data, and nowhere else. */
export function isOpenUrl(url: unknown): boolean {
  if (typeof url !== 'string') return url === undefined
  // As browsers do before and inside a scheme.
  const plain = url.replaceAll(/[\0-\x20]/g, '')
  return plain === '' || OPEN_URL.test(plain)
}

/** What of a command is checked: a reason to refuse it, or params to replace; null: it is good. */
type Check = (params: Params, folder: string) => string | Params | null

const checkUrl: Check = ({ url }) => (isOpenUrl(url) ? null : SCHEME)

/** Downloads go to a folder of the session, which ends with the browser. */
const checkDownloads: Check = ({ behavior }, downloadPath) => {
  if (behavior === 'allow' || behavior === 'allowAndName') return { downloadPath }
  return { behavior: 'deny', downloadPath: undefined }
}

const CHECKS: Readonly<Record<string, Check>> = {
  'Page.navigate': checkUrl,
  'Target.createTarget': checkUrl,
  'Network.loadNetworkResource': checkUrl,
  'Fetch.continueRequest': checkUrl,
  'Network.continueInterceptedRequest': checkUrl,
  'Browser.setDownloadBehavior': checkDownloads,
  'Page.setDownloadBehavior': checkDownloads,
  'Target.createBrowserContext': ({ proxyServer, proxyBypassList }) =>
    proxyServer === undefined && proxyBypassList === undefined ? null : AROUND,
  'Input.dispatchDragEvent': ({ data }) => {
    const { files } = (data ?? {}) as Params
    return files === undefined || (Array.isArray(files) && files.length === 0) ? null : FILES
  },
}

/** The reason why a command is refused, or the command to go on with. */
export function guard(
  command: CdpCommand,
  downloads: string,
  session: string,
): CdpCommand | string {
  const { method } = command
  const domain = method.slice(0, method.indexOf('.'))
  const reason = entry(REFUSED, method) ?? entry(REFUSED, domain)
  if (reason !== undefined) return reason
  const check = entry(CHECKS, method)
  if (check === undefined) return command
  const { params = {} } = command
  const found = check(params, join(downloads, session))
  if (typeof found === 'string') return found
  // With the values that were checked, even if a name was escaped or repeated.
  return new CdpCommand(command, { ...params, ...found })
}

function entry<Value>(table: Readonly<Record<string, Value>>, name: string): Value | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined
}
