/**
 * The webhooks of a server. Each has its own position and its own pace; one node of those that
 * share a store delivers it, and another goes on when that is gone.
 */
import { isDeepStrictEqual } from 'node:util'
import { HoldfastError, invalid, messageOf, type Authority, type Limits } from '../../core/index.ts'
import { limitsFrom } from '../../core/limits.ts'
import { HostResolver, type ResolverOptions } from '../../platform/resolver.ts'
import { redact } from '../../platform/text.ts'
import { checkWebhooks, eventsOf, type WebhookOptions } from '../../schema/webhooks.ts'
import { withoutSecrets } from './payload.ts'
import { WEBHOOK_LIMITS, type WebhookContext, type WebhookLimits } from './context.ts'
import type { SendResult } from './sender.ts'
import { readState, type WebhookState } from './state.ts'
import { Webhook } from './webhook.ts'

export type WebhooksOptions = {
  readonly webhooks: readonly WebhookOptions[]
  readonly limits?: Partial<WebhookLimits> | undefined
  /** How the names of receivers are resolved. */
  readonly resolver?: ResolverOptions | undefined
  readonly askLink: WebhookContext['askLink']
}

export class Webhooks {
  readonly #context: WebhookContext
  #webhooks: ReadonlyMap<string, Webhook>
  #timer: NodeJS.Timeout | undefined
  #looking: Promise<void> | null = null
  #isClosed = false

  /** Throws `invalid_field` for webhooks that cannot be delivered. */
  constructor(authority: Authority, options: WebhooksOptions) {
    const { webhooks, limits = {}, resolver = {}, askLink } = options
    this.#context = {
      authority,
      resolver: new HostResolver(resolver),
      limits: fitting(limitsFrom(WEBHOOK_LIMITS, limits, 'webhookLimits'), authority.limits),
      redact: (text) => withoutSecrets(redact(text, ownEnvironment())),
      askLink,
    }
    this.#webhooks = this.#open(webhooks, new Map())
  }

  /** Those that are the same stay as they are. */
  #open(
    webhooks: readonly WebhookOptions[],
    before: ReadonlyMap<string, Webhook>,
  ): ReadonlyMap<string, Webhook> {
    if (webhooks.length > 0 && this.#context.authority.store.holdWebhook === undefined) {
      throw invalid('webhooks', 'need a store that keeps where they stand')
    }
    const opened = checkWebhooks(webhooks).map((options, index) => {
      const known = before.get(options.name)
      const isSame = known !== undefined && isDeepStrictEqual(known.options, options)
      const webhook = isSame ? known : new Webhook(options, this.#context, `webhooks.${index}`)
      return [options.name, webhook] as const
    })
    return new Map(opened)
  }

  /**
   * Checks other webhooks, and throws; the returned function has those delivered from now on. One
   * that has changed goes on where it stands, when the former one has ended.
   */
  prepare(webhooks: readonly WebhookOptions[]): () => void {
    const next = this.#open(webhooks, this.#webhooks)
    return () => {
      const kept = new Set(next.values())
      const gone = this.all.filter((webhook) => !kept.has(webhook))
      this.#webhooks = next
      this.#lookAfter(async () => {
        await Promise.all(gone.map((webhook) => webhook.release()))
      })
      this.start()
    }
  }

  get all(): readonly Webhook[] {
    return [...this.#webhooks.values()]
  }

  start(): void {
    if (this.#webhooks.size === 0) return
    this.#timer ??= setInterval(() => this.#lookNow(), this.#context.limits.lookMs).unref()
    this.#lookNow()
  }

  /** Ends them here. The store must still be open. */
  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    clearInterval(this.#timer)
    await this.#looking
    await Promise.all(this.all.map((webhook) => webhook.release()))
    this.#context.resolver.close()
  }

  #lookNow(): void {
    if (this.#looking === null) this.#lookAfter(async () => undefined)
  }

  /** One at a time. */
  #lookAfter(work: () => Promise<void>): void {
    const before = this.#looking ?? Promise.resolve()
    const looking = before
      .then(work)
      .then(() => this.#look())
      .finally(() => {
        if (this.#looking === looking) this.#looking = null
      })
    this.#looking = looking
  }

  /** Takes what no node delivers, and renews what this one does. */
  async #look(): Promise<void> {
    const { store, diagnose } = this.#context.authority
    try {
      const stored = (await store.listWebhooks?.()) ?? []
      for (const webhook of this.all) {
        if (this.#isClosed) return
        if (webhook.state !== null) await webhook.renew()
        else {
          const { node = null, body = null } =
            stored.find(({ name }) => name === webhook.options.name) ?? {}
          const isFree = node === null || store.cluster === undefined
          if (isFree && webhook.isDue(body)) await webhook.hold()
        }
      }
    } catch (error) {
      const facts = { reason: 'store', error: messageOf(error) }
      diagnose('webhook_failed', 'webhooks could not be looked at, and are soon again', facts)
    }
  }

  /** What each is told, and where it stands; of those of other nodes as it was last stored. */
  async views() {
    const stored = (await this.#context.authority.store.listWebhooks?.()) ?? []
    return this.all.map((webhook) => {
      const { body = null, node = null } =
        stored.find(({ name }) => name === webhook.options.name) ?? {}
      const state = webhook.state ?? (body === null ? null : readState(body))
      return viewOf(webhook, state, node)
    })
  }

  /** One event that is about nothing, now, from this node. */
  test(name: string): Promise<SendResult> {
    return this.#find(name).test()
  }

  /** A paused one goes on where it stands; one that waits to be tried again is tried now. */
  async resume(name: string): Promise<void> {
    await this.#looking
    const webhook = this.#find(name)
    if (webhook.state === null) await webhook.hold(true)
    else webhook.retryNow()
  }

  #find(name: string): Webhook {
    const webhook = this.#webhooks.get(name)
    if (webhook !== undefined) return webhook
    throw new HoldfastError('webhook_unknown', `there is no webhook ${name}`)
  }
}

/** Where nodes have short leases, another goes on soon; an attempt ends well before that. */
function fitting(limits: WebhookLimits, { leaseMs: nodeMs }: Pick<Limits, 'leaseMs'>) {
  const leaseMs = Math.min(limits.leaseMs, 3 * nodeMs)
  return { ...limits, leaseMs, sendMs: Math.min(limits.sendMs, leaseMs / 2) }
}

/** Texts that webhooks are told never have its secrets. */
function ownEnvironment(): Readonly<Record<string, string>> {
  return process.env as Readonly<Record<string, string>>
}

function viewOf({ options, counts }: Webhook, state: WebhookState | null, node: string | null) {
  const { name, url, labels = {}, agents = null, owners = null, answers = [] } = options
  const { confirmedAt = null, failures = 0, failingSince = null, error = null } = state ?? {}
  const { retryAt = null, pausedAt = null } = state ?? {}
  const failing = failures > 0 ? ('failing' as const) : ('active' as const)
  return {
    name,
    // The rest of an address may be a secret.
    origin: new URL(url).origin,
    events: eventsOf(options),
    ...{ labels, agents, owners, answers },
    state: pausedAt === null ? failing : ('paused' as const),
    node,
    ...{ confirmedAt, failures, failingSince, error, retryAt, pausedAt },
    /** Of this node, since it started. */
    counts,
  }
}
