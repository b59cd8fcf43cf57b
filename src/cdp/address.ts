/** From what a person knows, `http://HOST/cdp/NAME`, to the socket that may be taken up again. */
export type HeldOptions = {
  /** Clients that name the same key share one browser session, and find it again. */
  readonly key?: string
  readonly token?: string
  readonly reconnect?: 'none' | 'early' | 'resume' | 'reopen'
  readonly graceMs?: number
  readonly ttlMs?: number
  /** Writes the traffic down, where the server was started with `--record`. */
  readonly record?: boolean
}

/** `below`: what of the browser it is for, `/page/ID`; nothing is the browser itself. */
export function heldAddress(address: string, options: HeldOptions = {}, below = ''): string {
  const url = new URL(address)
  url.protocol = url.protocol.replace('http', 'ws')
  url.pathname = `${url.pathname.replace(/\/+$/, '')}/held${below}`
  for (const name of ['key', 'reconnect', 'graceMs', 'ttlMs'] as const) {
    const value = options[name]
    if (value !== undefined) url.searchParams.set(name, String(value))
  }
  if (options.record === true) url.searchParams.set('record', '1')
  return url.href
}
