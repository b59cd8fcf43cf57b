import { expect, it } from 'vitest'
import { Browser } from '../../browsers/index.ts'
import type { SessionHandle } from '../../core/index.ts'
import { Client } from './client.ts'
import type { Command } from './command.ts'
import { Host } from './host.ts'
import { CDP_LIMITS } from './limits.ts'
import { Tenant } from './tenant.ts'

/** A client of a browser that says what the test says. */
function connected() {
  const asked: Pick<Command, 'id' | 'method'>[] = []
  const browser = new Browser('chromium')
  browser.connection = {
    send: (...parts) => void asked.push(JSON.parse(parts.map(String).join('')) as Command),
    close: () => Promise.resolve(),
  }
  const clock = { now: () => 0, monotonic: () => 0, after: () => () => undefined }
  const facts = { name: 'chromium', isOwn: false, startedAt: 0, clock }
  const host = new Host(browser, facts, CDP_LIMITS)
  host.link.open(host.targets)
  const session = {} as SessionHandle
  const tenant = new Tenant({ host, session, home: 'home', limits: CDP_LIMITS })
  const told: string[] = []
  const deliver = (message: Buffer): void => {
    const { method, id } = JSON.parse(message.toString()) as Command
    told.push(method ?? `reply ${id}`)
  }
  const outlet = { mayReturn: false, isAway: false, deliver, setPaused: () => undefined }
  const ignore = (): void => undefined
  const gone = { onBrowserClose: ignore, onLoss: ignore, onTargetClosed: ignore }
  const place = { tenant, upstream: 'up', target: null, recording: null }
  const client = new Client({ ...place, ...gone, outlet })
  return {
    ...{ host, tenant, told },
    ask: (command: object) => client.receive(Buffer.from(JSON.stringify(command))),
    say: (message: object) => host.link.receive(Buffer.from(JSON.stringify(message))),
    reply: (method: string, result: object) => {
      const id = asked.find((command) => command.method === method)?.id
      host.link.receive(Buffer.from(JSON.stringify({ id, result, sessionId: 'up' })))
    },
  }
}

function attached(sessionId: string, targetId: string) {
  const targetInfo = { targetId, type: 'page', title: '', url: '', browserContextId: 'home' }
  const params = { sessionId, targetInfo, waitingForDebugger: true }
  return { method: 'Target.attachedToTarget', params, sessionId: 'up' }
}

it('forgets a page that is closed before its client is told that it is attached to it', () => {
  const { tenant, host, told, ask, say, reply } = connected()
  const { targetInfo } = attached('', 'one').params
  say({ method: 'Target.targetCreated', params: { targetInfo } })
  ask({ id: 1, method: 'Target.setAutoAttach', params: { autoAttach: true, flatten: true } })
  reply('Target.setAutoAttach', {})
  // It is not flat: only the reply tells whether the event is for this or for any new target.
  ask({ id: 2, method: 'Target.attachToTarget', params: { targetId: 'one' } })
  say(attached('first', 'one'))
  say(attached('second', 'two'))
  const detached = { sessionId: 'second', targetId: 'two' }
  say({ method: 'Target.detachedFromTarget', params: detached, sessionId: 'up' })
  say({ method: 'Target.targetDestroyed', params: { targetId: 'two' } })
  expect(told).toEqual(['reply 1'])
  reply('Target.attachToTarget', { sessionId: 'first' })
  const [attach, detach] = ['Target.attachedToTarget', 'Target.detachedFromTarget']
  expect(told).toEqual(['reply 1', attach, attach, detach, 'reply 2'])
  expect(tenant.pages().map(({ targetId }) => targetId)).toEqual(['one'])
  expect(host.targets.get('two')).toBe(undefined)
})
