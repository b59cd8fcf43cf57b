/** A server as a client sees it: an address, a token, and sessions to open. */
import { HoldfastClientError } from './endings.ts'
import {
  connectUrl,
  defaultStorage,
  defaultWebSocket,
  systemClock,
  type ClientClock,
  type ClientSocketClass,
  type ClientStorage,
  type Platform,
} from './platform.ts'
import { ClientSession, type ClientSessionOptions } from './session.ts'

export type ConnectOptions = {
  /** Where the server is (http, https, ws or wss); without it, where the page came from. */
  readonly url?: string
  readonly token?: string
  /** An implementation of WebSocket, where there is none: in Node 20, that of `ws`. */
  readonly webSocket?: ClientSocketClass
  /** Where a page's place is kept over a reload; null: nowhere. */
  readonly storage?: ClientStorage | null
  readonly clock?: ClientClock
  /** A number from 0 to 1. */
  readonly random?: () => number
}

/** Opens nothing by itself: every session has its own socket. */
export function connect(options: ConnectOptions = {}): Client {
  return new Client(options)
}

export class Client {
  readonly #platform: Platform
  readonly #url: string
  readonly #token: string | undefined

  constructor(options: ConnectOptions) {
    const { url = '', token, webSocket, storage, clock, random } = options
    this.#url = connectUrl(url)
    this.#token = token
    this.#platform = {
      webSocket: webSocket ?? defaultWebSocket(),
      storage: storage === undefined ? defaultStorage() : storage,
      clock: clock ?? systemClock,
      random: random ?? Math.random,
    }
  }

  /** Attaches to a session, and starts at once. */
  session(options: ClientSessionOptions): ClientSession {
    if ((options.key === undefined) === (options.id === undefined)) {
      throw new HoldfastClientError('bad_request', 'a session needs a `key` or an `id`, not both')
    }
    return new ClientSession(this.#platform, { url: this.#url, token: this.#token }, options)
  }
}
