import { beforeEach, expect, it } from 'vitest'
import { Browser } from '../../browsers/index.ts'
import type { SessionHandle } from '../../core/index.ts'
import { FAULTS } from './command.ts'
import { Host } from './host.ts'
import { CDP_LIMITS } from './limits.ts'
import type { Reply } from './link.ts'
import { Tenant } from './tenant.ts'

const MANY = 20_000

let host: Host
let tenant: Tenant
let replies: Reply[]
const read = (reply: Reply): void => void replies.push(reply)

/** Of a browser that never answers. */
beforeEach(() => {
  const clock = { now: () => 0, monotonic: () => 0, after: () => () => undefined }
  const limits = { ...CDP_LIMITS, targetsMax: MANY }
  const facts = { name: 'chromium', isOwn: false, startedAt: 0, clock }
  host = new Host(new Browser('chromium'), facts, limits)
  tenant = new Tenant({ host, session: {} as SessionHandle, home: 'home', limits })
  replies = []
})

it('disposes of a context once, however often its client wants that', () => {
  for (let n = 0; n < MANY; n += 1) tenant.closeContext('one', read)
  expect(host.link.waiting).toBe(1)
  expect(replies).toHaveLength(MANY - 1)
  expect(replies.every(({ error }) => error === FAULTS.context)).toBe(true)
  host.close('gone')
  expect(replies.at(-1)).toEqual({ error: { code: -32000, message: 'gone' } })
})

it('tells all who wait for a page that the browser is gone, however many they are', () => {
  for (let n = 0; n < MANY; n += 1) tenant.openPage({ url: 'about:blank' }, read)
  expect([host.link.waiting, replies.length]).toEqual([CDP_LIMITS.openingMax, 0])
  host.close('gone')
  expect(replies).toHaveLength(MANY)
})
