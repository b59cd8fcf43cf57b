/// <reference types="node" preserve="true" />
/** `holdfast/cdp`: clients of a browser behind Holdfast that survive a lost connection. */
import { HeldConnection, type HeldConnectionOptions } from './connection.ts'

export {
  HeldConnection,
  HeldError,
  type HeldConnectionOptions,
  type HeldOptions,
  type HeldState,
} from './connection.ts'
export { startRelay, type Relay, type RelayOptions } from './relay.ts'

type Transport<Message> = {
  send(message: Message): void
  close(): void
  onmessage?: (message: Message) => void
  onclose?: (reason?: string) => void
  readonly connection: HeldConnection
}

/** What Puppeteer's `connect({ transport })` takes. */
export type PuppeteerTransport = Transport<string>

/** What Playwright's `chromium.connectOverCDP(transport)` takes. */
export type PlaywrightTransport = Transport<object>

/** For `puppeteer.connect({ transport: await puppeteerTransport('http://HOST/cdp/NAME') })`. */
export function puppeteerTransport(
  address: string,
  options: HeldConnectionOptions = {},
): Promise<PuppeteerTransport> {
  return openTransport<string>(HeldConnection.open(address, options), String, String)
}

/** For `chromium.connectOverCDP(await playwrightTransport('http://HOST/cdp/NAME'))`. */
export function playwrightTransport(
  address: string,
  options: HeldConnectionOptions = {},
): Promise<PlaywrightTransport> {
  const read = (text: string): object => JSON.parse(text) as object
  return openTransport<object>(HeldConnection.open(address, options), JSON.stringify, read)
}

async function openTransport<Message>(
  opening: Promise<HeldConnection>,
  write: (message: Message) => string,
  read: (text: string) => Message,
): Promise<Transport<Message>> {
  const connection = await opening
  const transport: Transport<Message> = {
    connection,
    send: (message) => connection.send(write(message)),
    close: () => connection.close(),
  }
  connection.onMessage = (text) => transport.onmessage?.(read(text))
  connection.onClosed = ({ message }) => transport.onclose?.(message)
  return transport
}
