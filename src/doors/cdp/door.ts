/**
 * The CDP door: clients of the Chrome DevTools Protocol, any number of them on one browser, each
 * in a browser session that is a session of Holdfast. The browser is started when the first comes.
 */
import { randomUUID } from 'node:crypto'
import type { BrowserPool } from '../../browsers/index.ts'
import {
  limitsFrom,
  BROWSER_KEYS,
  HoldfastError,
  invalid,
  type AttachmentHandle,
  type Principal,
  type SessionHandle,
  type Unbound,
} from '../../core/index.ts'
import type { Address, CallerAddress } from './address.ts'
import { Client } from './client.ts'
import type { Params } from './command.ts'
import { HeldCarrier } from './held-carrier.ts'
import { Host } from './host.ts'
import { largestBeyond } from './largest.ts'
import { checkLimits } from './limits-check.ts'
import { CDP_LIMITS, type CdpLimits } from './limits.ts'
import { browserView, countsOf, type BrowserView, type CdpCounts } from './overview.ts'
import { Recording } from './recording.ts'
import { Seat, type Carrier } from './seat.ts'
import { Tenant } from './tenant.ts'

/** The key of those who name none, where there is no connection to tell them apart. */
export const SHARED_KEY = 'shared'

const LOSS = 'the browser said more at once than can be passed on'

/** The agent of browser sessions, if Holdfast has one of this name. */
export const BROWSER_AGENT = 'browser'

export type DoorOptions = {
  readonly holdfast: Unbound
  readonly pool: BrowserPool
  readonly limits?: Partial<CdpLimits>
  /** Where the traffic of those who want it is written down; without it nobody's is. */
  readonly recordings?: string
  /** What a browser is called in addresses, where several servers hand them out. */
  readonly browserIdOf?: (name: string) => string
}

export class CdpDoor {
  readonly holdfast: Unbound
  readonly limits: CdpLimits
  readonly #pool: BrowserPool
  readonly #recordings: string | null
  readonly #browserIdOf: (name: string) => string
  /** Names each browser in addresses, as Chrome does; new with every start of a server alone. */
  readonly #ids = new Map<string, string>()
  readonly #versions = new Map<string, Params>()
  /** By its place: those that start, too, and those that run. */
  readonly #hosts = new Map<string, Promise<Host>>()
  readonly #running = new Map<string, Host>()
  /** Places to which clients may come back, by attachment. */
  readonly #held = new Map<string, HeldSeat>()
  /** By the session's id. */
  readonly #tenants = new Map<string, Promise<Tenant>>()

  constructor({ holdfast, pool, limits = {}, recordings, browserIdOf }: DoorOptions) {
    this.#browserIdOf = browserIdOf ?? (() => randomUUID())
    this.#recordings = recordings ?? null
    this.holdfast = holdfast
    this.#pool = pool
    this.limits = limitsFrom(CDP_LIMITS, limits, 'cdpLimits')
    checkLimits(this.limits, pool)
  }

  /** The last part of `/devtools/browser/…`. */
  browserId(name: string): string {
    this.#pool.spec(name)
    const id = this.#ids.get(name) ?? this.#browserIdOf(name)
    this.#ids.set(name, id)
    return id
  }

  /** Every session has one of its own. */
  isOwn(name: string): boolean {
    const spec = this.#pool.spec(name)
    return 'own' in spec && spec.own === true
  }

  /** What a browser says of itself; asked once. */
  async version(name: string): Promise<Params> {
    const known = this.#versions.get(name)
    if (known !== undefined) return known
    const host = await this.host(name, null)
    const version = await host.link.command('Browser.getVersion')
    this.#versions.set(name, version)
    // Where every session has a browser of its own, nobody needs this one any more.
    if (this.isOwn(name)) host.stop()
    return version
  }

  /** The browser of a session, which is started if need be; most share one. */
  host(name: string, session: string | null): Promise<Host> {
    const isOwn = this.isOwn(name) && session !== null
    const place = isOwn ? `${name} ${session}` : name
    const known = this.#hosts.get(place)
    if (known !== undefined) return known
    const starting = this.#start({ name, place, isOwn })
    this.#hosts.set(place, starting)
    // The callers that wait for it are told; the next one starts another.
    starting.catch(() => {
      if (this.#hosts.get(place) === starting) this.#hosts.delete(place)
    })
    return starting
  }

  async #start({ name, place, isOwn }: Start): Promise<Host> {
    const { clock, limits } = this.#pool
    let host: Host | null = null
    const browser = await this.#pool.start(name, {
      message: (message) => host?.link.receive(message),
      tooLarge: (head, tail) => host?.link.lost(head, tail),
      closed: (reason) => this.#hostClosed(place, host, reason),
    })
    const facts = { name, isOwn, startedAt: clock.now(), clock }
    const started = new Host(browser, facts, this.limits)
    host = started
    const late = clock.after(limits.startMs, () => started.stop())
    try {
      await started.greet()
    } catch (error) {
      started.stop()
      throw error
    } finally {
      late()
    }
    this.#running.set(place, started)
    const { diagnose } = this.holdfast.authority
    diagnose('browser_started', 'a browser was started', { name, isOwn })
    started.watch(limits)
    started.onIdle = () => {
      const stop = (): void => this.#stopIdle(place, started)
      started.setTimer('idle', clock.after(isOwn ? 0 : limits.idleMs, stop))
    }
    started.onIdle()
    return started
  }

  #stopIdle(place: string, host: Host): void {
    if (host.tenants.size > 0 || host.expected > 0 || host.link.closed !== null) return
    this.#forget(place, host)
    host.stop()
  }

  /** Its place is free, unless another has it already. */
  #forget(place: string, host: Host | null): void {
    if (host === null || this.#running.get(place) !== host) return
    this.#running.delete(place)
    this.#hosts.delete(place)
  }

  /** A browser that ends takes its sessions with it, and each is told why. */
  #hostClosed(place: string, host: Host | null, reason: string): void {
    const isExpected = host !== null && this.#running.get(place) !== host
    const facts = { reason: isExpected ? 'stopped' : 'gone', name: place.split(' ')[0] ?? '' }
    const { diagnose } = this.holdfast.authority
    diagnose('browser_ended', 'a browser has ended', { ...facts, error: reason })
    this.#forget(place, host)
    host?.close(reason)
    const error = new HoldfastError('browser_gone', reason)
    for (const tenant of [...(host?.tenants ?? [])]) this.#endTenant(tenant, error)
  }

  /** The browser session that an address means; a new one if it names none. */
  async session(address: CallerAddress): Promise<SessionHandle> {
    const { browser, key, reconnect, graceMs, ttlMs, by } = address
    this.#pool.spec(browser)
    const { agents } = this.holdfast.authority
    return this.holdfast.as(by).resolveBrowser({
      ...(key === undefined ? {} : { key: keyOf(browser, key) }),
      ...(agents.includes(BROWSER_AGENT) ? { agent: BROWSER_AGENT } : {}),
      reconnect: reconnect ?? (key === undefined ? 'none' : 'reopen'),
      ...(graceMs === undefined ? {} : { graceMs }),
      ttlMs: ttlMs ?? this.limits.idleSessionMs,
      labels: { door: 'cdp', browser },
    })
  }

  /** Throws if the session of this key is another node's. Makes none. */
  async assertHere({ browser, key }: Address): Promise<void> {
    if (key === undefined) return
    const own = BROWSER_KEYS + keyOf(browser, key)
    const query = { key: own, state: 'open', limit: 1 } as const
    const [row] = (await this.holdfast.list(query)).sessions
    if (row !== undefined) await this.holdfast.authority.view(row.id)
  }

  /** What a session has of its browser; made when it is first needed. */
  tenant(browser: string, session: SessionHandle): Promise<Tenant> {
    const known = this.#tenants.get(session.id)
    if (known !== undefined) return known
    const made = this.#makeTenant(browser, session)
    this.#tenants.set(session.id, made)
    // The callers that wait for it are told; the next one makes another.
    made.catch(() => this.#tenants.delete(session.id))
    return made
  }

  async #makeTenant(browser: string, session: SessionHandle): Promise<Tenant> {
    const host = await this.host(browser, session.id)
    if (host.tenants.size + host.expected >= this.limits.browserSessionsMax) {
      throw new HoldfastError('too_many', 'this browser has as many sessions as it may have')
    }
    host.expected += 1
    try {
      // Before anything is made: if the session cannot be read, nothing of it stays behind.
      const { seq } = await session.state()
      const { limits } = this
      const tenant = new Tenant({ host, session, home: await homeOf(host), limits })
      if (!this.#hasOnePage(browser)) await openFirstPage(tenant)
      host.tenants.add(tenant)
      void this.#follow(tenant, seq)
      return tenant
    } finally {
      host.expected -= 1
      // Who failed to come may have been the one for whom it was not stopped.
      if (host.tenants.size === 0) host.onIdle()
    }
  }

  /** One that has room for no other page than the one that its client opens. */
  #hasOnePage(browser: string): boolean {
    const spec = this.#pool.spec(browser)
    return 'repair' in spec && spec.repair === true
  }

  /** Obeys the log: an attachment that ended is gone, and a closed session is over (I9). */
  async #follow(tenant: Tenant, after: number): Promise<void> {
    let error = new HoldfastError('session_closed', 'the session is closed')
    try {
      for await (const event of tenant.session.events({ after })) {
        if (event.type !== 'attachment.ended') continue
        // It ends with the session, which is what its client is told.
        if (event.reason === 'session_closed') continue
        const ended = new HoldfastError('attachment_ended', event.reason)
        tenant.seat(event.attachment)?.end(ended)
      }
    } catch (thrown) {
      error = thrown instanceof HoldfastError ? thrown : error
    }
    this.#endTenant(tenant, error)
  }

  #endTenant(tenant: Tenant, error: HoldfastError): void {
    if (!tenant.host.tenants.delete(tenant)) return
    this.#tenants.delete(tenant.session.id)
    for (const seat of [...tenant.seats]) seat.end(error)
    tenant.end()
    if (tenant.host.tenants.size === 0) tenant.host.onIdle()
    // Closed already, unless it is the browser that is gone.
    void this.closeSession(tenant.session, error.code)
  }

  /** Closes what no client asked to close: the browser is gone, or nothing came of it. */
  async closeSession({ id }: SessionHandle, reason: string): Promise<void> {
    // Whoever holds it next finds it without a browser.
    await this.holdfast.authority.close(id, reason, null).catch(() => undefined)
  }

  /** A place for a client; its socket comes next. */
  async admit(address: CallerAddress, newcomer: Newcomer): Promise<Seat> {
    if (address.record && this.#recordings === null) {
      throw invalid('record', 'is not possible: this server was not started with --record')
    }
    const session = await this.session(address)
    try {
      const tenant = await this.tenant(address.browser, session)
      return await this.#seat(tenant, newcomer, address)
    } catch (error) {
      // A session that was made for this connection goes with it.
      if (session.isNew) await this.closeSession(session, 'refused')
      throw error
    }
  }

  async #seat(tenant: Tenant, newcomer: Newcomer, address: CallerAddress): Promise<Seat> {
    this.#assertRoom(tenant, newcomer)
    tenant.expected += 1
    try {
      return await this.#makeSeat(tenant, newcomer, address)
    } finally {
      tenant.expected -= 1
    }
  }

  async #makeSeat(
    tenant: Tenant,
    { carrier, target }: Newcomer,
    { record, by }: CallerAddress,
  ): Promise<Seat> {
    const recording = record ? await this.#record(tenant) : null
    const upstream = await attach(tenant, target)
    try {
      const { attachment, vacant } = await this.#attachment(tenant, carrier, by)
      const { closed } = tenant.host.link
      // Its session is being closed, and with it this attachment.
      if (closed !== null) throw new HoldfastError('browser_gone', closed)
      const seat = new Seat({ tenant, carrier, attachment })
      const onBrowserClose = (): void => {
        // It may be closed already.
        void tenant.session
          .as(by)
          .close('browser_closed')
          .catch(() => undefined)
      }
      const onLoss = (): void => seat.giveUp(new HoldfastError('message_too_large', LOSS))
      const onTargetClosed = (): void =>
        seat.giveUp(new HoldfastError('target_unknown', 'the page is closed'))
      const told = { outlet: carrier, recording, onBrowserClose, onLoss, onTargetClosed }
      seat.client = new Client({ tenant, upstream, target, ...told })
      vacant?.give(seat)
      if (carrier instanceof HeldCarrier) this.#keep(seat, carrier)
      return seat
    } catch (error) {
      recording?.close()
      tenant.host.detach('', upstream)
      throw error
    }
  }

  #assertRoom(tenant: Tenant, { carrier, target }: Newcomer): void {
    const { clientsMax, browserClientsMax } = this.limits
    // Who comes back by a key alone takes a place that is there already.
    const isFull = tenant.placesFor(carrier.mayReturn) >= clientsMax
    if (isFull || tenant.host.places >= browserClientsMax) {
      throw new HoldfastError('too_many', 'too many clients are connected to this browser')
    }
    if (target === null || tenant.target(target) !== null) return
    throw new HoldfastError('target_unknown', 'there is no such target')
  }

  #record({ session }: Tenant): Promise<Recording> {
    const { clock } = this.#pool
    const folder = this.#recordings ?? ''
    const name = `${session.id.replaceAll(/[^\w-]/g, '_')}-${randomUUID()}`
    return Recording.open({ folder, name, clock, limits: this.limits })
  }

  #keep(seat: Seat, carrier: HeldCarrier): void {
    const { id } = seat.attachment
    this.#held.set(id, { seat, carrier })
    seat.onEnd = () => this.#held.delete(id)
  }

  /** The place that an attachment has, for a client that comes back. */
  heldSeat(attachment: string): HeldSeat | null {
    return this.#held.get(attachment) ?? null
  }

  /** What is kept for clients that may come back is bounded for all of them together, too. */
  boundHeld(): void {
    const { heldTotalBytesMax } = this.limits
    const kept = ({ carrier }: HeldSeat): number => carrier.keptBytes
    for (const { carrier } of largestBeyond(this.#held.values(), kept, heldTotalBytesMax)) {
      carrier.onOverflow()
    }
  }

  /** The place of a client that was lost, if there is one: who comes back by its key gets it. */
  async #attachment(
    tenant: Tenant,
    { mayReturn }: Carrier,
    by: Principal,
  ): Promise<{ readonly attachment: AttachmentHandle; readonly vacant: Seat | null }> {
    const vacant = [...tenant.seats].find((seat) => seat.isVacant) ?? null
    if (vacant !== null && !mayReturn) {
      vacant.isVacant = false
      try {
        await vacant.attachment.resume(by)
        return { attachment: vacant.attachment, vacant }
      } catch {
        // The authority did not keep the place.
      }
    }
    const wish = { role: 'driver', resumable: mayReturn } as const
    const attachment = await tenant.session.as(by).attach(wish)
    return { attachment, vacant: null }
  }

  /** What is held now, all browsers together: to see that nothing is left behind. */
  async counts(): Promise<CdpCounts> {
    await Promise.allSettled(this.#hosts.values())
    return this.countsNow()
  }

  /** The same, without those that are just starting. */
  countsNow(): CdpCounts {
    return countsOf([...this.#running.values()])
  }

  browsers(): Promise<readonly BrowserView[]> {
    return Promise.all([...this.#running.values()].map(browserView))
  }

  async close(): Promise<void> {
    const error = new HoldfastError('draining', 'the server is about to stop')
    for (const made of [...this.#tenants.values()]) {
      // One that could not be made has no clients.
      const tenant = await made.catch(() => null)
      for (const seat of [...(tenant?.seats ?? [])]) seat.end(error)
    }
    await this.#pool.close()
  }
}

type Start = { readonly name: string; readonly place: string; readonly isOwn: boolean }

/** Who comes: what carries its messages, and the page it is for; null: the browser. */
export type Newcomer = { readonly carrier: Carrier; readonly target: string | null }

export type HeldSeat = { readonly seat: Seat; readonly carrier: HeldCarrier }

/** What the rest of Holdfast knows the session of a client's key by. */
function keyOf(browser: string, key: string): string {
  return `${browser}:${key}`
}

async function attach({ host }: Tenant, targetId: string | null): Promise<string> {
  const { sessionId } =
    targetId === null
      ? await host.link.command('Target.attachToBrowserTarget')
      : await host.link.command('Target.attachToTarget', { targetId, flatten: true })
  return String(sessionId)
}

/** The context that a session's clients take for the default: in a browser of its own it is. */
async function homeOf({ link, isOwn }: Host): Promise<string> {
  const { defaultBrowserContextId } = isOwn ? await link.command('Target.getBrowserContexts') : {}
  if (typeof defaultBrowserContextId === 'string') return defaultBrowserContextId
  const { browserContextId } = await link.command('Target.createBrowserContext')
  return String(browserContextId)
}

/** As Chrome has one when it starts. */
async function openFirstPage(tenant: Tenant): Promise<void> {
  try {
    await tenant.haveFirstPage()
  } catch (error) {
    tenant.end()
    throw error
  }
}
