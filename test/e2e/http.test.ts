/** The native HTTP contract, from outside: a real server on a real port, with the memory store. */
import { connect } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { builtinAgents, HoldfastError, MemoryStore, type Agent, type Holdfast } from 'holdfast'
import { startServer } from 'holdfast/server'
import { fetchDescribed } from '../support/described.ts'
import { serve, type TestServer } from '../support/server.ts'

type Json = Record<string, any>
/** What is in its JSON is for the test to say. */
type Answer = Omit<Response, 'json'> & { json(): Promise<any> }

let holdfast: Holdfast
let server: TestServer

beforeAll(async () => {
  server = await serve({ agents, heartbeatMs: 20 })
  holdfast = server.holdfast
})

afterAll(() => server.close())

describe('sessions', () => {
  it('are created once per key and found after that', async () => {
    const first = await post('/v1/sessions', { key: 'resolve', labels: { team: 'a' } })
    const second = await post('/v1/sessions', { key: 'resolve' })
    const [created, found] = [await first.json(), await second.json()]
    expect([first.status, second.status]).toEqual([201, 200])
    expect(first.headers.get('location')).toBe(`/v1/sessions/${created.id}`)
    expect(created).toMatchObject({ key: 'resolve', state: 'open', isNew: true, seq: 1 })
    expect(found).toMatchObject({ id: created.id, isNew: false, labels: { team: 'a' } })
  })

  it('are shown with what runs, what waits and what was asked', async () => {
    const id = await sessionOf({ key: 'shown', agent: 'ask' })
    await post(`/v1/sessions/${id}/turns`, { input: 'x' }, ASYNC)
    const second = await (await post(`/v1/sessions/${id}/turns`, { input: 'y' }, ASYNC)).json()
    await streamed(id, (event) => event.type === 'ask.opened')
    const view = await (await get(`/v1/sessions/${id}`)).json()
    expect(view).toMatchObject({
      running: 't2',
      queued: [{ turn: second.turn.id, state: 'queued', position: 1 }],
      asks: 1,
      turns: 1,
      closed: null,
    })
    expect(view).not.toHaveProperty('recent')
  })

  it('are created by a request without a body', async () => {
    expect((await fetch(`${server.url}/v1/sessions`, { method: 'POST' })).status).toBe(201)
  })

  it('are listed by state, key and label, page by page, the internal ones never', async () => {
    const labels = { page: 'one' }
    const ids = [await sessionOf({ labels }), await sessionOf({ labels })]
    await sessionOf({ labels, internal: true })
    const first = await (await get('/v1/sessions?label=page:one&limit=1')).json()
    const rest = await (
      await get(`/v1/sessions?label=page:one&limit=5&cursor=${first.nextCursor}`)
    ).json()
    expect([...first.sessions, ...rest.sessions].map(({ id }: Json) => id)).toEqual(
      ids.toReversed(),
    )
    expect(rest.nextCursor).toBeNull()
    await fetch(`${server.url}/v1/sessions/${ids[0]}`, { method: 'DELETE' })
    const closed = await (await get('/v1/sessions?label=page:one&state=closed')).json()
    expect(closed.sessions.map(({ id }: Json) => id)).toEqual([ids[0]])
  })

  it('are filtered, sorted by activity and counted on the server', async () => {
    const labels = { page: 'two' }
    const [first, second, third] = [
      await sessionOf({ labels, key: 'Find:Älice' }),
      await sessionOf({ labels: { ...labels, team: 'blue' }, key: 'find:bob' }),
      await sessionOf({ labels, agent: 'fail', key: 'other/find:%41' }),
    ]
    await post(`/v1/sessions/${third}/turns`, { input: 'x' })
    await post(`/v1/sessions/${first}/turns`, { input: 'x' })
    const listed = async (query: string) => {
      const body = await (await get(`/v1/sessions?label=page:two&count=true&${query}`)).json()
      const ids = body.sessions.map(({ id }: Json) => id)
      expect(body.count).toEqual({ atLeast: ids.length, isExact: true })
      return ids
    }
    expect(await listed('sort=activity')).toEqual([first, third, second])
    expect(await listed('sort=activity&order=asc')).toEqual([second, third, first])
    expect(await listed('order=asc')).toEqual([first, second, third])
    expect(await listed('prefix=FIND%3A')).toEqual([second, first])
    expect(await listed('q=find%3A%C3%84')).toEqual([first])
    expect(await listed('q=%25')).toEqual([third])
    expect(await listed('status=failed')).toEqual([third])
    expect(await listed('agent=fail&status=idle')).toEqual([])
    expect(await listed('label=team:blue')).toEqual([second])
    expect(await listed('principal=default&status=idle')).toEqual([second, first])
    expect(await listed('principal=nobody')).toEqual([])
    const row = (await (await get('/v1/sessions?label=team:blue')).json()).sessions[0]
    expect(row).toMatchObject({ status: 'idle', attached: 0, queuedTurns: 0 })
  })

  it('are closed once and for all, however often that is asked for', async () => {
    const id = await sessionOf({ key: 'closing' })
    for (const _ of [1, 2]) {
      const answer = await remove(`/v1/sessions/${id}`)
      expect(await answer.json()).toEqual({ id, state: 'closed', erased: false, left: [] })
    }
    expect((await (await get(`/v1/sessions/${id}`)).json()).closed.reason).toBe('closed')
    await refused(post(`/v1/sessions/${id}/turns`, { input: 'x' }), 410, 'session_closed')
    const again = await (await post('/v1/keys/closing/turns', { input: 'x' })).json()
    expect(again.session).not.toBe(id)
  })

  it('are gone once they are erased', async () => {
    const id = await sessionOf()
    for (const _ of [1, 2]) {
      const answer = await remove(`/v1/sessions/${id}?erase=true`)
      expect(await answer.json()).toEqual({ id, state: 'closed', erased: true, left: [] })
    }
    await refused(get(`/v1/sessions/${id}`), 410, 'session_erased')
    await refused(get(`/v1/sessions/${id}/events`), 410, 'session_erased')
  })
})

describe('turns', () => {
  it('answer with their reply', async () => {
    const answer = await post('/v1/keys/sync/turns', { input: 'hello' })
    expect(answer.status).toBe(200)
    expect(await answer.json()).toMatchObject({
      turn: { id: 't2', state: 'done', input: 'hello', reply: { text: 'hello' }, error: null },
    })
  })

  it('of keys with any character find their session again', async () => {
    const key = 'a/b c%é🪸?#'
    const turns = [1, 2].map(() =>
      post(`/v1/keys/${encodeURIComponent(key)}/turns`, { input: 'x' }).then((it) => it.json()),
    )
    const [one, other] = await Promise.all(turns)
    expect(one.session).toBe(other.session)
    expect((await (await get(`/v1/sessions/${one.session}`)).json()).key).toBe(key)
  })

  it('of one key that come at once all go to one new session, one after the other', async () => {
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, n) => post('/v1/keys/cold/turns', { input: `n${n}` })),
    )
    const turns: Json[] = await Promise.all(answers.map((answer) => answer.json()))
    expect(new Set(turns.map(({ session }) => session)).size).toBe(1)
    for (const { turn } of turns) expect(turn.reply.text).toBe(turn.input)
  })

  it('that fail are told as failed, not refused', async () => {
    const answer = await post('/v1/keys/failing/turns', { agent: 'fail', input: 'x' })
    const { turn } = await answer.json()
    expect(answer.status).toBe(200)
    expect(turn).toMatchObject({ state: 'failed', error: { code: 'runner_failed' } })
  })

  it('are recorded at once when the caller prefers that, and found at their location', async () => {
    const answer = await post('/v1/keys/async/turns', { agent: 'gate', input: 'async' }, ASYNC)
    expect(answer.status).toBe(202)
    const location = answer.headers.get('location') ?? ''
    const { session, turn } = await answer.json()
    expect(location).toBe(`/v1/sessions/${session}/turns/${turn.id}`)
    gateOf('async').open()
    await holdfast.session(session).finished(turn.id)
    expect((await (await get(location)).json()).turn.reply.text).toBe('one two')
  })

  it('are cancelled by DELETE, which answers when they are over', async () => {
    const gate = gateOf('cancelled')
    const answer = await post('/v1/keys/cancel/turns', { agent: 'gate', input: 'cancelled' }, ASYNC)
    const location = answer.headers.get('location') ?? ''
    await gate.started
    const { turn } = await (await remove(location)).json()
    expect(turn).toMatchObject({ state: 'cancelled', reply: { text: 'one ' } })
    expect((await (await remove(location)).json()).turn).toEqual(turn)
  })

  it('come as their own events, the answer in parts', async () => {
    gateOf('streamed').open()
    const body = { agent: 'gate', input: 'streamed' }
    const answer = await post('/v1/keys/stream/turns', body, STREAM)
    expect(answer.headers.get('content-type')).toBe('text/event-stream')
    expect(answer.headers.get('content-location')).toMatch(/^\/v1\/sessions\/[\w-]+\/turns\/t2$/)
    const events = await all(sse(answer))
    expect(events.map(({ event, id }) => [event, id])).toEqual([
      ['turn.started', '2'],
      ['delta', '2.1'],
      ['delta', '2.2'],
      ['message.added', '3.2'],
      ['turn.done', '4.2'],
    ])
  })
})

describe('a busy session', () => {
  it('refuses at once, or when the time to wait is over, and says when to come back', async () => {
    const gate = gateOf('busy')
    const running = post('/v1/keys/busy/turns', { agent: 'gate', input: 'busy' })
    await gate.started
    for (const patience of [{ busy: 'reject' }, { waitMs: 0 }]) {
      const answer = await post('/v1/keys/busy/turns', { input: 'x', ...patience })
      expect([answer.status, answer.headers.get('retry-after')]).toEqual([429, '1'])
      expect(answer.headers.get('content-type')).toBe('application/problem+json')
      const problem = { code: 'session_busy', status: 429, position: 1, retryAfterMs: 1000 }
      expect(await answer.json()).toMatchObject(problem)
    }
    const stream = post('/v1/keys/busy/turns', { input: 'x', busy: 'reject' }, STREAM)
    await refused(stream, 429, 'session_busy')
    gate.open()
    expect((await (await running).json()).turn.state).toBe('done')
  })

  it('forgets a caller that went away before its turn was admitted', async () => {
    const gate = gateOf('leaving')
    const running = post('/v1/keys/leaving/turns', { agent: 'gate', input: 'leaving' })
    await gate.started
    const caller = new AbortController()
    const left = post('/v1/keys/leaving/turns', { input: 'never' }, {}, caller.signal)
    await placeIs('leaving', 2)
    caller.abort()
    await expect(left).rejects.toThrow('aborted')
    await placeIs('leaving', 1)
    gate.open()
    const { session } = await (await running).json()
    const transcript = await (await get(`/v1/sessions/${session}/transcript`)).text()
    expect(transcript).not.toContain('never')
  })
})

describe('a caller that goes away', () => {
  it('cancels its turn if it asked for that', async () => {
    const turn = await abandoned('gone', { onDisconnect: 'cancel' })
    expect(turn).toMatchObject({ state: 'cancelled', reason: 'caller_gone' })
  })

  it('leaves its turn running if it did not', async () => {
    expect(await abandoned('stays', {})).toMatchObject({
      state: 'done',
      reply: { text: 'one two' },
    })
  })

  async function abandoned(name: string, options: Json) {
    const caller = new AbortController()
    const body = { agent: 'gate', input: name, ...options }
    const answer = await post(`/v1/keys/${name}/turns`, body, STREAM, caller.signal)
    await gateOf(name).started
    const { id } = await holdfast.resolve({ key: name })
    caller.abort()
    await answer.body?.cancel().catch(() => undefined)
    // By the time another connection is answered, the server knows that this one is gone.
    await get('/health')
    if (options['onDisconnect'] === undefined) gateOf(name).open()
    return holdfast.session(id).finished('t2')
  }
})

describe('an Idempotency-Key', () => {
  const KEYED = { 'idempotency-key': 'once' }

  it('joins the running turn, then returns the finished one', async () => {
    const gate = gateOf('joined')
    const body = { agent: 'gate', input: 'joined' }
    const first = post('/v1/keys/idempotent/turns', body, KEYED)
    await gate.started
    const second = post('/v1/keys/idempotent/turns', body, KEYED)
    gate.open()
    const [one, two] = await Promise.all([(await first).json(), (await second).json()])
    const three = await (await post('/v1/keys/idempotent/turns', body, KEYED)).json()
    expect([two, three]).toEqual([one, one])
  })

  it('is refused with another body', async () => {
    await post('/v1/keys/mismatch/turns', { input: 'one' }, KEYED)
    const other = post('/v1/keys/mismatch/turns', { input: 'two' }, KEYED)
    await refused(other, 422, 'idempotency_mismatch')
  })
})

describe('events', () => {
  it('come in pages', async () => {
    const { session } = await (await post('/v1/keys/pages/turns', { input: 'x' })).json()
    const first = await (await get(`/v1/sessions/${session}/events?limit=3`)).json()
    const rest = await (await get(`/v1/sessions/${session}/events?after=${first.nextAfter}`)).json()
    expect([first.hasMore, rest.hasMore, rest.nextAfter]).toEqual([true, false, 4])
    const seqs = [...first.events, ...rest.events].map(({ seq }: Json) => seq)
    expect(seqs).toEqual([1, 2, 3, 4])
    await refused(get(`/v1/sessions/${session}/events?after=5`), 422, 'invalid_field')
    await refused(get(`/v1/sessions/${session}/events?after=-1`), 422, 'invalid_field')
  })

  it('go on after the last one seen, mid-answer too: no gap, no repeat', async () => {
    const gate = gateOf('resumed')
    const id = await sessionOf({ key: 'resumed', agent: 'gate' })
    await post(`/v1/sessions/${id}/turns`, { input: 'resumed' }, ASYNC)
    const before = await streamed(id, (event) => event.type === 'delta')
    expect(before.at(-1)?.id).toBe('3.1')
    const resumed = await get(`/v1/sessions/${id}/events`, {
      ...STREAM,
      'last-event-id': before.at(-1)?.id ?? '',
    })
    gate.open()
    await holdfast.session(id).finished('t2')
    await remove(`/v1/sessions/${id}`)
    const events = [...before, ...(await all(sse(resumed)))]
    expect(events.map(({ event, id: at }) => [event, at])).toEqual([
      ['session.created', '1'],
      ['turn.queued', '2'],
      ['turn.started', '3'],
      ['delta', '3.1'],
      ['delta', '3.2'],
      ['message.added', '4.2'],
      ['turn.done', '5.2'],
      ['session.closed', '6.2'],
      ['end', null],
    ])
    expect(events.at(-1)?.data).toEqual({ code: 'session_closed', reason: 'closed' })
  })

  it('of a closed session come to their end', async () => {
    const id = await sessionOf()
    await remove(`/v1/sessions/${id}`)
    const events = await all(sse(await get(`/v1/sessions/${id}/events?after=1`, STREAM)))
    expect(events.map(({ event }) => event)).toEqual(['session.closed', 'end'])
  })

  it('have a sign of life between them', async () => {
    const id = await sessionOf()
    const answer = await get(`/v1/sessions/${id}/events`, STREAM)
    let text = ''
    for await (const part of parts(answer)) {
      text += part
      if (text.includes(': heartbeat')) break
    }
    expect(text).toContain('\n: heartbeat\n\n')
  })

  it('are refused as a status before the stream begins', async () => {
    await refused(get('/v1/sessions/nobody/events', STREAM), 404, 'session_unknown')
    const id = await sessionOf()
    await refused(get(`/v1/sessions/${id}/events?after=9`, STREAM), 422, 'invalid_field')
    const bad = { ...STREAM, 'last-event-id': '1.x' }
    await refused(get(`/v1/sessions/${id}/events`, bad), 422, 'invalid_field')
    await refused(get(`/v1/sessions/${id}/events`, { accept: 'image/png' }), 406, 'not_acceptable')
  })

  it('come whole, however many megabytes they are', async () => {
    const body = { agent: 'large', input: '200' }
    const { session } = await (await post('/v1/keys/large/turns', body)).json()
    await remove(`/v1/sessions/${session}`)
    const events = await all(sse(await get(`/v1/sessions/${session}/events`, STREAM)))
    expect(events.filter(({ event }) => event === 'message.added')).toHaveLength(200)
  })
})

describe('a log read from its end', () => {
  it('has pages that end before a position, without a gap or a repeat', async () => {
    const id = await sessionOf()
    for (const input of ['a', 'b', 'c']) await post(`/v1/sessions/${id}/turns`, { input })
    const whole = await (await get(`/v1/sessions/${id}/events`)).json()
    const seqs: number[] = []
    for (let before = 999; ;) {
      const path = `/v1/sessions/${id}/events?before=${before}&limit=4`
      const page = await (await get(path)).json()
      const own = page.events.map(({ seq }: Json) => seq)
      expect(own).toEqual(own.toSorted((one: number, other: number) => one - other))
      expect([page.nextBefore, page.nextAfter]).toEqual([own[0], own.at(-1)])
      seqs.unshift(...own)
      if (!page.hasMore) break
      before = page.nextBefore
    }
    expect(seqs).toEqual(whole.events.map(({ seq }: Json) => seq))
    const empty = await (await get(`/v1/sessions/${id}/events?before=1`)).json()
    expect(empty).toEqual({ events: [], nextBefore: 1, nextAfter: 0, hasMore: false })
  })

  it('has smaller pages where its events are large, with one at least', async () => {
    const { session } = await (
      await post('/v1/keys/large-back/turns', { agent: 'large', input: '20' })
    ).json()
    const path = `/v1/sessions/${session}/events`
    const whole: number[] = []
    for (let after = 0; ;) {
      const page = await (await get(`${path}?after=${after}`)).json()
      whole.push(...page.events.map(({ seq }: Json) => seq))
      if (!page.hasMore) break
      after = page.nextAfter
    }
    const seqs: number[] = []
    for (let before = 999; before > 1;) {
      const { events, nextBefore } = await (await get(`${path}?before=${before}`)).json()
      expect(events.length).toBeGreaterThan(0)
      seqs.unshift(...events.map(({ seq }: Json) => seq))
      before = nextBefore
    }
    expect(seqs).toEqual(whole)
  })

  it('is no stream, and begins at one end', async () => {
    const id = await sessionOf()
    const path = `/v1/sessions/${id}/events`
    await refused(get(`${path}?before=2`, STREAM), 422, 'invalid_field')
    await refused(get(`${path}?before=2&after=0`), 422, 'invalid_field')
    await refused(get(`${path}?before=0`), 422, 'invalid_field')
    await refused(get(`${path}?before=2&limit=257`), 422, 'invalid_field')
    await refused(get('/v1/sessions/nobody/events?before=2'), 404, 'session_unknown')
  })
})

describe('the change feed', () => {
  it('tells which sessions changed after a position, and how', async () => {
    const { changes, position, hasMore } = await (await get('/v1/changes')).json()
    expect([changes, hasMore]).toEqual([[], false])
    const { session } = await (await post('/v1/keys/changing/turns', { input: 'a' })).json()
    const page = await (await get(`/v1/changes?after=${position}`)).json()
    expect(page.changes).toMatchObject([
      {
        after: 0,
        session: { id: session, status: 'idle', queuedTurns: 0, seq: page.changes[0].seq },
      },
    ])
    const next = await (await get(`/v1/changes?after=${page.position}`)).json()
    expect(next).toEqual({ changes: [], position: page.position, hasMore: false })
  })

  it('is a stream from a position, which it begins with', async () => {
    const answer = await get('/v1/changes', STREAM)
    const stream = sse(answer)
    const { value: first } = await stream.next()
    expect(first).toMatchObject({ event: 'changes', data: { changes: [] } })
    const id = await sessionOf()
    const { value: second } = await stream.next()
    expect(second).toMatchObject({ event: 'changes', data: { changes: [{ session: { id } }] } })
    await stream.return(undefined)
    const again = sse(await get('/v1/changes', { ...STREAM, 'last-event-id': `${first!.id}` }))
    await again.next()
    expect((await again.next()).value).toMatchObject({ id: second!.id })
    await again.return(undefined)
  })

  it('refuses a position that it never had, also of a stream', async () => {
    await refused(get('/v1/changes?after=123456789'), 410, 'changes_gone')
    await refused(get('/v1/changes?after=123456789', STREAM), 410, 'changes_gone')
    await refused(get('/v1/changes', { ...STREAM, 'last-event-id': 'x' }), 422, 'invalid_field')
    await refused(get('/v1/changes?limit=0'), 422, 'invalid_field')
    await refused(get('/v1/changes?limit=100000'), 422, 'invalid_field')
  })
})

describe('the transcript', () => {
  it('has one message per line', async () => {
    const { session } = await (await post('/v1/keys/transcript/turns', { input: 'a\nb' })).json()
    const answer = await get(`/v1/sessions/${session}/transcript`)
    expect(answer.headers.get('content-type')).toBe('application/jsonl')
    const lines = (await answer.text()).trimEnd().split('\n')
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([
      { seq: 2, turn: 't2', role: 'user', text: 'a\nb' },
      { seq: 3, turn: 't2', role: 'assistant', text: 'a\nb' },
    ])
    await refused(get('/v1/sessions/nobody/transcript'), 404, 'session_unknown')
  })

  it('is read from its end in pages, each of which says where the one before it ends', async () => {
    const id = await sessionOf()
    for (const input of ['a', 'b', 'c', 'd']) await post(`/v1/sessions/${id}/turns`, { input })
    const path = `/v1/sessions/${id}/transcript`
    const whole = await (await get(path)).text()
    const pages: string[] = []
    for (let before: string | null = ''; before !== null;) {
      const answer = await get(`${path}?limit=3${before === '' ? '' : `&before=${before}`}`)
      expect(answer.headers.get('content-type')).toBe('application/jsonl')
      pages.unshift(await answer.text())
      before = answer.headers.get('x-next-before')
    }
    expect(pages.join('')).toBe(whole)
    expect(pages.map((page) => page.trimEnd().split('\n').length)).toEqual([2, 3, 3])
    await refused(get(`${path}?limit=0`), 422, 'invalid_field')
    await refused(get(`${path}?limit=257`), 422, 'invalid_field')
    await refused(get('/v1/sessions/nobody/transcript?limit=3'), 404, 'session_unknown')
  })

  it('has an empty page where messages are far apart, with a way on', async () => {
    const id = await sessionOf()
    await post(`/v1/sessions/${id}/turns`, { input: 'hello' })
    const note = { kind: 'copilot', data: null }
    const session = holdfast.session(id)
    for (let left = 5; left > 0; left -= 1) {
      await Promise.all(Array.from({ length: 1_000 }, () => session.note(note, 'turn.run')))
    }
    const path = `/v1/sessions/${id}/transcript`
    const texts: string[] = []
    let empty = 0
    for (let before: string | null = '999999'; before !== null;) {
      const answer = await get(`${path}?limit=2&before=${before}`)
      const lines = (await answer.text()).split('\n').filter((line) => line !== '')
      texts.unshift(...lines.map((line) => JSON.parse(line).text))
      if (lines.length === 0) empty += 1
      before = answer.headers.get('x-next-before')
    }
    expect(texts).toEqual(['hello', 'hello'])
    expect(empty).toBeGreaterThan(0)
  })
})

describe('an ask', () => {
  it('is answered once; the second answer is refused', async () => {
    const id = await sessionOf({ key: 'asking', agent: 'ask' })
    await post(`/v1/sessions/${id}/turns`, { input: 'please' }, ASYNC)
    await streamed(id, (event) => event.type === 'ask.opened')
    const { asks } = await (await get(`/v1/sessions/${id}/asks`)).json()
    const path = `/v1/sessions/${id}/asks/${asks[0].id}`
    await refused(post(path, { answer: 'perhaps' }), 422, 'invalid_answer')
    await refused(post(path, {}), 422, 'invalid_field')
    const answered = await post(path, { answer: 'allow' })
    expect(await answered.json()).toMatchObject({ ask: { outcome: 'answered', answer: 'allow' } })
    await refused(post(path, { answer: 'deny' }), 409, 'ask_settled')
    expect((await holdfast.session(id).finished('t2')).reply?.text).toBe('please')
    for (const unknown of ['a99', 'a1', 'a2', 'a0', 'b1']) {
      const other = `/v1/sessions/${id}/asks/${unknown}`
      await refused(post(other, { answer: 1 }), 404, 'ask_unknown')
    }
  })
})

describe('a wrong request', () => {
  it.each([
    ['a path that is not there', () => get('/v1/nothing'), 404, 'route_unknown'],
    ['a path with a slash too many', () => get('/v1/sessions/'), 404, 'route_unknown'],
    ['an unknown session', () => get('/v1/sessions/nobody'), 404, 'session_unknown'],
    ['an unknown turn', () => unknownTurn('t99'), 404, 'turn_unknown'],
    ['what is no turn', () => unknownTurn('99'), 404, 'turn_unknown'],
    ['broken JSON', () => raw('/v1/sessions', '{"key":'), 400, 'bad_request'],
    ['a body that is no object', () => post('/v1/sessions', []), 400, 'bad_request'],
    ['a body that is not UTF-8', () => raw('/v1/sessions', NOT_UTF8), 400, 'bad_request'],
    ['a broken percent-encoding', () => get('/v1/sessions/%E0%A4%A'), 400, 'bad_request'],
    ['another media type', () => raw('/v1/sessions', '{}', 'text/plain'), 415, MEDIA],
    ['an unknown field', () => post('/v1/sessions', { kee: 'x' }), 422, 'invalid_field'],
    ['a field of a wrong type', () => post('/v1/sessions', { key: 1 }), 422, 'invalid_field'],
    ['an unknown query', () => get('/v1/sessions?sate=open'), 422, 'invalid_field'],
    ['an unknown status', () => get('/v1/sessions?status=busy'), 422, 'invalid_field'],
    ['an empty search', () => get('/v1/sessions?q='), 422, 'invalid_field'],
    ['an unknown order', () => get('/v1/sessions?order=up'), 422, 'invalid_field'],
    ['a wrong limit', () => get('/v1/sessions?limit=0'), 422, 'invalid_field'],
    ['a turn without input', () => post('/v1/keys/wrong/turns', {}), 422, 'invalid_field'],
    ['a nest of brackets', () => raw('/v1/keys/wrong/turns', NEST), 422, 'invalid_field'],
    ['an unknown agent', () => post('/v1/sessions', { agent: 'x' }), 422, 'agent_unknown'],
    ['a foreign origin', () => get('/health', { origin: 'http://a.example' }), 403, ORIGIN],
  ])('with %s is refused', async (_, request, status, code) => {
    await refused(request(), status, code)
  })

  it('with another method is told which there are', async () => {
    const answer = await fetch(`${server.url}/v1/sessions`, { method: 'PUT' })
    expect(answer.headers.get('allow')).toBe('POST, GET')
    await refused(Promise.resolve(answer), 405, 'method_not_allowed')
  })

  it("with another session's agent or key is a conflict", async () => {
    await sessionOf({ key: 'taken' })
    const turn = post('/v1/keys/taken/turns', { agent: 'ask', input: 'x' })
    await refused(turn, 409, 'agent_mismatch')
    await refused(post('/v1/sessions', { key: 'taken', id: 'mine' }), 409, 'key_taken')
  })

  it('names the field and never shows a stack', async () => {
    const problem = await (await post('/v1/sessions', { kee: 'x' })).json()
    expect(problem).toMatchObject({ type: 'about:blank', status: 422, field: 'kee' })
    expect(JSON.stringify(problem)).not.toContain('.ts')
  })

  it('with a name that is not ours is refused, with loopback names not', async () => {
    const { port } = server
    expect(await statusOf(`GET /health HTTP/1.1\r\nHost: a.example:${port}`)).toBe(403)
    expect(await statusOf(`GET /health HTTP/1.1\r\nHost: 127.0.0.1.a.example`)).toBe(403)
    expect(await statusOf(`GET /health HTTP/1.1\r\nHost: localhost`)).toBe(200)
    expect(await statusOf(`GET /health HTTP/1.1\r\nHost: [::1]:1`)).toBe(200)
    const own = `Host: localhost:${port}\r\nOrigin: http://localhost:${port}`
    expect(await statusOf(`GET /health HTTP/1.1\r\n${own}`)).toBe(200)
  })

  it.each([
    ['says its length', { 'Content-Length': '9999999' }],
    ['does not', { 'Transfer-Encoding': 'chunked' }],
  ])('that is too large is refused before it is read, whether it %s', async (_, headers) => {
    const lines = Object.entries({ Host: 'localhost', ...JSON_TYPE, ...headers })
    const head = lines.map(([name, value]) => `${name}: ${value}`).join('\r\n')
    const chunk = 'a'.repeat(100_000)
    const body = 'Content-Length' in headers ? chunk : `186A0\r\n${chunk}\r\n`.repeat(12)
    expect(await statusOf(`POST /v1/sessions HTTP/1.1\r\n${head}`, body)).toBe(413)
  })
})

describe('the server itself', () => {
  it('says that it lives, that it is ready, and its numbers', async () => {
    expect(await (await get('/health')).json()).toEqual({ status: 'ok' })
    expect(await (await get('/ready')).json()).toEqual({ status: 'ready' })
    const metrics = await (await get('/metrics')).text()
    expect(metrics).toMatch(/^holdfast_turns_started_total \d+$/m)
    expect(metrics).toMatch(/^holdfast_event_loop_delay_seconds\{quantile="0.99"\} [\d.e-]+$/m)
  })

  it('has a page that loads nothing from elsewhere, and has no code of its own in it', async () => {
    const answer = await get('/')
    expect(answer.headers.get('content-security-policy')).toContain("default-src 'none'")
    expect(await answer.text()).not.toMatch(/https:|<script>|<style|style=|onload=/)
  })

  it('knows every path that its OpenAPI document has', async () => {
    const { paths } = (await (await get('/openapi.json')).json()) as { paths: Json }
    const operations = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods as Json).map((method) => [method.toUpperCase(), path] as const),
    )
    expect(operations.length).toBeGreaterThan(15)
    for (const [method, path] of operations) {
      const answer = await fetch(server.url + path.replace(/\{\w+\}/g, 'none'), { method })
      const { code } = (answer.ok ? { code: null } : await answer.json()) as Json
      expect(['route_unknown', 'method_not_allowed'], `${method} ${path}`).not.toContain(code)
    }
  })

  it('marks every answer as not to be stored or sniffed', async () => {
    for (const path of ['/', '/health', '/v1/sessions', '/nothing']) {
      const { headers } = await get(path)
      expect(headers.get('cache-control')).toBe('no-store')
      expect(headers.get('x-content-type-options')).toBe('nosniff')
    }
  })

  it('does not listen where others could reach it', async () => {
    await expect(startServer({ holdfast, host: '0.0.0.0' })).rejects.toThrow('loopback')
  })
})

describe('a store that failed for good', () => {
  it('is told once to who runs the server, and makes it unready', async () => {
    const store = new MemoryStore()
    const failures: string[] = []
    const failing = await serve({
      store,
      agents,
      onStoreFailed: ({ code }) => failures.push(code),
    })
    store.read = () => Promise.reject(new HoldfastError('store_failed', 'the disk failed'))
    for (const _ of [1, 2]) {
      await refused(fetch(`${failing.url}/v1/sessions/any`), 503, 'store_failed')
    }
    await refused(fetch(`${failing.url}/ready`), 503, 'store_failed')
    expect((await fetch(`${failing.url}/health`)).status).toBe(200)
    expect(failures).toEqual(['store_failed'])
    await failing.close({ closeHoldfast: true })
  })
})

describe('a server that stops', () => {
  it('lets what runs end, refuses what is new, and tells its streams', async () => {
    const stopping = await serve({ agents })
    const gate = gateOf('draining')
    const turns = `${stopping.url}/v1/keys/drain/turns`
    const running = send(turns, { agent: 'gate', input: 'draining' })
    await gate.started
    const { id } = await stopping.holdfast.resolve({ key: 'drain' })
    const events = all(sse(await fetch(`${stopping.url}/v1/sessions/${id}/events`, STREAMED)))
    const closed = stopping.close({ drainMs: 20_000 })
    const ready = await fetch(`${stopping.url}/ready`)
    const late = await send(turns, { input: 'late' })
    expect([late.status, late.headers.get('retry-after')]).toEqual([503, '1'])
    expect([(await late.json()).code, ready.status]).toEqual(['draining', 503])
    gate.open()
    expect((await (await running).json()).turn.state).toBe('done')
    await closed
    expect((await events).at(-1)).toEqual({ event: 'ending', id: null, data: { code: 'draining' } })
    await expect(fetch(stopping.url)).rejects.toThrow('fetch failed')
  })

  it('interrupts what does not end in time', async () => {
    const stopping = await serve({ agents })
    const running = send(`${stopping.url}/v1/keys/cut/turns`, { agent: 'gate', input: 'cut' })
    await gateOf('cut').started
    await stopping.close({ drainMs: 1 })
    expect((await (await running).json()).turn).toMatchObject({ state: 'interrupted' })
  })
})

const JSON_TYPE = { 'content-type': 'application/json' }
const ASYNC = { prefer: 'respond-async' }
const STREAM = { accept: 'text/event-stream' }
const STREAMED = { headers: STREAM }
const MEDIA = 'unsupported_media_type'
const ORIGIN = 'origin_refused'
const NOT_UTF8 = Uint8Array.from([0x7b, 0x22, 0xff, 0x22, 0x7d])
const NEST = `{"input":{"text":"x","nest":${'['.repeat(50_000)}${']'.repeat(50_000)}}}`

function get(path: string, headers: Record<string, string> = {}): Promise<Answer> {
  return fetchDescribed(server.url + path, { headers })
}

function remove(path: string): Promise<Answer> {
  return fetchDescribed(server.url + path, { method: 'DELETE' })
}

function post(
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
  signal?: AbortSignal,
): Promise<Answer> {
  return send(server.url + path, body, headers, signal)
}

function send(
  url: string,
  body: unknown,
  headers: Record<string, string> = {},
  signal: AbortSignal | null = null,
): Promise<Answer> {
  const all = { ...JSON_TYPE, ...headers }
  return fetchDescribed(url, { method: 'POST', body: JSON.stringify(body), headers: all, signal })
}

function raw(path: string, body: string | Uint8Array, type = 'application/json') {
  const headers = { 'content-type': type }
  return fetchDescribed(server.url + path, { method: 'POST', body: body as string, headers })
}

async function unknownTurn(turn: string): Promise<Answer> {
  return get(`/v1/sessions/${await sessionOf()}/turns/${turn}`)
}

async function sessionOf(options: Json = {}): Promise<string> {
  return (await (await post('/v1/sessions', options)).json()).id
}

async function refused(request: Promise<Answer>, status: number, code: string): Promise<void> {
  const answer = await request
  const type = answer.headers.get('content-type')
  const problem: Json = await answer.json()
  expect([answer.status, problem['code'], type]).toEqual([status, code, 'application/problem+json'])
  expect(problem['status']).toBe(status)
}

/** The status of a request as it stands here, byte by byte. */
function statusOf(head: string, body = ''): Promise<number> {
  return new Promise((resolve, reject) => {
    const socket = connect(server.port, '127.0.0.1', () => socket.write(`${head}\r\n\r\n${body}`))
    socket.once('data', (answer) => {
      resolve(Number(answer.toString().split(' ')[1]))
      socket.destroy()
    })
    socket.once('error', reject)
  })
}

/** Asks for a place in the queue until it is the expected one. */
async function placeIs(key: string, position: number): Promise<void> {
  for (;;) {
    const answer = await post(`/v1/keys/${key}/turns`, { input: 'x', waitMs: 0 })
    if ((await answer.json()).position === position) return
  }
}

type Sent = { readonly event: string; readonly id: string | null; readonly data: Json }

async function* parts(answer: Answer): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  for await (const part of answer.body ?? [])
    yield decoder.decode(part as Uint8Array, { stream: true })
}

async function* sse(answer: Answer): AsyncGenerator<Sent> {
  let text = ''
  for await (const part of parts(answer)) {
    text += part
    const blocks = text.split('\n\n')
    text = blocks.pop() ?? ''
    for (const block of blocks) {
      const field = (name: string) => new RegExp(`^${name}: (.*)$`, 'm').exec(block)?.[1] ?? null
      const event = field('event')
      if (event !== null)
        yield { event, id: field('id'), data: JSON.parse(field('data') ?? 'null') }
    }
  }
}

async function all<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const gathered: Item[] = []
  for await (const item of items) gathered.push(item)
  return gathered
}

/** The session's events up to the first that is meant; then the reader goes away. */
async function streamed(id: string, isLast: (event: Json) => boolean): Promise<Sent[]> {
  const seen: Sent[] = []
  for await (const item of sse(await get(`/v1/sessions/${id}/events`, STREAM))) {
    seen.push(item)
    if (isLast(item.data)) break
  }
  return seen
}

type Gate = { readonly started: Promise<void>; open(): void }

const gates = new Map<string, Gate & { start(): void; readonly opened: Promise<void> }>()

function gateOf(name: string) {
  const known = gates.get(name)
  if (known !== undefined) return known
  let start!: () => void
  let open!: () => void
  const started = new Promise<void>((resolve) => (start = resolve))
  const opened = new Promise<void>((resolve) => (open = resolve))
  const gate = { started, opened, start: () => start(), open: () => open() }
  gates.set(name, gate)
  return gate
}

/** Says `one `, and `two` when the gate of its input's name is opened. */
const gated: Agent = async function* ({ text }, { signal }) {
  const gate = gateOf(text)
  yield 'one '
  gate.start()
  const stopped = new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(new Error('stopped')))
  })
  await Promise.race([gate.opened, stopped])
  yield 'two'
}

/** As many messages of 100,000 characters as its input says. */
const large: Agent = async function* ({ text }) {
  for (let left = Number(text); left > 0; left -= 1) {
    yield { type: 'message', text: 'x'.repeat(100_000) }
  }
}

const agents = {
  ...builtinAgents,
  gate: gated,
  large,
  fail: (async () => {
    throw new Error('no')
  }) as Agent,
}
