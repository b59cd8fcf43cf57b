import { beforeEach, expect, it } from 'vitest'
import type { SessionHandle } from '../../core/index.ts'
import { BrowserHost } from './host.ts'
import { CDP_LIMITS } from './limits.ts'
import { CDP_ERRORS, type CdpReply } from './protocol.ts'
import { BrowserTenant } from './tenant.ts'

const SILENT = { send: () => undefined, close: () => Promise.resolve() }

const MANY = 20_000
const WORKER = { type: 'worker', title: '', url: '', browserContextId: 'home' }

let host: BrowserHost
let tenant: BrowserTenant
let replies: CdpReply[]
const read = (reply: CdpReply): void => void replies.push(reply)

/** Of a browser that never answers. */
beforeEach(() => {
  const clock = { now: () => 0, monotonic: () => 0, after: () => () => undefined }
  const limits = { ...CDP_LIMITS, targetsMax: MANY }
  const facts = { name: 'chromium', isOwn: false, startedAt: 0, clock }
  host = new BrowserHost(SILENT, facts, limits)
  tenant = new BrowserTenant({ session: {} as SessionHandle, host, home: 'home', limits })
  replies = []
})

it('disposes of a context once, however often its client wants that', () => {
  for (let n = 0; n < MANY; n += 1) tenant.closeContext('one', read)
  expect(host.link.unanswered).toBe(1)
  expect(replies).toHaveLength(MANY - 1)
  expect(replies.every(({ error }) => error === CDP_ERRORS.context)).toBe(true)
  host.close('gone')
  expect(replies.at(-1)).toEqual({ error: { code: -32000, message: 'gone' } })
})

it('tells all clients that wait for a page that the browser has ended', () => {
  for (let n = 0; n < MANY; n += 1) tenant.openPage({ url: 'about:blank' }, read)
  expect([host.link.unanswered, replies.length]).toEqual([CDP_LIMITS.openingMax, 0])
  host.close('gone')
  expect(replies).toHaveLength(MANY)
})

it('closes no page that a client was promised, though workers have taken the room', () => {
  const created = (targetId: string, type: string, more: object = {}): void => {
    const targetInfo = { targetId, type, title: '', url: '', browserContextId: 'home', ...more }
    host.targets.targetEvent({ method: 'Target.targetCreated', params: { targetInfo } })
  }
  for (let n = 1; n < MANY; n += 1) host.targets.learn({ ...WORKER, targetId: `w${n}` })
  tenant.openPage({ url: 'about:blank' }, read)
  created('one more', 'worker')
  created('promised', 'page')
  created('popup', 'page', { openerId: 'promised' })
  expect(tenant.target('promised')).toMatchObject({ targetId: 'promised' })
  expect(tenant.target('popup')).toBe(null)
})
