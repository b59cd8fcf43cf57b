/**
 * Whose session it is, over a socket: every frame of a client, taken from the schema that reads
 * them, tried by everyone who may be attached, on the node that owns the session and through
 * another. A stranger's hello gets the answer of a session that never was, whatever it shows.
 */
import { builtinAgents } from 'holdfast'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { OPERATIONS, withIncluded, type Scope } from '../../src/core/access.ts'
import { FRAME_OPERATIONS } from '../../src/doors/connect/log-channel.ts'
import { ClientFrames, type ClientFrame } from '../../src/wire/client-frames.ts'
import { passedOnBy } from '../support/nodes-under-test.ts'
import {
  bearer,
  NAMES,
  SCOPES_ON,
  secretOf,
  Servers,
  sharedSession,
  WHERE,
} from '../support/principals.ts'
import type { TestServer } from '../support/server.ts'
import { dial, type Frame, type WireClient } from '../support/wire-client.ts'

let servers: Servers
const clients: WireClient[] = []

beforeAll(async () => {
  // Tries with bad secrets are limited by address: each client has its own.
  servers = await Servers.open({ agents: builtinAgents, trustProxy: true })
})
afterAll(async () => {
  for (const { socket } of clients) socket.terminate()
  await servers.close()
})

type FrameType = ClientFrame['type']
const TYPES = ClientFrames.anyOf.map((schema) => schema.properties.type.const)

/** The rest of each frame, and what comes back for one that may be sent. */
const FRAMES: Readonly<Record<FrameType, { readonly rest: object; readonly answer: string }>> = {
  turn: { rest: { id: '1', input: 'x' }, answer: 'reply' },
  configure: { rest: { id: '1', settings: { model: null } }, answer: 'reply' },
  cancel: { rest: { id: '1', turn: 't2' }, answer: 'reply' },
  answer: { rest: { id: '1', ask: 'a9', answer: 'x' }, answer: 'reply' },
  close: { rest: { id: '1' }, answer: 'reply' },
  hello: { rest: { v: 1, session: 'other' }, answer: 'ending bad_request' },
  ack: { rest: { received: 1 }, answer: 'ending bad_request' },
  // Nothing comes back for these: the ping behind them is answered.
  ready: { rest: { epoch: 1 }, answer: 'pong' },
  ping: { rest: {}, answer: 'pong' },
  pong: { rest: {}, answer: 'pong' },
  bye: { rest: {}, answer: 'closed' },
}

const GUESTS: Readonly<Record<string, readonly ('watch' | 'talk' | 'answer')[]>> = {
  'a guest by a link to watch': ['watch'],
  'a guest by a link to talk': ['talk'],
  'a guest by a link to answer': ['watch', 'answer'],
}

let addresses = 0

function nextAddress(): string {
  addresses += 1
  return `10.0.${addresses >> 8}.${addresses & 255}`
}

function connect(server: TestServer, hello: object, address = nextAddress()): WireClient {
  const client = dial(server.url, hello, { headers: { 'x-forwarded-for': address } })
  clients.push(client)
  return client
}

async function helloAnswer(server: TestServer, hello: object, address?: string): Promise<Frame> {
  const client = connect(server, hello, address)
  return client.frame(({ type }) => type === 'welcome' || type === 'refuse')
}

/** What comes back for a frame, and for the ping behind it. */
async function answerTo(client: WireClient, type: FrameType): Promise<string> {
  const { rest, answer } = FRAMES[type]
  const from = client.frames.length
  client.send({ type, ...rest })
  client.send({ type: 'ping' })
  if (answer === 'closed') return client.closed.then(() => 'closed')
  const isIt = (frame: Frame): boolean => `${frame.type} ${frame['code'] ?? ''}`.startsWith(answer)
  const frame = await client.frame(isIt, from)
  return frame.type === 'reply' ? String(frame['error']?.code ?? 'done') : answer
}

describe('each frame of a client', () => {
  it('is tried here', () => {
    expect(Object.keys(FRAMES).toSorted()).toEqual(TYPES.toSorted())
  })
})

describe.each(Object.entries(WHERE))('a session %s', (_, nodesOf) => {
  const nodes = () => nodesOf(servers)

  async function expectFrames(
    hello: (id: string, path: string) => Promise<object>,
    scopes: readonly Scope[],
  ): Promise<void> {
    const [owner, asked] = nodes()
    const role = scopes.includes('talk') ? 'driver' : 'watcher'
    const { id, path } = await sharedSession(owner)
    const auth = await hello(id, path)
    for (const type of TYPES.toSorted((one) => (one === 'close' ? 1 : -1))) {
      const client = connect(asked, { session: id, role, auth })
      await client.frame('welcome')
      const found = await answerTo(client, type)
      const operation = type in FRAME_OPERATIONS ? FRAME_OPERATIONS[type as 'turn'] : null
      const needed = operation === null ? null : OPERATIONS[operation]
      const isAllowed = needed === null || scopes.includes(needed)
      // A watcher does nothing but answer.
      const takesPart = role === 'driver' || type === 'answer' || needed === null
      const isRefused = found === 'forbidden' || found === 'session_unknown'
      expect([type, found, isRefused]).toEqual([type, found, !(isAllowed && takesPart)])
      await client.cut()
    }
  }

  it.each(NAMES.filter((who) => SCOPES_ON[who].length > 0))(
    'takes from %s the frames that it may send, and no others',
    (who) => expectFrames(async () => ({ token: secretOf(who) }), SCOPES_ON[who]),
  )

  it.each(Object.entries(GUESTS))('takes from %s the frames that it may send', async (_who, to) => {
    const scopes = withIncluded(to)
    await expectFrames(async (_id, path) => {
      const call = { headers: bearer('alice'), body: { scopes: to } }
      const made = await nodes()[0].call('POST', `${path}/links`, call)
      return { link: made.body.token }
    }, scopes)
  })

  it('answers a stranger’s hello as if it did not exist, whatever that shows', async () => {
    const [owner, asked] = nodes()
    const { id, path } = await sharedSession(owner)
    const auth = { token: secretOf('alice') }
    const own = connect(asked, { session: id, auth })
    const { attachment } = await own.frame('welcome')
    const links = { headers: bearer('alice'), body: { scopes: ['talk'] } }
    const { id: link } = (await owner.call('POST', `${path}/links`, links)).body
    const token = secretOf('stranger')
    const wrong = 'x'.repeat(43)
    const shown: readonly object[] = [
      { token },
      { link: wrong },
      { link },
      { token, link: wrong },
      { token: 'hf_none' },
      { resume: { attachment, token: wrong } },
      { token, resume: { attachment, token: wrong } },
      { resume: { attachment: 'none', token: wrong } },
      { resume: { attachment: 'w_none', token: `${wrong}.use` } },
      {},
    ]
    const nowhere = 'A'.repeat(id.length)
    for (const auth of shown) {
      for (const rest of [
        {},
        { role: 'watcher' },
        { take: true },
        { after: { seq: 999, delta: 0 } },
      ]) {
        const [foreign, unknown] = await Promise.all([
          helloAnswer(asked, { session: id, auth, ...rest }),
          helloAnswer(asked, { session: nowhere, auth, ...rest }),
        ])
        const told = JSON.stringify(foreign).replaceAll(id, 'ID')
        expect([auth, told]).toEqual([auth, JSON.stringify(unknown).replaceAll(nowhere, 'ID')])
        expect(foreign.type).toBe('refuse')
      }
    }
    // Alice's own connection is none the worse for it.
    own.send({ type: 'turn', id: '1', input: 'still here' })
    expect((await own.reply('1'))['error']).toBeUndefined()
  })

  it('is tried with bad secrets as often as one that does not exist', async () => {
    const [owner, asked] = nodes()
    const { id } = await sharedSession(owner)
    const wrong = 'x'.repeat(43)
    const tries = async (session: string, auth: object): Promise<number> => {
      const address = nextAddress()
      for (let count = 0; ; count += 1) {
        const { code } = await helloAnswer(asked, { session, auth }, address)
        if (code === 'too_many') return count
      }
    }
    for (const auth of [{ link: wrong }, { resume: { attachment: 'none', token: wrong } }]) {
      expect(await tries(id, auth)).toBe(await tries('A'.repeat(id.length), auth))
    }
  })

  it('is not reached by frames of a client of another session', async () => {
    const [owner, asked] = nodes()
    const headers = bearer('alice')
    const body = { key: `asks ${Math.random()}`, agent: 'ask' }
    const { id } = (await owner.call('POST', '/v1/sessions', { headers, body })).body
    const path = `/v1/sessions/${id}`
    const alice = connect(owner, {
      session: id,
      auth: { token: secretOf('alice') },
      answers: ['permission'],
    })
    await alice.frame('welcome')
    alice.send({ type: 'turn', id: '1', input: 'first' })
    const opened = await alice.frame('ask.opened')
    alice.send({ type: 'turn', id: '2', input: 'second' })
    let request = ''
    for (; request === '';) {
      const { queued } = (await owner.call('GET', path, { headers })).body
      request = queued[0]?.request ?? ''
    }
    const mallory = connect(asked, {
      key: 'own',
      auth: { token: secretOf('stranger') },
      answers: ['permission'],
    })
    await mallory.frame('welcome')
    const none = `${request.slice(0, 2)}${'x'.repeat(request.length - 2)}`
    const tries = [
      [
        { type: 'cancel', turn: request },
        { type: 'cancel', turn: none },
      ],
      [
        { type: 'cancel', turn: opened['turn'] },
        { type: 'cancel', turn: 't999' },
      ],
      [
        { type: 'answer', ask: opened['ask'], answer: 'allow' },
        { type: 'answer', ask: 'a999', answer: 'allow' },
      ],
    ] as const
    let count = 0
    for (const [foreign, unknown] of tries) {
      const told: string[] = []
      for (const frame of [foreign, unknown]) {
        count += 1
        mallory.send({ ...frame, id: `${count}` })
        const { error } = await mallory.reply(`${count}`)
        told.push(JSON.stringify(error).replaceAll(/\b(t\d+|a\d+|r_[\w-]+)/g, 'ID'))
      }
      expect(told[0]).toBe(told[1])
      expect(told[0]).toContain('unknown')
    }
    expect((await owner.call('GET', path, { headers })).body).toMatchObject({ asks: 1 })
  })
})

describe.each(Object.entries(WHERE))('a bad secret %s', (_, nodes) => {
  const wrong = 'x'.repeat(43)
  const resume = (token: string) => ({ resume: { attachment: 'none', token } })

  it.each([
    ['link', { link: wrong }, ['read']],
    ['resume token', resume(wrong), []],
    ["resume token of a link's bearer", resume(`${wrong}.${wrong}`), ['read']],
  ])('takes the same calls of the store, session or not: %s', async (_, auth, expected) => {
    const [owner, asked] = nodes(servers)
    const { id } = await sharedSession(owner)
    const before = await passedOnBy(asked.url, bearer('admin'))
    for (const session of [id, 'A'.repeat(id.length)]) {
      expect(await callsFor(asked, { session, auth })).toEqual(expected)
    }
    // Its owner, which may hang, is not asked; for a caller that may see it, it is.
    expect(await passedOnBy(asked.url, bearer('admin'))).toBe(before)
    await helloAnswer(asked, { session: id, auth: { token: secretOf('alice') } })
    const isElsewhere = owner === asked ? 0 : 1
    expect(await passedOnBy(asked.url, bearer('admin'))).toBe(before + isElsewhere)
  })
})

/** The calls of the store that it takes to answer a hello. */
async function callsFor(server: TestServer, hello: object): Promise<readonly string[]> {
  const { store } = server.holdfast.authority
  const calls: string[] = []
  const spies = (['read', 'claim', 'reserve', 'append'] as const).map((name) => {
    const counting = calling(calls, store, name)
    return vi.spyOn(store, name).mockImplementation(counting)
  })
  await helloAnswer(server, hello)
  for (const spy of spies) spy.mockRestore()
  return calls
}

function calling(calls: string[], store: any, name: string): any {
  const original = store[name].bind(store)
  return (...given: readonly unknown[]) => {
    calls.push(name)
    return original(...given)
  }
}
