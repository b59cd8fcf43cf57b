/**
 * What the client needs from a browser or from Node, as seams: a socket, a place to remember
 * things, time, chance, and the window's news about the network.
 */
import { HoldfastClientError } from './endings.ts'

export type ClientSocketEvent = {
  readonly type?: string
  readonly data?: unknown
  readonly code?: number
  readonly reason?: string
}

/** What the client uses of a WebSocket: the browser's own and that of `ws` have it. */
export interface ClientSocket {
  send(data: string): void
  close(code?: number): void
  /** Cuts it without a goodbye, where that is possible. */
  terminate?(): void
  addEventListener(
    type: 'open' | 'message' | 'close' | 'error',
    listener: (event: ClientSocketEvent) => void,
  ): void
}

export type ClientSocketClass = new (url: string) => ClientSocket

export interface ClientStorage {
  getItem(key: string): string | null
  setItem(key: string, value: string): void
  removeItem(key: string): void
}

export interface ClientClock {
  /** Milliseconds since 1970. */
  now(): number
  /** Runs once after `ms`; the returned function cancels it. */
  after(ms: number, run: () => void): () => void
}

export type Platform = {
  readonly webSocket: ClientSocketClass
  readonly storage: ClientStorage | null
  readonly clock: ClientClock
  /** From 0 to 1. */
  readonly random: () => number
}

/** The parts of a browser that Node lacks, all of them or some. */
type BrowserGlobals = {
  readonly window?: {
    addEventListener(type: string, listener: () => void): void
    removeEventListener(type: string, listener: () => void): void
  }
  readonly location?: { readonly origin: string }
  readonly sessionStorage?: ClientStorage
  readonly WebSocket?: ClientSocketClass
}

const browser = globalThis as unknown as BrowserGlobals

export const systemClock: ClientClock = {
  now: () => Date.now(),
  after(ms, run) {
    const timer = setTimeout(run, ms)
    return () => clearTimeout(timer)
  },
}

export function defaultWebSocket(): ClientSocketClass {
  if (browser.WebSocket !== undefined) return browser.WebSocket
  throw new HoldfastClientError('bad_request', 'there is no WebSocket here: pass `webSocket`')
}

/** A page may be forbidden to remember anything: then it does not. */
export function defaultStorage(): ClientStorage | null {
  try {
    return browser.window === undefined ? null : (browser.sessionStorage ?? null)
  } catch {
    return null
  }
}

/** Where the sockets of this server are, from its address, or from the page's own. */
export function connectUrl(base: string): string {
  const origin = base === '' ? browser.location?.origin : base
  if (origin === undefined || !/^(http|ws)s?:\/\//.test(origin)) {
    throw new HoldfastClientError('bad_request', '`url` must begin with http, https, ws or wss')
  }
  return `${origin.replace(/^http/, 'ws').replace(/\/+$/, '')}/v1/connect`
}

/** Tells when the network comes or goes, where there is a window; the result stops that. */
export function watchNetwork(online: () => void, offline: () => void): () => void {
  const { window } = browser
  window?.addEventListener('online', online)
  window?.addEventListener('offline', offline)
  return () => {
    window?.removeEventListener('online', online)
    window?.removeEventListener('offline', offline)
  }
}
