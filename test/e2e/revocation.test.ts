/** A token that is taken back: whatever goes on by it ends, at every door and through every node. */
import { builtinAgents, type Holdfast } from 'holdfast'
import type { TokenSource } from 'holdfast/server'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { serve, type TestServer } from '../support/server.ts'
import { until } from '../support/gate.ts'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'
import { Puppet } from '../support/puppet.ts'
import { dial } from '../support/wire-client.ts'

type Scope = 'watch' | 'talk' | 'answer' | 'admin'

const ADMIN = 'hf_admin'
const puppet = new Puppet()
const agents = { ...builtinAgents, puppet: puppet.agent }
let names = 0

/** Tokens that can be taken back one by one. */
class Tokens implements TokenSource {
  readonly #good = new Map<string, readonly Scope[]>([
    [ADMIN, ['watch', 'talk', 'answer', 'admin']],
  ])
  #changes = 0

  make(): string {
    return this.add(`hf_${(names += 1)}`)
  }

  add(token: string, scopes: readonly Scope[] = ['watch', 'talk']): string {
    this.#good.set(token, scopes)
    this.#changes += 1
    return token
  }

  revoke(token: string): void {
    this.#good.delete(token)
    this.#changes += 1
  }

  scopesOf(token: string): readonly Scope[] | null {
    return this.#good.get(token) ?? null
  }

  revision(): number {
    return this.#changes
  }

  close(): void {}
}

type Node = { readonly owner: string; readonly front: string; readonly holdfast: Holdfast }

const tokens = new Tokens()
let database: TestDatabase
/** Where the sessions are, and where the clients come to. */
const nodes: Record<string, Node> = {}
const closing: (() => Promise<unknown>)[] = []

beforeAll(async () => {
  const alone = await serve({ agents, tokens })
  nodes['the server'] = { owner: alone.url, front: alone.url, holdfast: alone.holdfast }
  database = await openTestDatabase()
  const url = database.freshUrl()
  const owner = await serve({ store: url, isNode: true, agents, tokens })
  const other = await serve({ store: url, isNode: true, agents, tokens })
  const far = { owner: owner.url, front: other.url, holdfast: owner.holdfast }
  nodes['a node that is not the owner'] = far
  for (const server of [alone, owner, other]) closing.push(() => server.close())
  closing.push(() => database.close())
})

afterAll(async () => {
  for (const close of closing) await close()
})

type Ongoing = {
  readonly url: string
  readonly token: string
  /** A session of the puppet, and its key. */
  readonly id: string
  readonly key: string
}

function post({ url, token }: Ongoing, path: string, body: object, headers: object = {}) {
  return fetch(`${url}${path}`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${token}`,
      'content-type': 'application/json',
      ...headers,
    },
    body: JSON.stringify(body),
  })
}

/** Reads to the end: true if it was cut off. */
async function isCut(response: Response): Promise<boolean> {
  expect(response.status).toBe(200)
  return response.text().then(
    () => false,
    () => true,
  )
}

const STREAM = { accept: 'text/event-stream' }

/** Each begins something that goes on, and resolves with how that ended. */
const WAYS: Readonly<Record<string, (ongoing: Ongoing) => Promise<() => Promise<unknown>>>> = {
  'a stream of events': async ({ url, token, id }) => {
    const headers = { ...STREAM, authorization: `Bearer ${token}` }
    const response = await fetch(`${url}/v1/sessions/${id}/events`, { headers })
    return () => isCut(response)
  },
  ...Object.fromEntries(
    ['asks', 'changes'].map((what) => [
      `a stream of ${what}`,
      async ({ url, token }: Ongoing) => {
        const headers = { ...STREAM, authorization: `Bearer ${token}` }
        const response = await fetch(`${url}/v1/${what}`, { headers })
        return () => isCut(response)
      },
    ]),
  ),
  "a stream of a turn's events": async (ongoing) => {
    const path = `/v1/sessions/${ongoing.id}/turns`
    const response = await post(ongoing, path, { input: ongoing.key }, STREAM)
    return () => isCut(response)
  },
  'a chat completion that is streamed': async (ongoing) => {
    const body = { stream: true, messages: [{ role: 'user', content: ongoing.key }] }
    const headers = { 'x-session-key': ongoing.key }
    const response = await post(ongoing, '/v1/chat/completions', body, headers)
    return () => isCut(response)
  },
  'a response that is streamed': async (ongoing) => {
    const headers = { 'x-session-key': ongoing.key }
    const body = { stream: true, input: ongoing.key }
    const response = await post(ongoing, '/v1/responses', body, headers)
    return () => isCut(response)
  },
  'a response in the background that is followed': async (ongoing) => {
    const headers = { 'x-session-key': ongoing.key }
    const body = { background: true, input: ongoing.key }
    const made = await post(ongoing, '/v1/responses', body, headers)
    const { id } = (await made.json()) as { id: string }
    await puppet.turn(ongoing.key)
    const path = `${ongoing.url}/v1/responses/${id}?stream=true`
    const response = await fetch(path, { headers: { authorization: `Bearer ${ongoing.token}` } })
    return () => isCut(response)
  },
  'a turn that is waited for': async (ongoing) => {
    const path = `/v1/sessions/${ongoing.id}/turns`
    const answer = post(ongoing, path, { input: ongoing.key })
    await puppet.turn(ongoing.key)
    return async () => (await answer).status === 401
  },
  'a chat completion that is waited for': async (ongoing) => {
    const body = { messages: [{ role: 'user', content: ongoing.key }] }
    const headers = { 'x-session-key': ongoing.key }
    const answer = post(ongoing, '/v1/chat/completions', body, headers)
    await puppet.turn(ongoing.key)
    return async () => (await answer).status === 401
  },
  'a socket': async ({ url, token, id }) => {
    const client = dial(url, { session: id, auth: { token } })
    await client.frame('welcome')
    return async () => (await client.closed).code === 4401
  },
}

describe.each(['the server', 'a node that is not the owner'])('through %s', (name) => {
  async function ongoing(): Promise<Ongoing> {
    const { owner = '', front: url = '' } = nodes[name] ?? {}
    const key = `revoked ${(names += 1)}`
    const body = { key, agent: 'puppet' }
    const made = await post({ url: owner, token: ADMIN, id: '', key }, '/v1/sessions', body)
    const { id } = (await made.json()) as { id: string }
    return { url, token: tokens.make(), id, key }
  }

  it.each(Object.keys(WAYS))('%s ends when its token is taken back', async (way) => {
    const [mine, theirs] = [await ongoing(), await ongoing()]
    const begin = WAYS[way]!
    const [ended, other] = [await begin(mine), await begin(theirs)]
    let isOtherOver = false
    const otherEnd = other().finally(() => {
      isOtherOver = true
    })
    tokens.revoke(mine.token)
    expect(await ended()).toBe(true)
    expect(isOtherOver).toBe(false)
    tokens.revoke(theirs.token)
    await otherEnd
  })

  it('a stream of asks that counts as a client ends when its token may not answer', async () => {
    const { front: url } = nodes[name]!
    const token = tokens.add(`hf_${(names += 1)}`, ['watch', 'answer'])
    const headers = { ...STREAM, authorization: `Bearer ${token}` }
    const looking = await fetch(`${url}/v1/asks`, { headers })
    const answering = await fetch(`${url}/v1/asks?answers=permission`, { headers })
    let isLookingOver = false
    const looked = isCut(looking).finally(() => (isLookingOver = true))
    tokens.add(token, ['watch'])
    expect(await isCut(answering)).toBe(true)
    expect(isLookingOver).toBe(false)
    tokens.revoke(token)
    await looked
  })

  it('a turn that waits leaves the queue, and the one that runs goes on', async () => {
    const mine = await ongoing()
    const path = `/v1/sessions/${mine.id}/turns`
    const first = post({ ...mine, token: ADMIN }, path, { input: `${mine.key} first` })
    const running = await puppet.turn(`${mine.key} first`)
    const second = post(mine, path, { input: `${mine.key} second` })
    const third = post({ ...mine, token: ADMIN }, path, { input: `${mine.key} third` })
    const { authority } = nodes[name]!.holdfast
    const waiting = async (): Promise<number> => (await authority.open(mine.id)).queue.length
    await until(async () => (await waiting()) === 2)
    tokens.revoke(mine.token)
    expect((await second).status).toBe(401)
    // The owner learns by the end of the connection that the caller of another node has gone.
    await until(async () => (await waiting()) === 1)
    running.end('one')
    expect((await first).status).toBe(200)
    ;(await puppet.turn(`${mine.key} third`)).end('three')
    expect((await third).status).toBe(200)
    const transcript = await fetch(`${mine.url}/v1/sessions/${mine.id}/transcript`, {
      headers: { authorization: `Bearer ${ADMIN}` },
    })
    expect(await transcript.text()).not.toContain('second')
  })
})

describe('nodes with tokens of their own', () => {
  const copies = { owner: new Tokens(), front: new Tokens() }
  let owner: TestServer
  let front: TestServer

  beforeAll(async () => {
    const node = { store: database.freshUrl(), isNode: true, agents }
    owner = await serve({ ...node, tokens: copies.owner })
    front = await serve({ ...node, tokens: copies.front })
  })
  afterAll(() => Promise.all([owner.close(), front.close()]))

  it.each(['owner', 'front'] as const)(
    'a forwarded stream and a forwarded socket end when the %s alone takes the token back',
    async (where) => {
      const token = copies.owner.add(copies.front.make())
      const admin = { url: owner.url, token: ADMIN, id: '', key: '' }
      const key = `copies ${where}`
      const { id } = (await (await post(admin, '/v1/sessions', { key })).json()) as { id: string }
      const ongoing = { url: front.url, token, id, key }
      const stream = await WAYS['a stream of events']!(ongoing)
      const socket = await WAYS['a socket']!(ongoing)
      copies[where].revoke(token)
      expect([await stream(), await socket()]).toEqual([true, true])
    },
  )
})
