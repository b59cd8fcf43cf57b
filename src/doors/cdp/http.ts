/** `/json/…`: what Chrome answers on its port, for clients that look for pages first. */
import { createRequire } from 'node:module'
import { HoldfastError } from '../../core/index.ts'
import type { Exchange } from '../exchange.ts'
import { assertNoRest, type Address, type CallerAddress } from './address.ts'
import { SHARED_KEY, type CdpDoor } from './door.ts'
import { isOpenUrl } from './guard.ts'
import { isInternalUrl, type TargetInfo } from './targets.ts'
import type { BrowserTenant } from './tenant.ts'

type JsonHandler = (door: CdpDoor, exchange: Exchange, address: CallerAddress) => Promise<void>

/** By the path below the browser's name. */
export const JSON_HANDLERS: Readonly<Record<string, JsonHandler>> = {
  '/json': sendList,
  '/json/list': sendList,
  '/json/version': async (door, exchange, address) => {
    const version = await door.hosts.version(address.browser)
    const path = `/devtools/browser/${door.browserId(address.browser)}`
    exchange.reply(200, {
      Browser: version['product'],
      'Protocol-Version': version['protocolVersion'],
      'User-Agent': version['userAgent'],
      'V8-Version': version['jsVersion'],
      'WebKit-Version': `537.36 (${String(version['revision'])})`,
      webSocketDebuggerUrl: socketUrl(exchange, address, path),
    })
  },
  // A browser on a pipe does not offer its protocol: this is the one that we were built with.
  '/json/protocol': async (_, exchange) => {
    protocol ||= readProtocol()
    exchange.send(200, 'application/json', protocol)
  },
  '/json/new': async (door, exchange, address) => {
    const { method = '' } = exchange.request
    if (method !== 'PUT') {
      const text = `Using unsafe HTTP verb ${method} to invoke /json/new. Use PUT instead.`
      return exchange.send(405, 'text/html', text, ['Allow', 'PUT'])
    }
    const url = decodedUrl(address.rest)
    if (isInternalUrl(url) && !door.hosts.isOwn(address.browser)) {
      throw new HoldfastError('forbidden', 'the page is the browser’s own: see --own-browsers')
    }
    const tenant = await tenantOf(door, address)
    if (tenant.host.downloads !== null && !isOpenUrl(url)) {
      throw new HoldfastError('forbidden', 'this browser opens no files: see egress')
    }
    const id = await tenant.newPage(url)
    const blank = { targetId: id, type: 'page', title: '', url }
    exchange.reply(200, describe(exchange, address, tenant.target(id) ?? blank))
  },
}

/** `/json/activate/ID` and `/json/close/ID`: the command, and what is answered. */
const ACTIONS = {
  activate: ['Target.activateTarget', 'Target activated'],
  close: ['Target.closeTarget', 'Target is closing'],
} as const

export const serveJson: JsonHandler = async (door, exchange, address) => {
  const { path } = address
  if (path !== '/json/new') assertNoRest(address)
  const handler = Object.hasOwn(JSON_HANDLERS, path) ? JSON_HANDLERS[path] : undefined
  if (handler !== undefined) return handler(door, exchange, address)
  const [, action, targetId] = /^\/json\/(activate|close)\/([^/]+)$/.exec(path) ?? []
  if (action === undefined || targetId === undefined) {
    throw new HoldfastError('route_unknown', 'there is nothing at this path')
  }
  const tenant = await tenantOf(door, address)
  if (tenant.target(targetId) === null) {
    return exchange.send(404, 'text/html', `No such target id: ${targetId.replace(/[^\w-]/g, '')}`)
  }
  const [method, done] = ACTIONS[action as keyof typeof ACTIONS]
  await tenant.host.link.command(method, { targetId })
  exchange.send(200, 'text/html', done)
}

/** A request has no connection: without a key it is about the shared session. */
function tenantOf(door: CdpDoor, address: CallerAddress): Promise<BrowserTenant> {
  return door.withSession({ ...address, key: address.key ?? SHARED_KEY }, (tenant) => tenant)
}

async function sendList(door: CdpDoor, exchange: Exchange, address: CallerAddress): Promise<void> {
  const tenant = await tenantOf(door, address)
  await tenant.haveFirstPage()
  const pages = tenant.pages().map((info) => describe(exchange, address, info))
  exchange.reply(200, pages)
}

function decodedUrl(rest: string): string {
  if (rest === '') return 'about:blank'
  const text = rest.startsWith('url=') ? rest.slice(4) : rest
  try {
    return decodeURIComponent(text)
  } catch {
    // Like Chrome, take it as it is.
    return text
  }
}

function describe(exchange: Exchange, address: Address, info: TargetInfo): object {
  const { targetId: id, title, type, url, parentId } = info
  const key = address.key === undefined ? `key=${SHARED_KEY}` : ''
  const query = [address.query, key].filter((part) => part !== '').join('&')
  const webSocketDebuggerUrl = socketUrl(exchange, { ...address, query }, `/devtools/page/${id}`)
  return { description: '', id, parentId, title, type, url, webSocketDebuggerUrl }
}

/** With the host name that the client used, also behind a proxy with TLS. */
export function socketUrl(exchange: Exchange, { base, query }: Address, path: string): string {
  const host = exchange.header('host') ?? ''
  const scheme = exchange.header('x-forwarded-proto') === 'https' ? 'wss' : 'ws'
  const { basePath } = exchange.context
  return `${scheme}://${host}${basePath}${base}${path}${query === '' ? '' : `?${query}`}`
}

let protocol = ''

function readProtocol(): string {
  type Protocol = { readonly version: unknown; readonly domains: readonly unknown[] }
  const require = createRequire(import.meta.url)
  const [browser, script] = ['browser', 'js'].map(
    (name) => require(`devtools-protocol/json/${name}_protocol.json`) as Protocol,
  ) as [Protocol, Protocol]
  return JSON.stringify({ ...browser, domains: [...browser.domains, ...script.domains] })
}
