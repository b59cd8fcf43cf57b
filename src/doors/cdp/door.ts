/**
 * The CDP door: any number of clients of the Chrome DevTools Protocol on one browser, each in a
 * browser session, which is a session of Holdfast.
 */
import { randomUUID } from 'node:crypto'
import { memoryOf, type BrowserPool } from '../../browsers/index.ts'
import {
  HoldfastError,
  invalid,
  limitsFrom,
  scopesOn,
  type Caller,
  type Principal,
  type SessionHandle,
  type Unbound,
} from '../../core/index.ts'
import type { CallerAddress } from './address.ts'
import { CdpClient } from './client.ts'
import { HeldCarrier, type AttachedClient, type Carrier } from './attached-client.ts'
import { BrowserHosts, madeOnce, type BrowserHost } from './host.ts'
import { CDP_LIMITS, checkLimits, largestBeyond, type CdpLimits } from './limits.ts'
import { Recording } from './recording.ts'
import { CDP_RULES } from './rules.ts'
import { Screenshots } from './screenshots.ts'
import type { TargetInfo } from './targets.ts'
import { BrowserTenant } from './tenant.ts'

/** The prefix of the keys of browser sessions, which only this door uses. */
export const BROWSER_KEYS = 'cdp:'

/** The key of requests that name none and have no connection to tell them apart. */
export const SHARED_KEY = 'shared'

/** The agent of browser sessions, if Holdfast has one of this name. */
export const BROWSER_AGENT = 'browser'

export type DoorOptions = {
  readonly holdfast: Unbound
  readonly pool: BrowserPool
  readonly limits?: Partial<CdpLimits>
  /** The folder of recordings; without it none can be made. */
  readonly recordings?: string
  /** The id of a browser in addresses, if several servers hand them out. */
  readonly browserIdOf?: (name: string) => string
}

/** A client that wants to enter: its connection, and the page it is for; null: the browser. */
export type EnteringClient = { readonly carrier: Carrier; readonly target: string | null }

export type HeldClient = CdpClient & { readonly carrier: HeldCarrier }

export class CdpDoor {
  readonly holdfast: Unbound
  readonly limits: CdpLimits
  readonly #pool: BrowserPool
  readonly hosts: BrowserHosts
  readonly #recordings: string | null
  readonly #browserIdOf: (name: string) => string
  readonly #ids = new Map<string, string>()
  /** By the session's id; those too that are being made. */
  readonly #sessions = new Map<string, Promise<BrowserTenant>>()
  readonly #open = new Set<BrowserTenant>()
  readonly #screenshots: Screenshots

  constructor({ holdfast, pool, limits = {}, recordings, browserIdOf }: DoorOptions) {
    this.#browserIdOf = browserIdOf ?? (() => randomUUID())
    this.#recordings = recordings ?? null
    this.holdfast = holdfast
    this.#pool = pool
    this.#screenshots = new Screenshots(pool.clock)
    this.limits = limitsFrom(CDP_LIMITS, limits, 'cdpLimits')
    checkLimits(this.limits, pool)
    const { diagnose } = holdfast.authority
    const onEnd = (host: BrowserHost, reason: string): void => {
      const error = new HoldfastError('browser_gone', reason)
      for (const each of this.#on(host)) this.#endSession(each, error)
    }
    this.hosts = new BrowserHosts({ pool, limits: this.limits, diagnose, onEnd })
  }

  /** The last part of `/devtools/browser/…`. */
  browserId(name: string): string {
    this.#pool.spec(name)
    const id = this.#ids.get(name) ?? this.#browserIdOf(name)
    this.#ids.set(name, id)
    return id
  }

  #on(host: BrowserHost): readonly BrowserTenant[] {
    return [...this.#open].filter((tenant) => tenant.host === host)
  }

  /**
   * Uses the browser session that an address names, or a new one if it names none. If that fails, a
   * session that was created for it is closed.
   */
  async withSession<Result>(
    address: CallerAddress,
    use: (entered: BrowserTenant) => Result | Promise<Result>,
  ): Promise<Result> {
    let uncount = await this.#count(address)
    try {
      const session = await this.#resolve(address)
      try {
        const tenant = await this.browserSession(address.browser, session)
        // It is counted until it ends, for the first that asked for it.
        if (this.#open.has(tenant) && tenant.uncount === null) {
          ;[tenant.uncount, uncount] = [uncount, null]
        }
        return await use(tenant)
      } catch (error) {
        if (session.isNew) await this.#closeSession(session, 'refused')
        throw error
      }
    } finally {
      uncount?.()
    }
  }

  /** Counts a browser session that may have to be made; throws if its principal has too many. */
  async #count({ browser, key, session, by, access }: CallerAddress): Promise<(() => void) | null> {
    if (session !== undefined) return null
    const allowance = this.holdfast.authority.usage.ofCaller(access)
    if (allowance === null || !allowance.has('browserSessions')) return null
    const holdfast = this.holdfast.as(by, access)
    const known = key === undefined ? null : await holdfast.find(keyOf(browser, key))
    if (known !== null && this.#sessions.has(known.id)) return null
    // Throws if another node has it: that one counts it.
    await known?.state()
    return allowance.take('browserSessions')
  }

  async #resolve(address: CallerAddress) {
    const { browser, key, reconnect, graceMs, ttlMs, by, access } = address
    this.#pool.spec(browser)
    if (address.session !== undefined) return this.#known(address.session, address)
    const { agents } = this.holdfast.authority
    return this.holdfast.as(by, access).resolveReserved({
      ...(key === undefined ? {} : { key: keyOf(browser, key) }),
      ...(agents.includes(BROWSER_AGENT) ? { agent: BROWSER_AGENT } : {}),
      reconnect: reconnect ?? (key === undefined ? 'none' : 'reopen'),
      ...(graceMs === undefined ? {} : { graceMs }),
      ttlMs: ttlMs ?? this.limits.idleSessionMs,
      labels: { door: 'cdp', browser },
    })
  }

  /** A browser session by its id. Throws unless the caller may use it, and it has its browser. */
  async #known(id: string, { by, access }: Caller): Promise<SessionHandle> {
    const session = this.holdfast.as(by, access).session(id)
    await session.assertMay('browser.use')
    await this.tenantOf(session)
    return session
  }

  /** The part of a browser that a session has. Throws if it has none, or is another node's. */
  async tenantOf(session: SessionHandle): Promise<BrowserTenant> {
    const found = [...this.#open].find((tenant) => tenant.session.id === session.id)
    if (found !== undefined) return found
    await session.state()
    throw new HoldfastError('target_unknown', 'the session has no browser')
  }

  /** A JPEG of a page of a session; without an id, of its newest. */
  async screenshot(session: SessionHandle, page?: string): Promise<Buffer> {
    return this.#screenshots.of(await this.tenantOf(session), page)
  }

  /** Throws if the session of this key belongs to another node. Creates none. */
  async assertHere({ browser, key, by, access }: CallerAddress): Promise<void> {
    if (key === undefined) return
    await (await this.holdfast.as(by, access).find(keyOf(browser, key)))?.state()
  }

  /** The browser session of a session of Holdfast; made when it is first needed. */
  browserSession(browser: string, session: SessionHandle): Promise<BrowserTenant> {
    return madeOnce(this.#sessions, session.id, () => this.#makeSession(browser, session))
  }

  async #makeSession(browser: string, session: SessionHandle): Promise<BrowserTenant> {
    const host = await this.hosts.host(browser, session.id)
    if (host.sessions >= this.limits.browserSessionsMax) {
      throw new HoldfastError('too_many', 'this browser has as many sessions as it may have')
    }
    host.sessions += 1
    let tenant: BrowserTenant | null = null
    try {
      // First, so that nothing is left behind if the session cannot be read.
      const { seq } = await session.state()
      const home = await homeOf(host)
      // It outlives what its first client may do.
      const own = session.as(session.by)
      tenant = new BrowserTenant({ session: own, host, home, limits: this.limits })
      // A page as Chrome has one when it starts. A repaired backend has room for one page only,
      // which its client opens.
      if (this.#pool.spec(browser).repair !== true) await tenant.haveFirstPage()
      this.#open.add(tenant)
      this.#boundDownloads(tenant)
      void this.#follow(tenant, seq)
      return tenant
    } catch (error) {
      tenant?.end()
      this.#leaveHost(host)
      throw error
    }
  }

  #boundDownloads(tenant: BrowserTenant): void {
    tenant.watchDownloads(() => {
      const { downloadBytesMax: limit } = this.limits
      const facts = { reason: 'downloads', session: tenant.session.id, limit }
      const message = 'a browser session was ended: its downloads are too large'
      this.holdfast.authority.diagnose('limit_reached', message, facts)
      this.#endSession(tenant, new HoldfastError('quota_exceeded', `${limit} bytes of downloads`))
    })
  }

  #leaveHost(host: BrowserHost): void {
    host.sessions -= 1
    this.hosts.stopWhenIdle(host)
  }

  /** Follows the log: ends clients whose attachment has ended, and closed sessions (I9). */
  async #follow(tenant: BrowserTenant, after: number): Promise<void> {
    let error = new HoldfastError('session_closed', 'the session is closed')
    try {
      for await (const event of tenant.session.events({ after })) {
        if (event.type !== 'attachment.ended') continue
        // It ends with the session, and its client gets the session's reason.
        if (event.reason === 'session_closed') continue
        const ended = new HoldfastError('attachment_ended', event.reason)
        for (const client of [...tenant.clients]) {
          if (client.attachment.id === event.attachment) client.end(ended)
        }
      }
    } catch (thrown) {
      error = thrown instanceof HoldfastError ? thrown : error
    }
    this.#endSession(tenant, error)
  }

  #endSession(tenant: BrowserTenant, error: HoldfastError): void {
    const { session, clients } = tenant
    if (!this.#open.delete(tenant)) return
    this.#sessions.delete(session.id)
    for (const client of [...clients]) client.end(error)
    tenant.end()
    this.#leaveHost(tenant.host)
    // It is closed already, unless the browser is gone.
    void this.#closeSession(session, error.code)
  }

  /** Closes a session for the door itself: its browser is gone, or its client was refused. */
  async #closeSession({ id }: SessionHandle, reason: string): Promise<void> {
    // If this fails, the node that loads it next finds it without a browser.
    await this.holdfast.authority.close(id, reason, null).catch(() => undefined)
  }

  /** Attaches a client; its socket is opened next. */
  async admit(address: CallerAddress, entering: EnteringClient): Promise<CdpClient> {
    if (address.record === '1' && this.#recordings === null) {
      throw invalid('record', 'is not possible: this server was not started with --record')
    }
    return this.withSession(address, (tenant) => this.#attachClient(tenant, entering, address))
  }

  async #attachClient(
    tenant: BrowserTenant,
    entering: EnteringClient,
    { record, by, access, session: wanted }: CallerAddress,
  ): Promise<CdpClient> {
    const { session, host } = tenant
    const { carrier, target } = entering
    this.#assertRoom(tenant, entering)
    tenant.entering += 1
    let upstream: string | null = null
    let recording: Recording | null = null
    try {
      upstream = await host.link.attachTo(target)
      if (record === '1') {
        const [folder, { clock }, { limits }] = [this.#recordings ?? '', this.#pool, this]
        recording = await Recording.open({ folder, session: session.id, clock, limits })
      }
      // Who asks for a session by its id comes besides its clients, and takes the place of none.
      const isBeside = carrier.mayReturn || wanted !== undefined
      const lost = isBeside ? null : await resumedClient(tenant, by)
      const options = { role: 'driver', resumable: carrier.mayReturn } as const
      const attachment = lost?.attachment ?? (await session.as(by, access).attach(options))
      // Its session is being closed, and with it this attachment.
      if (host.link.closed !== null) throw new HoldfastError('browser_gone', host.link.closed)
      const place = { tenant, upstream, target, carrier, attachment, by }
      const client = new CdpClient({ ...place, recording, rules: CDP_RULES })
      if (lost !== null) tenant.handOver(lost, client)
      return client
    } catch (error) {
      recording?.close()
      if (upstream !== null) host.link.detach('', upstream)
      throw error
    } finally {
      tenant.entering -= 1
    }
  }

  #assertRoom(tenant: BrowserTenant, { carrier, target }: EnteringClient): void {
    const { clientsMax, browserClientsMax } = this.limits
    const onBrowser = sum(this.#on(tenant.host), (each) => each.clientsFor(false))
    if (tenant.clientsFor(carrier.mayReturn) >= clientsMax || onBrowser >= browserClientsMax) {
      throw new HoldfastError('too_many', 'too many clients are connected to this browser')
    }
    if (target === null || tenant.target(target) !== null) return
    throw new HoldfastError('target_unknown', 'there is no such target')
  }

  #heldClients(): readonly HeldClient[] {
    return [...this.#open].flatMap(({ clients }) => [...clients].filter(isHeld))
  }

  /** The client of an attachment, for a connection that comes back. */
  heldClient(attachment: string): HeldClient | null {
    return this.#heldClients().find((held) => held.attachment.id === attachment) ?? null
  }

  /** Ends clients with the most unconfirmed messages while all of them exceed the total limit. */
  boundHeld(): void {
    const kept = ({ carrier }: HeldClient): number => carrier.replay.bytes
    const most = largestBeyond(this.#heldClients(), kept, this.limits.heldTotalBytesMax)
    for (const { carrier } of most) carrier.giveUp()
  }

  /** What all browsers hold now, including those that are starting. */
  async counts(): Promise<CdpCounts> {
    await this.hosts.settled()
    return this.countsNow()
  }

  countsNow() {
    const hosts = this.hosts.running
    return {
      browsers: hosts.length,
      sessions: this.#open.size,
      clients: clientsOf([...this.#open]),
      /** Sessions of clients with targets. */
      attached: sum(hosts, ({ link }) => link.sessions),
      /** Commands without a reply. */
      waiting: sum(hosts, ({ link }) => link.unanswered),
      pages: sum(hosts, ({ targets }) => targets.pages),
    }
  }

  /** The running browsers that a caller may use, with the sessions on them that it may see. */
  async browsers(caller: Caller): Promise<readonly BrowserView[]> {
    await Promise.all(this.hosts.running.map((host) => host.readTitles()))
    const { access } = caller
    const isAdmin = access === null || access.scopes.includes('admin')
    const { heldSession } = this.holdfast.authority
    const isVisible = ({ session: { id } }: BrowserTenant): boolean => {
      const session = heldSession(id)
      return access === null || (session !== null && scopesOn(caller, session).length > 0)
    }
    const views = this.hosts.running.flatMap((host) => {
      const { name, isOwn } = host.facts
      const tenants = this.#on(host).filter(isVisible)
      const isEmpty = tenants.length === 0 && (isOwn || !isAdmin)
      if (access?.browsers?.includes(name) === false || isEmpty) return []
      return [browserView(host, tenants, isAdmin)]
    })
    return Promise.all(views)
  }

  async close(): Promise<void> {
    const error = new HoldfastError('draining', 'the server is about to stop')
    for (const made of [...this.#sessions.values()]) {
      // One that could not be made has no clients.
      const session = await made.catch(() => null)
      for (const client of [...(session?.clients ?? [])]) client.end(error)
    }
    await this.#pool.close()
  }
}

/** A lost client whose attachment another one with the same key gets; null: there is none. */
async function resumedClient({ clients }: BrowserTenant, by: Principal) {
  const lost = [...clients].find(({ isLost }) => isLost)
  if (lost === undefined) return null
  lost.isLost = false
  try {
    await lost.attachment.resume(by)
    return lost
  } catch {
    // The authority has not kept it.
    return null
  }
}

function isHeld(attached: AttachedClient): attached is HeldClient {
  return attached.carrier instanceof HeldCarrier
}

export type CdpCounts = Readonly<ReturnType<CdpDoor['countsNow']>>

export type BrowserView = Readonly<Awaited<ReturnType<typeof browserView>>>

/** One browser that runs. */
async function browserView(host: BrowserHost, tenants: readonly BrowserTenant[], isAdmin: boolean) {
  const { facts, isSilent, browser } = host
  const { name, isOwn, startedAt } = facts
  const own = isOwn ? tenants[0]?.session : undefined
  return {
    name,
    /** The session that it belongs to; null: it is shared. */
    session: own?.id ?? null,
    key: own?.key ?? null,
    /** `silent`: it was pinged and has not answered yet. */
    health: isSilent ? ('silent' as const) : ('good' as const),
    /** Null: Holdfast has not started it, or the caller is no administrator. */
    pid: isAdmin ? (browser.pid ?? null) : null,
    sessions: tenants.length,
    clients: clientsOf(tenants),
    pages: sum(tenants, (tenant) => tenant.pages().length),
    startedAt,
    /** Of all its processes together; null where that is not known. */
    memoryBytes: isAdmin ? await memoryOf(browser) : null,
    open: tenants.map((tenant) => ({
      session: tenant.session.id,
      key: tenant.session.key,
      clients: tenant.clients.size,
      pages: tenant.pages().slice(0, PAGES_SHOWN_MAX).map(pageView),
    })),
  }
}

/** Of one session; and characters of a page's title and address. */
const PAGES_SHOWN_MAX = 100
const PAGE_CHARS_MAX = 500

function pageView({ targetId, type, title, url }: TargetInfo) {
  const shown = (text: string): string => text.slice(0, PAGE_CHARS_MAX).toWellFormed()
  return { id: targetId, type, title: shown(title), url: shown(url) }
}

function sum<Item>(items: readonly Item[], count: (item: Item) => number): number {
  return items.reduce((total, item) => total + count(item), 0)
}

function clientsOf(tenants: readonly BrowserTenant[]): number {
  return sum(tenants, ({ clients }) => clients.size)
}

/** The key of a browser session, as the rest of Holdfast has it. */
function keyOf(browser: string, key: string): string {
  return `${BROWSER_KEYS}${browser}:${key}`
}

/** The context that clients take for the default one; in a browser of its own it is. */
async function homeOf({ link, isOwn }: BrowserHost): Promise<string> {
  const { defaultBrowserContextId } = isOwn ? await link.command('Target.getBrowserContexts') : {}
  if (typeof defaultBrowserContextId === 'string') return defaultBrowserContextId
  const { browserContextId } = await link.command('Target.createBrowserContext')
  return String(browserContextId)
}
