/// <reference types="node" preserve="true" />
/** `holdfast/cdp`: clients of a browser behind Holdfast that survive a lost connection. */
import { HeldConnection, type HeldConnectionOptions } from './connection.ts'

export {
  HeldConnection,
  HeldError,
  type HeldConnectionOptions,
  type HeldState,
} from './connection.ts'
export { startRelay, type Relay, type RelayOptions } from './relay.ts'
export type { HeldOptions } from './address.ts'

/** What Puppeteer's `connect({ transport })` takes. */
export type PuppeteerTransport = {
  send(message: string): void
  close(): void
  onmessage?: (message: string) => void
  onclose?: () => void
  readonly connection: HeldConnection
}

/** What Playwright's `chromium.connectOverCDP(transport)` takes. */
export type PlaywrightTransport = {
  send(message: object): void
  close(): void
  onmessage?: (message: object) => void
  onclose?: (reason?: string) => void
  readonly connection: HeldConnection
}

/** For `puppeteer.connect({ transport: await puppeteerTransport('http://HOST/cdp/NAME') })`. */
export async function puppeteerTransport(
  address: string,
  options: HeldConnectionOptions = {},
): Promise<PuppeteerTransport> {
  const connection = await HeldConnection.open(address, options)
  const transport: PuppeteerTransport = {
    connection,
    send: (message) => connection.send(message),
    close: () => connection.close(),
  }
  connection.onMessage = (message) => transport.onmessage?.(message)
  connection.onClosed = () => transport.onclose?.()
  return transport
}

/** For `chromium.connectOverCDP(await playwrightTransport('http://HOST/cdp/NAME'))`. */
export async function playwrightTransport(
  address: string,
  options: HeldConnectionOptions = {},
): Promise<PlaywrightTransport> {
  const connection = await HeldConnection.open(address, options)
  const transport: PlaywrightTransport = {
    connection,
    send: (message) => connection.send(JSON.stringify(message)),
    close: () => connection.close(),
  }
  connection.onMessage = (message) => transport.onmessage?.(JSON.parse(message) as object)
  connection.onClosed = ({ message }) => transport.onclose?.(message)
  return transport
}
