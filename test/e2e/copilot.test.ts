/** The Copilot door from outside, with a client that speaks nothing but its framing. */
import type { Agent } from 'holdfast'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { gate, until, type Gate } from '../support/gate.ts'
import { secretOf, TokenFiles } from '../support/principals.ts'
import { RawCopilot } from '../support/raw-copilot.ts'
import { serve, type TestServer } from '../support/server.ts'

let files: TokenFiles
let server: TestServer
let port: number
let gates: Gate[]
const clients: RawCopilot[] = []

/** Waits, if it is told to, for the next gate before it answers; fails if it is told to. */
const witness: Agent = async function* (turn, { signal }) {
  if (turn.text.includes('wait')) {
    const waiting = gate()
    gates.push(waiting)
    yield 'be'
    yield 'gun, '
    signal.addEventListener('abort', () => waiting.open())
    await waiting.opened
    if (signal.aborted) return
  }
  if (turn.text.includes('fail')) throw new Error('as it was told')
  if (!turn.text.includes('silent')) yield `you said ${turn.text}`
}
const permitted: Agent = Object.assign(
  (async (_turn, { ask }) => {
    const outcome = await ask({
      kind: 'permission',
      question: 'May I?',
      options: ['allow', 'deny'],
      accepts: ['message'],
      detail: { command: 'rm -r build', kind: 'execute' },
    })
    return JSON.stringify(outcome.outcome === 'answered' ? outcome.answer : outcome.outcome)
  }) satisfies Agent,
  { capabilities: { asks: true } },
)
const curious: Agent = async (turn, { ask }) => {
  const options = turn.text === 'choose' ? ['red', 'green'] : undefined
  const outcome = await ask({ kind: 'question', question: 'Which?', ...(options && { options }) })
  return outcome.outcome === 'answered'
    ? `it is ${JSON.stringify(outcome.answer)}`
    : outcome.outcome
}
const caller: Agent = Object.assign(
  (async (turn, { ask }) => {
    const detail = { input: { city: turn.text } }
    const outcome = await ask({
      kind: 'tool:weather',
      question: 'weather',
      detail,
      onNobody: 'deny',
    })
    return outcome.outcome === 'answered' ? JSON.stringify(outcome.answer) : outcome.outcome
  }) satisfies Agent,
  { capabilities: { clientTools: true } },
)

beforeAll(async () => {
  files = await TokenFiles.make()
  gates = []
  const agents = { witness, permitted, curious, caller }
  server = await serve({ agents, tokens: await files.open(), limits: { askMs: 600_000 } })
  port = await server.server.listenCopilot(0)
})
afterEach(async () => {
  for (const one of gates.splice(0)) one.open()
  await Promise.all(clients.splice(0).map((client) => client.cut()))
})
afterAll(async () => {
  await server.close()
  await files.remove()
})

async function open(who = 'alice'): Promise<RawCopilot> {
  const client = await RawCopilot.open(port, secretOf(who))
  clients.push(client)
  return client
}

let names = 0
const fresh = (): string => `session ${(names += 1)}`

async function created(client: RawCopilot, params: object = {}): Promise<string> {
  const sessionId = fresh()
  await client.request('session.create', { sessionId, ...params })
  return sessionId
}

/** As `sendAndWait` of the SDK: the last message before the first idle, once it is sent. */
async function sendAndWait(client: RawCopilot, sessionId: string, prompt: string) {
  const from = client.messages.length
  const isEnd = ({ method, params }: any): boolean =>
    method === 'session.event' &&
    params.sessionId === sessionId &&
    ['session.idle', 'session.error'].includes(params.event.type)
  const outcome = client.message(isEnd, from)
  await client.request('session.send', { sessionId, prompt })
  const { event } = (await outcome)['params']
  if (event.type === 'session.error') throw new Error(event.data.message)
  const said = client.messages.slice(from).filter(({ method, params }) => {
    return method === 'session.event' && params.event.type === 'assistant.message'
  })
  return said.at(-1)?.['params'].event.data.content as string
}

describe('a client', () => {
  it('is let in by its token and told the version of the protocol', async () => {
    const client = new RawCopilot(port)
    clients.push(client)
    const answer = await client.request('connect', { token: secretOf('alice') })
    expect(answer).toMatchObject({ protocolVersion: 3 })
    expect(await client.request('ping', { message: 'x' })).toMatchObject({ message: 'x' })
    expect(await client.request('status.get')).toMatchObject({ protocolVersion: 3 })
    expect(await client.request('auth.getStatus')).toMatchObject({ isAuthenticated: true })
    const { models } = await client.request('models.list')
    expect(models.map(({ id }: { id: string }) => id)).toContain('witness')
  })

  it.each([
    ['no token', 'connect', {}],
    ['a bad token', 'connect', { token: 'hf_bad' }],
    ['another method first', 'session.list', {}],
  ])('is refused and cut with %s', async (_, method, params) => {
    const client = new RawCopilot(port)
    await expect(client.request(method, params)).rejects.toMatchObject({
      data: { code: 'unauthorized' },
    })
    await client.closed
  })

  it('creates a session, sends, and hears its events in order', async () => {
    const client = await open()
    const sessionId = await created(client, { streaming: true })
    const { messageId } = await client.request('session.send', { sessionId, prompt: 'hello' })
    await client.event('session.idle')
    const events = client.events(sessionId)
    expect(events.map(({ type }) => type)).toEqual([
      'session.start',
      'pending_messages.modified',
      'user.message',
      'assistant.turn_start',
      'assistant.message_delta',
      'assistant.message',
      'assistant.turn_end',
      'assistant.idle',
      'session.idle',
    ])
    expect(events[0]?.data).toMatchObject({ sessionId, producer: 'holdfast' })
    expect(events[2]?.data).toEqual({ content: 'hello', messageId })
    const [delta, message] = [events[4], events[5]]
    expect(message?.data).toMatchObject({ content: 'you said hello' })
    expect(delta?.data.messageId).toBe(message?.data.messageId)
  })

  it('is not sent parts of the answer unless it asks for them', async () => {
    const client = await open()
    const sessionId = await created(client)
    expect(await sendAndWait(client, sessionId, 'hello')).toBe('you said hello')
    expect(client.events().filter(({ type }) => type === 'assistant.message_delta')).toEqual([])
  })

  it('finds its session by its key at every other door', async () => {
    const client = await open()
    const sessionId = await created(client)
    const headers = { authorization: `Bearer ${secretOf('phone')}` }
    const path = `/v1/keys/${encodeURIComponent(sessionId)}/turns`
    const from = client.messages.length
    await server.call('POST', path, { headers, body: { input: 'from elsewhere' } })
    await client.event('assistant.message', from)
    expect(client.events(sessionId).at(-1)?.type).toBe('session.idle')
  })

  it('resumes, lists, describes and deletes sessions by their names', async () => {
    const client = await open()
    const sessionId = await created(client)
    await sendAndWait(client, sessionId, 'hello')
    expect(await client.request('session.detach', { sessionId })).toEqual({ success: true })
    const { sessions } = await client.request('session.list')
    expect(sessions.map((one: any) => one.sessionId)).toContain(sessionId)
    expect((await client.request('session.getLastId')).sessionId).toBe(sessionId)
    const { session } = await client.request('session.getMetadata', { sessionId })
    expect(session).toMatchObject({ sessionId, isRemote: false })
    await client.request('session.resume', { sessionId })
    expect(await sendAndWait(client, sessionId, 'again')).toBe('you said again')
    expect(await client.request('session.delete', { sessionId })).toEqual({ success: true })
    await client.message(({ method }) => method === 'session.lifecycle')
    expect(await client.request('session.getMetadata', { sessionId })).toEqual({})
    await expect(client.request('session.resume', { sessionId })).rejects.toMatchObject({
      data: { code: 'session_unknown' },
    })
  })

  it('may use the name of a session again that was deleted, and not of one that is closed', async () => {
    const client = await open()
    const sessionId = await created(client)
    await client.request('session.delete', { sessionId })
    await client.request('session.create', { sessionId })
    const headers = { authorization: `Bearer ${secretOf('phone')}` }
    const path = `/v1/sessions?key=${encodeURIComponent(sessionId)}&state=open`
    const { sessions } = (await server.call('GET', path, { headers })).body
    await server.call('DELETE', `/v1/sessions/${sessions[0].id}`, { headers })
    for (const method of ['session.create', 'session.resume', 'session.abort']) {
      const refused = client.request(method, { sessionId })
      await expect(refused).rejects.toMatchObject({ data: { code: 'session_closed' } })
    }
    expect(client.events(sessionId).at(-1)?.type).toBe('session.shutdown')
    await client.request('session.delete', { sessionId })
    await client.request('session.create', { sessionId })
  })

  it('reads a history that has the ids of the events it was told', async () => {
    const client = await open()
    const sessionId = await created(client)
    await sendAndWait(client, sessionId, 'hello')
    const { events } = await client.request('session.getMessages', { sessionId })
    const lasting = client.events(sessionId).filter((event) => !('ephemeral' in event))
    expect(events).toEqual(lasting)
    expect(new Set(events.map(({ id }: any) => id)).size).toBe(events.length)
    expect(events[0].id).toMatch(/^[\da-f]{8}-[\da-f]{4}-4[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/)
  })

  it('chooses the agent as a model, and is refused another one later', async () => {
    const client = await open()
    const sessionId = await created(client, { model: 'curious', requestUserInput: true })
    expect(await client.request('session.model.getCurrent', { sessionId })).toEqual({
      modelId: 'curious',
    })
    const other = { sessionId, modelId: 'witness' }
    await expect(client.request('session.model.switchTo', other)).rejects.toMatchObject({
      data: { code: 'agent_mismatch' },
    })
    const unknown = { sessionId: fresh(), model: 'gpt-none' }
    await expect(client.request('session.create', unknown)).rejects.toMatchObject({
      data: { code: 'setting_unsupported' },
    })
  })

  it('adds to the instructions, and is refused what cannot be honoured', async () => {
    const client = await open()
    const systemMessage = { mode: 'append', content: 'be brief' }
    const sessionId = await created(client, { systemMessage })
    const row = await server.holdfast.list({ key: sessionId, principal: 'alice', limit: 1 })
    const { settings } = await server.holdfast.session(row.sessions[0]?.id ?? '').state()
    expect(settings).toEqual({ instructions: 'be brief' })
    for (const refused of [
      { systemMessage: { mode: 'replace', content: 'be somebody else' } },
      { systemMessage: { mode: 'customize', sections: { identity: { action: 'remove' } } } },
      { excludedTools: ['bash'] },
      { mcpServers: { own: { command: 'x' } } },
      { hooks: true },
    ]) {
      const create = client.request('session.create', { sessionId: fresh(), ...refused })
      await expect(create).rejects.toMatchObject({
        rpc: { code: -32_602 },
        data: { code: 'invalid_field', field: Object.keys(refused)[0] },
      })
    }
    // What an SDK says by itself is no wish.
    await created(client, { hooks: false, tools: [], excludedTools: [], envValueMode: 'direct' })
  })

  it('sends images with their bytes, and no paths', async () => {
    const client = await open()
    const sessionId = await created(client)
    const send = (attachment: object) =>
      client.request('session.send', { sessionId, prompt: 'look', attachments: [attachment] })
    await expect(send({ type: 'file', path: '/etc/passwd' })).rejects.toMatchObject({
      data: { field: 'attachments.0' },
    })
    const blob = { type: 'blob', mimeType: 'image/png', data: 'AAAA' }
    await expect(send(blob)).rejects.toMatchObject({ data: { code: 'input_unsupported' } })
  })
})

describe('who hears that a session is idle', () => {
  it('is each caller after its own reply, of two that call at once', async () => {
    const [one, other] = [await open(), await open('phone')]
    const sessionId = await created(one)
    await other.request('session.resume', { sessionId })
    for (let round = 0; round < 20; round += 1) {
      const replies = await Promise.all([
        sendAndWait(one, sessionId, `one ${round}`),
        sendAndWait(other, sessionId, `other ${round}`),
      ])
      expect(replies).toEqual([`you said one ${round}`, `you said other ${round}`])
    }
  })

  it('is each call after its own reply, of many on one connection', async () => {
    const client = await open()
    const sessionId = await created(client)
    const texts = Array.from({ length: 20 }, (_, index) => `call ${index}`)
    const replies = await Promise.all(texts.map((text) => sendAndWait(client, sessionId, text)))
    expect(replies).toEqual(texts.map((text) => `you said ${text}`))
  })

  it('is a call that begins when another’s idle is on its way, after its own reply', async () => {
    const [one, other] = [await open(), await open('phone')]
    const sessionId = await created(one)
    await other.request('session.resume', { sessionId })
    for (let round = 0; round < 20; round += 1) {
      await one.request('session.send', { sessionId, prompt: `one ${round}` })
      // The idle of the first turn comes at any time from now on.
      expect(await sendAndWait(other, sessionId, `other ${round}`)).toBe(`you said other ${round}`)
      expect(await sendAndWait(one, sessionId, `again ${round}`)).toBe(`you said again ${round}`)
    }
  })

  it('is a call that its client may have begun before the last idle, after its own reply', async () => {
    // A client that has not come to what shows where it stands.
    const client = await RawCopilot.open(port, secretOf('alice'), { silent: true })
    clients.push(client)
    const sessionId = await created(client)
    expect(await sendAndWait(client, sessionId, 'first')).toBe('you said first')
    const id = client.ask('session.send', { sessionId, prompt: 'wait' })
    await until(() => gates.length === 1)
    await client.request('ping')
    const isAnswer = (message: any): boolean => message.id === id && message.method === undefined
    expect(client.messages.some(isAnswer)).toBe(false)
    const from = client.messages.length
    gates[0]?.open()
    await client.message(({ params }) => params?.event?.type === 'session.idle', from)
    const order = client.messages.slice(from).flatMap((message) => {
      const type = message['params']?.event?.type as string | undefined
      if (isAnswer(message)) return ['answer']
      return type === 'assistant.message' || type === 'session.idle' ? [type] : []
    })
    expect(order).toEqual(['assistant.message', 'answer', 'session.idle'])
  })

  it('is a client that sends, then cancels: its message is answered before it has a reply', async () => {
    const client = await open()
    const sessionId = await created(client)
    expect(await sendAndWait(client, sessionId, 'first')).toBe('you said first')
    await client.request('session.send', { sessionId, prompt: 'wait' })
    expect(await client.request('session.abort', { sessionId })).toEqual({ success: true })
  })

  it('is a call whose agent says nothing, with an empty message', async () => {
    const [one, other] = [await open(), await open('phone')]
    const sessionId = await created(one)
    await other.request('session.resume', { sessionId })
    const replies = await Promise.all([
      sendAndWait(one, sessionId, 'loud'),
      sendAndWait(other, sessionId, 'silent'),
    ])
    expect(replies).toEqual(['you said loud', ''])
  })

  it('is not a caller whose turn waits when another turn fails: that is its caller’s error', async () => {
    const [one, other] = [await open(), await open('phone')]
    const sessionId = await created(one)
    await other.request('session.resume', { sessionId })
    const failing = sendAndWait(one, sessionId, 'wait and fail')
    await until(() => gates.length === 1)
    const waiting = sendAndWait(other, sessionId, 'mine')
    await until(
      async () => (await server.holdfast.list({ key: sessionId })).sessions[0]?.queuedTurns === 1,
    )
    gates[0]?.open()
    await expect(failing).rejects.toThrow('as it was told')
    expect(await waiting).toBe('you said mine')
    expect(other.events(sessionId).map(({ type }) => type)).toContain('session.warning')
    expect(other.events(sessionId).map(({ type }) => type)).not.toContain('session.error')
  })

  it('is told the failure of its own turn also where its request is answered late', async () => {
    const client = await open()
    const sessionId = await created(client)
    const first = sendAndWait(client, sessionId, 'first')
    const second = client.request('session.send', { sessionId, prompt: 'fail' })
    expect(await first).toBe('you said first')
    await expect(second).rejects.toMatchObject({ message: expect.stringContaining('as it was') })
  })

  it('is a client that only follows, at the end of each turn', async () => {
    const [one, follower] = [await open(), await open('phone')]
    const sessionId = await created(one)
    await follower.request('session.resume', { sessionId })
    await sendAndWait(one, sessionId, 'hello')
    await follower.event('session.idle')
  })

  it('is told that its message was cancelled, with what was said until then', async () => {
    const client = await open()
    const sessionId = await created(client)
    const call = sendAndWait(client, sessionId, 'wait')
    await until(() => gates.length === 1)
    expect(await client.request('session.abort', { sessionId })).toEqual({ success: true })
    expect(await call).toBe('begun, ')
    expect((await client.event('session.idle')).data).toEqual({ aborted: true })
    // Nothing runs: nothing happens.
    expect(await client.request('session.abort', { sessionId })).toEqual({ success: true })
  })
})

describe('an ask', () => {
  it.each([
    [{ kind: 'approve-once' }, '"allow"'],
    [{ kind: 'approve-for-session' }, '"allow"'],
    [{ kind: 'reject', feedback: 'not now' }, '{"option":"deny","message":"not now"}'],
    [{ kind: 'user-not-available' }, '"deny"'],
  ])('for a permission is answered with %j', async (result, reply) => {
    const client = await open()
    const sessionId = await created(client, { agent: 'permitted', requestPermission: true })
    const call = sendAndWait(client, sessionId, 'do it')
    const { data } = await client.event('permission.requested')
    expect(data.permissionRequest).toMatchObject({ kind: 'shell', fullCommandText: 'rm -r build' })
    const { requestId } = data
    const answer = { sessionId, requestId, result }
    const method = 'session.permissions.handlePendingPermissionRequest'
    expect(await client.request(method, answer)).toEqual({ success: true })
    expect(await call).toBe(reply)
    const { data: settled } = await client.event('permission.completed')
    const kind = reply === '"allow"' ? 'approved' : 'denied-interactively-by-user'
    expect(settled).toMatchObject({ requestId, result: { kind } })
    expect(await client.request(method, answer)).toEqual({ success: false })
  })

  it('that waits is told again to a client that comes back, which answers it', async () => {
    const first = await open()
    const sessionId = await created(first, { agent: 'permitted', requestPermission: true })
    await first.request('session.send', { sessionId, prompt: 'do it' })
    const asked = await first.event('permission.requested')
    await first.cut()
    const second = await open('phone')
    await second.request('session.resume', { sessionId, requestPermission: true })
    const again = await second.event('permission.requested')
    expect(again.id).toBe(asked.id)
    expect(again.data).toEqual(asked.data)
    const { requestId } = again.data
    const result = { kind: 'approve-once' }
    const method = 'session.permissions.handlePendingPermissionRequest'
    await second.request(method, { sessionId, requestId, result })
    await second.event('session.idle')
    expect((await second.event('assistant.message')).data.content).toBe('"allow"')
  })

  it('for a choice is a request for input, asked again if the answer is none', async () => {
    const client = await open()
    const sessionId = await created(client, { agent: 'curious', requestUserInput: true })
    const asked: any[] = []
    client.handlers['userInput.request'] = (params) => {
      asked.push(params)
      return { answer: asked.length === 1 ? 'blue' : 'green', wasFreeform: false }
    }
    expect(await sendAndWait(client, sessionId, 'choose')).toBe('it is "green"')
    const request = {
      sessionId,
      question: 'Which?',
      choices: ['red', 'green'],
      allowFreeform: false,
    }
    expect(asked).toEqual([request, request])
    expect(await sendAndWait(client, sessionId, 'say')).toBe('it is "green"')
    expect(asked[2]).toEqual({ sessionId, question: 'Which?', allowFreeform: true })
  })

  it('that another client answers is taken back', async () => {
    const [one, other] = [await open(), await open('phone')]
    const sessionId = await created(one, { agent: 'curious', requestUserInput: true })
    await other.request('session.resume', { sessionId, requestUserInput: true })
    // The first never answers.
    one.handlers['userInput.request'] = () => new Promise(() => undefined)
    other.handlers['userInput.request'] = () => ({ answer: 'yes', wasFreeform: true })
    expect(await sendAndWait(one, sessionId, 'say')).toBe('it is "yes"')
    await one.message(({ method }) => method === '$/cancelRequest')
    expect((await one.event('user_input.completed')).data).toMatchObject({ answer: 'yes' })
  })

  it('is answered as an event too', async () => {
    const client = await open()
    const sessionId = await created(client, { agent: 'curious' })
    const call = sendAndWait(client, sessionId, 'choose')
    const { requestId } = (await client.event('user_input.requested')).data
    const method = 'session.ui.handlePendingUserInput'
    const answer = (words: string) =>
      client.request(method, {
        sessionId,
        requestId,
        response: { answer: words, wasFreeform: false },
      })
    expect(await answer('blue')).toEqual({ success: false })
    expect(await answer('red')).toEqual({ success: true })
    expect(await call).toBe('it is "red"')
  })

  it('calls a tool of the client, where the agent may', async () => {
    const client = await open()
    const tools = [{ name: 'weather', description: 'the weather', parameters: {} }]
    const sessionId = await created(client, { agent: 'caller', tools })
    const call = sendAndWait(client, sessionId, 'Bern')
    const { data } = await client.event('external_tool.requested')
    expect(data).toMatchObject({ sessionId, toolName: 'weather', arguments: { city: 'Bern' } })
    const result = { textResultForLlm: 'sunny', resultType: 'success' }
    const method = 'session.tools.handlePendingToolCall'
    await client.request(method, { sessionId, requestId: data.requestId, result })
    expect(JSON.parse(await call)).toEqual({ result })
    const refused = client.request('session.create', {
      sessionId: fresh(),
      agent: 'witness',
      tools,
    })
    await expect(refused).rejects.toMatchObject({
      data: { code: 'capability_missing', capability: 'clientTools' },
    })
  })

  it('for a tool that no client has is denied', async () => {
    const client = await open()
    const sessionId = await created(client, { agent: 'caller' })
    expect(await sendAndWait(client, sessionId, 'Bern')).toBe('nobody_to_ask')
  })
})
