import { beforeEach, expect, it } from 'vitest'
import {
  HoldfastError,
  LOCAL,
  type AttachmentHandle,
  type SessionHandle,
} from '../../core/index.ts'
import { StockConnection } from './attached-client.ts'
import { CdpClient } from './client.ts'
import { BrowserHost } from './host.ts'
import { CDP_LIMITS } from './limits.ts'
import { CDP_RULES } from './rules.ts'
import { BrowserTenant } from './tenant.ts'

type Sent = { readonly id: number; readonly method: string; readonly sessionId?: string }

const RUN = 'Runtime.runIfWaitingForDebugger'

let sent: Sent[]
let delivered: string[]
let host: BrowserHost
let client: CdpClient

/** A client of a browser that sends what the test says. */
beforeEach(() => {
  ;[sent, delivered] = [[], []]
  const clock = { now: () => 0, monotonic: () => 0, after: () => () => undefined }
  const browser = {
    send: (...parts: readonly unknown[]) => void sent.push(JSON.parse(parts.join('')) as Sent),
    close: () => Promise.resolve(),
  }
  const facts = { name: 'chromium', isOwn: false, startedAt: 0, clock }
  host = new BrowserHost(browser, facts, CDP_LIMITS)
  host.link.open(host.targets)
  const carrier = new StockConnection(CDP_LIMITS)
  carrier.deliver = (message) => void delivered.push(message.toString())
  const session = {} as SessionHandle
  client = new CdpClient({
    tenant: new BrowserTenant({ session, host, home: 'home', limits: CDP_LIMITS }),
    upstream: 'up',
    target: null,
    carrier,
    attachment: {} as AttachmentHandle,
    by: LOCAL,
    recording: null,
    rules: CDP_RULES,
  })
})

function say(message: object): void {
  host.link.receive(Buffer.from(JSON.stringify(message)))
}

function attached(sessionId: string, browserContextId: string): void {
  const targetInfo = { targetId: `of ${sessionId}`, type: 'service_worker', browserContextId }
  const params = { sessionId, targetInfo, waitingForDebugger: true }
  say({ method: 'Target.attachedToTarget', params, sessionId: 'up' })
}

/** Answers the first command of this method, in the session that it was sent in. */
function reply(method: string): void {
  const at = sent.findIndex((command) => command.method === method)
  const [command] = sent.splice(at, 1)
  say({ id: command?.id, result: {}, sessionId: command?.sessionId })
}

it('a session with another client’s target runs it, is detached, and is never shown', () => {
  attached('foreign', 'elsewhere')
  expect(sent.map(({ method }) => method)).toEqual(['Browser.getVersion'])
  reply('Browser.getVersion')
  expect(sent).toMatchObject([{ method: RUN, sessionId: 'foreign' }])
  reply(RUN)
  expect(sent).toMatchObject([{ method: 'Target.detachFromTarget', sessionId: 'up' }])
  reply('Target.detachFromTarget')
  say({ method: 'Target.detachedFromTarget', params: { sessionId: 'foreign' }, sessionId: 'up' })
  expect([delivered, client.root.children.size, host.link.unanswered]).toEqual([[], 0, 0])
})

it('such a session ends with its client, and its commands are forgotten', () => {
  attached('foreign', 'elsewhere')
  reply('Browser.getVersion')
  client.end(new HoldfastError('attachment_ended', 'the client has left'))
  expect(host.link.listener('foreign')).toBe(undefined)
  reply('Target.detachFromTarget')
  expect([delivered, host.link.unanswered]).toEqual([[], 0])
})

it('a session with a target of its own is shown under another id', () => {
  attached('own', 'home')
  const [event] = delivered.map((text) => JSON.parse(text))
  expect(event).toMatchObject({ method: 'Target.attachedToTarget' })
  expect(event.params.sessionId).toMatch(/^[0-9A-F]{32}$/)
  expect(sent).toEqual([])
})
