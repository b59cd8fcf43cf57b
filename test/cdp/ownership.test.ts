/**
 * Whose browser session it is: every path of the door, and every command of the protocol that names
 * a target, a context, a session or a window, tried by a stranger with an id of another principal's
 * and with one that never was. Both get the same answer.
 */
import { createHash } from 'node:crypto'
import { createRequire } from 'node:module'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { JSON_HANDLERS } from '../../src/doors/cdp/http.ts'
import { RULED_METHODS } from '../../src/doors/cdp/rules.ts'
import { TokenList, type TokenEntry } from '../../src/server/tokens.ts'
import { CHROMIUM, serveCdp, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp } from '../support/raw-cdp.ts'

const entry = (name: string, principal: string, scopes: TokenEntry['scopes']): TokenEntry => ({
  ...{ name, id: `id-${name}`, principal, scopes },
  sha256: createHash('sha256').update(`hf_${name}`).digest('hex'),
})
const as = (who: string) => ({ headers: { authorization: `Bearer hf_${who}` } })
/** Others than Alice: even an administrator has a browser session of its own. */
const OTHERS = ['stranger', 'watcher', 'admin'] as const

class Tokens extends TokenList {
  close(): void {}
}

let server: CdpServer
let alice: RawCdp
/** Of Alice's, by the type of the parameter that would name it; and ids that never were. */
let foreign: Readonly<Record<string, string | number>>
let unknown: Readonly<Record<string, string | number>>

beforeAll(async () => {
  const tokens = [
    entry('alice', 'alice', ['watch', 'talk', 'manage']),
    entry('stranger', 'mallory', ['watch', 'talk', 'manage']),
    entry('watcher', 'wendy', ['watch']),
    entry('admin', 'root', ['watch', 'talk', 'answer', 'manage', 'admin']),
    { ...entry('limited', 'alice', ['watch', 'talk']), browsers: ['second'] },
  ]
  const browsers = { chromium: CHROMIUM, second: CHROMIUM }
  server = await serveCdp({ tokens: new Tokens(tokens), browsers })
  alice = await RawCdp.open(`${server.socketUrl}?key=work`, as('alice'))
  const { browserContextId } = await alice.send('Target.createBrowserContext')
  const page = { url: 'about:blank', browserContextId }
  const { targetId } = await alice.send('Target.createTarget', page)
  const { sessionId } = await alice.send('Target.attachToTarget', { targetId, flatten: true })
  const { windowId } = await alice.send('Browser.getWindowForTarget', { targetId })
  foreign = { targetId, browserContextId, sessionId, windowId }
  unknown = {
    ...{ targetId: turned(targetId), browserContextId: turned(browserContextId) },
    ...{ sessionId: turned(sessionId), windowId: windowId + 1_000_000 },
  }
})
afterAll(async () => {
  // After all that was tried, Alice has what she had.
  const { targetInfos } = await alice.send('Target.getTargets')
  expect(JSON.stringify(targetInfos)).toContain(foreign['targetId'])
  const { browserContextIds } = await alice.send('Target.getBrowserContexts')
  expect(browserContextIds).toContain(foreign['browserContextId'])
  alice.close()
  await server.close()
})

/** An id of the same form that was not given out. */
function turned(id: string): string {
  return id.slice(1) + id.slice(0, 1)
}

/** A text without the ids that it was asked about. */
function plain(value: unknown, asked: Readonly<Record<string, string | number>>): string {
  const ids = Object.values(asked).filter((id) => typeof id === 'string')
  return ids.reduce((text, id) => text.replaceAll(id, 'ID'), JSON.stringify(value))
}

describe('the browsers that run', () => {
  /** On the node that has any: each tells of its own, and two are asked in turn. */
  async function browsers(who: string): Promise<readonly Record<string, unknown>[]> {
    const ask = async (): Promise<readonly Record<string, unknown>[]> => {
      const response = await fetch(`${server.server.url}/v1/browsers`, as(who))
      return ((await response.json()) as { browsers: Record<string, unknown>[] }).browsers
    }
    const [first, second] = [await ask(), await ask()]
    return first.length > 0 ? first : second
  }

  it('are those that a caller has a session on, without what is of the machine', async () => {
    expect(await browsers('stranger')).toEqual([])
    expect(await browsers('limited')).toEqual([])
    const [own] = await browsers('alice')
    expect(own).toMatchObject({ name: 'chromium', sessions: 1, pid: null, memoryBytes: null })
    const [all] = await browsers('admin')
    expect(all).toMatchObject({ name: 'chromium', pid: expect.any(Number) })
  })

  it('are come back to by a resume token of their own, and of no other browser', async () => {
    const hello = async (browser: string, who: string, frame: object = {}) => {
      const url = server.socketUrl.replace('chromium', browser)
      const client = await RawCdp.open(`${url}/held?key=kept`, as(who))
      client.say(`#${JSON.stringify({ type: 'hello', v: 2, ...frame })}`)
      const answer = await client.frame()
      client.socket.terminate()
      return answer
    }
    const { session, attachment, resume: token } = await hello('chromium', 'alice')
    const auth = { resume: { attachment, token } }
    const back = { session: session.id, received: 0, take: true, auth }
    for (const who of ['alice', 'limited']) {
      const answer = await hello('second', who, back)
      expect(answer).toMatchObject({ type: 'refuse', code: 'attachment_unknown' })
    }
    expect(await hello('chromium', 'alice', back)).toMatchObject({ type: 'welcome', attachment })
  })
})

describe('the paths of a browser', () => {
  /** Below the browser's name, with `ID` in place of a page; and the method. */
  const PATHS: Readonly<Record<string, string>> = {
    '/json': 'GET',
    '/json/list': 'GET',
    '/json/version': 'GET',
    '/json/protocol': 'GET',
    '/json/new': 'PUT',
    '/json/activate/ID': 'GET',
    '/json/close/ID': 'GET',
    '/ticket': 'POST',
  }

  it('are all tried here', () => {
    for (const path of Object.keys(JSON_HANDLERS)) expect(PATHS).toHaveProperty([path])
  })

  describe.each(OTHERS)('asked for by %s', (who) => {
    it.each(Object.entries(PATHS))('%s shows nothing of another’s', async (path, method) => {
      for (const query of ['', '?key=work']) {
        const ask = async (ids: typeof foreign) => {
          const at = `${server.url}${path.replace('ID', String(ids['targetId']))}${query}`
          const response = await fetch(at, { method, ...as(who) })
          return { status: response.status, text: await response.text() }
        }
        const answer = await ask(foreign)
        for (const id of Object.values(foreign)) {
          if (typeof id === 'string' && !path.includes('ID')) expect(answer.text).not.toContain(id)
        }
        if (who === 'watcher') expect(answer.status).toBe(403)
        if (!path.includes('ID')) continue
        expect(plain(answer, foreign)).toBe(plain(await ask(unknown), unknown))
        expect([403, 404]).toContain(answer.status)
      }
    })

    it.each(['/devtools/page/ID', '/held/page/ID'])(
      '%s opens no page of another’s',
      async (path) => {
        const told: string[] = []
        for (const ids of [foreign, unknown]) {
          for (const query of ['', '?key=work']) {
            const at = `${server.socketUrl}${path.replace('ID', String(ids['targetId']))}${query}`
            told.push(plain(await opened(at, who), ids))
          }
        }
        expect(told.slice(0, 2)).toEqual(told.slice(2))
        expect(told.join()).not.toContain('welcome')
      },
    )
  })

  /** What a socket is answered: a status, or the first frame of a held connection. */
  function opened(url: string, who: string): Promise<unknown> {
    const client = new RawCdp(url, as(who))
    return new Promise((resolve) => {
      client.socket.on('unexpected-response', (_, { statusCode }) => resolve(statusCode))
      client.socket.on('open', () => {
        client.say(`#${JSON.stringify({ type: 'hello', v: 2 })}`)
        void client.frame().then(resolve)
      })
    })
  }
})

type Field = { name: string; optional?: boolean; $ref?: string; type?: string; enum?: string[] }
type Domain = {
  domain: string
  types?: readonly { id: string; type: string; enum?: string[] }[]
  commands: readonly { name: string; parameters?: readonly Field[] }[]
}

const DOMAINS = (
  createRequire(import.meta.url)('devtools-protocol/json/browser_protocol.json')
    .domains as readonly Domain[]
).concat(createRequire(import.meta.url)('devtools-protocol/json/js_protocol.json').domains)

/** The types by which a command names what may be another principal's. */
const IDS: Readonly<Record<string, string>> = {
  'Target.TargetID': 'targetId',
  'Target.SessionID': 'sessionId',
  'Browser.BrowserContextID': 'browserContextId',
  'Browser.WindowID': 'windowId',
}
const idIn = (domain: string, { $ref = '' }: Field): string | undefined =>
  IDS[$ref.includes('.') ? $ref : `${domain}.${$ref}`]

/** Each command that names one of them, by the parameter. */
const NAMING = DOMAINS.flatMap(({ domain, commands }) =>
  commands.flatMap(({ name, parameters = [] }) =>
    parameters.flatMap((field) => {
      const id = idIn(domain, field)
      return id === undefined
        ? []
        : [{ domain, method: `${domain}.${name}`, field, id, parameters }]
    }),
  ),
)

/** Something of the right type for the other fields that are needed. */
function filler(domain: string, { $ref = '', type, enum: values }: Field): unknown {
  const [home, id] = $ref.includes('.') ? $ref.split('.') : [domain, $ref]
  const named = DOMAINS.find((each) => each.domain === home)?.types?.find((each) => each.id === id)
  const fillers: Readonly<Record<string, unknown>> = {
    ...{ string: (values ?? named?.enum)?.[0] ?? 'about:blank', integer: 1, number: 1 },
    ...{ boolean: true, array: [], object: {} },
  }
  return fillers[type ?? named?.type ?? 'string']
}

describe('commands that name what may be another’s', () => {
  it('are those of the protocol, with every rule that names one', () => {
    const methods = new Set(NAMING.map(({ method }) => method))
    expect(methods.size).toBeGreaterThan(20)
    // The rules about what a command names are tried by it.
    const known = DOMAINS.flatMap(({ domain, commands }) =>
      commands.map(({ name }) => `${domain}.${name}`),
    )
    for (const method of RULED_METHODS) expect(known).toContain(method)
  })

  it.each(['', '/held'])(
    'get the same answer for it as for one that never was, at %j',
    async (path) => {
      const client = await RawCdp.open(`${server.socketUrl}${path}?key=work`, as('stranger'))
      if (path !== '') {
        client.say(`#${JSON.stringify({ type: 'hello', v: 2 })}`)
        expect((await client.frame())['type']).toBe('welcome')
      }
      const { targetId } = await client.send('Target.createTarget', { url: 'about:blank' })
      const { sessionId } = await client.send('Target.attachToTarget', { targetId, flatten: true })
      const wrong: unknown[] = []
      for (const { domain, method, field, id, parameters } of NAMING) {
        const others = parameters.filter((each) => each.name !== field.name && !each.optional)
        const rest = Object.fromEntries(others.map((each) => [each.name, filler(domain, each)]))
        for (const at of [undefined, sessionId]) {
          const ask = async (ids: typeof foreign) => {
            const { result, error } = await client.ask(
              method,
              { ...rest, [field.name]: ids[id] },
              at,
            )
            return plain(error ?? { result }, ids)
          }
          const [theirs, none] = [await ask(foreign), await ask(unknown)]
          if (theirs !== none || theirs.includes('"result"'))
            wrong.push([method, field.name, at, theirs, none])
        }
      }
      expect(wrong).toEqual([])
      for (const ids of [foreign, unknown]) {
        const { error } = await client.ask(
          'Runtime.evaluate',
          { expression: '1' },
          String(ids['sessionId']),
        )
        expect(error).toMatchObject({ code: -32001 })
      }
      client.close()
    },
  )
})
