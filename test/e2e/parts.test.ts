/**
 * Images and files in turns, from outside: through HTTP, the socket, OpenAI's API and the command
 * line, to agents that take them, and clear refusals by those that do not.
 */
import { createHash, randomBytes } from 'node:crypto'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  builtinAgents,
  openHoldfast,
  type Agent,
  type AgentResult,
  type Runner,
  type RunnerTurn,
} from 'holdfast'
import { connect } from 'holdfast/client'
import { openTokenFile } from 'holdfast/server'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import { CommandLine } from '../support/command-line.ts'
import { openTestDatabase } from '../support/postgres.ts'
import { NO_CAPABILITIES } from '../../src/core/runner.ts'
import { serve, type TestServer } from '../support/server.ts'

/** Says what it was given. */
const viewer: Agent = Object.assign(
  (async ({ text, parts = [] }) => {
    const seen = parts.map((part) => {
      if (part.type === 'text') return part.text
      const name = part.type === 'file' ? `${part.name} ` : ''
      return `${part.type} ${name}${part.mediaType} ${digestOf(part.data)}`
    })
    return { text, data: seen }
  }) satisfies Agent,
  { capabilities: { images: true, files: true } },
)
const lookOnly: Agent = Object.assign((async () => 'seen') satisfies Agent, {
  capabilities: { images: true },
})
const agents = { viewer, lookOnly, echo: builtinAgents.echo! }

const PNG = Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), Buffer.from('a tiny picture')])
const digestOf = (data: Uint8Array): string =>
  `sha256:${createHash('sha256').update(data).digest('hex')}`
const image = (data: Uint8Array = PNG) => ({
  type: 'image' as const,
  mediaType: 'image/png',
  data: Buffer.from(data).toString('base64'),
})
const file = (name: string, data: Uint8Array) => ({
  type: 'file' as const,
  name,
  mediaType: 'text/plain',
  data: Buffer.from(data).toString('base64'),
})
const seenImage = (data: Uint8Array = PNG): string => `image image/png ${digestOf(data)}`

let folder: string
let server: TestServer
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-parts-'))
  server = await serve({ agents })
})
afterAll(async () => {
  await server.close()
  await rm(folder, { recursive: true })
})

const turnOf = async (key: string, input: unknown, headers = {}) =>
  server.post(`/v1/keys/${key}/turns`, { input }, headers)

describe('a turn with images and files', () => {
  it('reaches the agent with its bytes, and the log without them', async () => {
    const notes = Buffer.from('notes')
    const parts = [{ type: 'text', text: 'look' }, image(), file('a.txt', notes)]
    const { status, body } = await turnOf('native', { parts })
    expect([status, body.turn.reply]).toEqual([
      200,
      { text: 'look', data: ['look', seenImage(), `file a.txt text/plain ${digestOf(notes)}`] },
    ])
    const [, stored, named] = body.turn.input.parts
    expect(stored).toEqual({
      ...{ type: 'image', mediaType: 'image/png' },
      ...{ digest: digestOf(PNG), bytes: PNG.length },
    })
    expect(named).toMatchObject({ type: 'file', name: 'a.txt', bytes: 5 })
    const log = await server.get(`/v1/sessions/${body.session}/events`)
    expect(JSON.stringify(log.body)).not.toContain(PNG.toString('base64').slice(0, 16))
    const transcript = await server.get(`/v1/sessions/${body.session}/transcript`)
    expect(transcript.text.split('\n')[0]).toContain(digestOf(PNG))
  })

  it('puts a text beside the parts first, and refuses one that contradicts them', async () => {
    const beside = await turnOf('text', { text: 'look', parts: [image()] })
    expect(beside.body.turn.reply.data).toEqual(['look', seenImage()])
    const said = { type: 'text', text: 'look' }
    const same = await turnOf('text', { text: 'look', parts: [said, image()] })
    expect(same.body.turn.reply.data).toEqual(['look', seenImage()])
    const other = await turnOf('text', { text: 'listen', parts: [said, image()] })
    expect([other.status, other.body.field]).toEqual([422, 'input.text'])
  })

  it('may name bytes that the session has, and no others', async () => {
    const first = await turnOf('again', { parts: [image()] })
    const named = { type: 'image', mediaType: 'image/png', digest: digestOf(PNG) }
    const again = await turnOf('again', { text: 'and now?', parts: [named] })
    expect(again.body.turn.reply.data).toEqual(['and now?', seenImage()])
    // Another session has these bytes, which makes no difference.
    const elsewhere = await turnOf('elsewhere', { parts: [named] })
    const unheard = { ...named, digest: digestOf(Buffer.from('unheard of')) }
    const nowhere = await turnOf('elsewhere', { parts: [unheard] })
    expect([elsewhere.status, elsewhere.body.code]).toEqual([422, 'invalid_field'])
    expect(elsewhere.body.detail.replace(named.digest, '')).toBe(
      nowhere.body.detail.replace(unheard.digest, ''),
    )
    expect(first.body.session).toBe(again.body.session)
  })

  it('is the same request when it is sent again with its key', async () => {
    const headers = { 'idempotency-key': 'one' }
    const first = await turnOf('retry', { parts: [image()] }, headers)
    const again = await turnOf('retry', { parts: [image()] }, headers)
    const named = { type: 'image', mediaType: 'image/png', digest: digestOf(PNG) }
    const byName = await turnOf('retry', { parts: [named] }, headers)
    expect([again.body.turn.id, byName.body.turn.id]).toEqual([
      first.body.turn.id,
      first.body.turn.id,
    ])
    const other = await turnOf('retry', { parts: [image(Buffer.from('other'))] }, headers)
    expect([other.status, other.body.code]).toEqual([422, 'idempotency_mismatch'])
  })

  it('is one turn with the others that are collected, as many as may be one input', async () => {
    let release = (): void => undefined
    const hold = new Promise<void>((resolve) => (release = resolve))
    const held: Agent = Object.assign(
      (async (turn, context) => {
        await hold
        return viewer(turn, context) as Promise<AgentResult>
      }) satisfies Agent,
      { capabilities: { images: true } },
    )
    const limits = { partsMax: 2 }
    const holdfast = await openHoldfast({ store: 'memory:', agents: { held }, limits })
    const session = await holdfast.resolve({ key: 'k' })
    const first = session.submit('first')
    const part = { type: 'image', mediaType: 'image/png', data: PNG } as const
    const options = { busy: 'collect' } as const
    const turns = [
      session.submit({ text: 'one', parts: [part] }, options),
      session.submit('a text', options),
      session.submit({ parts: [part] }, options),
      session.submit({ text: 'too much', parts: [part] }, options),
    ]
    const ids = (await Promise.all(turns)).map(({ id }) => id)
    expect([ids[1], ids[2]]).toEqual([ids[0], ids[0]])
    release()
    await session.finished((await first).id)
    const [joined, other] = await Promise.all(
      [ids[0], ids[3]].map((id) => session.finished(id ?? '')),
    )
    expect(joined?.reply?.data).toEqual(['one', seenImage(), 'a text', seenImage()])
    expect(other?.reply?.data).toEqual(['too much', seenImage()])
    await holdfast.close()
  })
})

describe('a message for the running turn', () => {
  it('may have images too', async () => {
    const steered: RunnerTurn[] = []
    let end = (): void => undefined
    const ended = new Promise<void>((resolve) => (end = resolve))
    const runner: Runner = {
      capabilities: { ...NO_CAPABILITIES, images: true, steering: true },
      async *run() {
        yield { type: 'delta', text: 'wait' }
        await ended
        return { text: 'done' }
      },
      async steer(_, message) {
        steered.push(message)
        end()
        return true
      },
    }
    const holdfast = await openHoldfast({ store: 'memory:', agents: { runner } })
    const session = await holdfast.resolve({ key: 'k' })
    const first = session.turn('first')
    await first.admission
    const data = Uint8Array.from(PNG)
    const part = { type: 'image', mediaType: 'image/png', data } as const
    const message = await session.submit({ text: 'this', parts: [part] }, { busy: 'steer' })
    expect([message.id, message.isSteered]).toEqual([(await first).id, true])
    expect(steered).toMatchObject([{ text: 'this', parts: [{ text: 'this' }, part] }])
    await holdfast.close()
  })
})

describe('what an agent does not take', () => {
  it.each([
    ['echo', image(), 'image'],
    ['lookOnly', file('a.txt', PNG), 'file'],
  ])('is refused for %s, and nothing is stored', async (agent, part, type) => {
    const session = await server.holdfast.resolve({ key: `refused-${agent}`, agent })
    const path = `/v1/sessions/${session.id}`
    const refused = await server.post(`${path}/turns`, { input: { parts: [part] } })
    expect([refused.status, refused.body.code]).toEqual([422, 'input_unsupported'])
    expect(refused.body.part ?? type).toBe(type)
    expect((await server.get(`${path}/blobs/${digestOf(PNG)}`)).body.code).toBe('blob_unknown')
    expect((await session.state()).turns).toBe(0)
    const text = await server.post(`${path}/turns`, {
      input: { parts: [{ type: 'text', text: 'x' }] },
    })
    expect(text.status).toBe(200)
  })

  it.each([
    ['no list', { parts: 'x' }, 422],
    ['an empty list', { parts: [] }, 422],
    ['too many', { parts: Array.from({ length: 33 }, () => image()) }, 422],
    ['an unknown type', { parts: [{ type: 'sound', data: '' }] }, 422],
    ['no base64', { parts: [{ ...image(), data: 'not base64!' }] }, 422],
    ['no bytes', { parts: [{ ...image(), data: '' }] }, 422],
    ['neither data nor digest', { parts: [{ type: 'image', mediaType: 'image/png' }] }, 422],
    ['a wrong digest', { parts: [{ ...image(), digest: digestOf(Buffer.from('x')) }] }, 422],
    ['no image type', { parts: [{ ...image(), mediaType: 'text/html' }] }, 422],
    ['a path as a name', { parts: [{ ...file('../x', PNG) }] }, 422],
    ['a file without a name', { parts: [{ ...image(), type: 'file' }] }, 422],
    ['a large part', { parts: [image(Buffer.alloc(5_242_881))] }, 413],
    [
      'large parts',
      { parts: Array.from({ length: 5 }, (_, n) => image(Buffer.alloc(5_000_000, n))) },
      413,
    ],
  ])('is refused: %s', async (_, input, status) => {
    expect((await turnOf('bad', input)).status).toBe(status)
  })
})

describe('the bytes of a session', () => {
  it('are read back as what they are, and never as a page', async () => {
    const html = Buffer.from('<script>alert(1)</script>')
    const page = { ...file('x.html', html), mediaType: 'text/html' }
    const { body } = await turnOf('read', { parts: [image(), page] })
    const path = `${server.url}/v1/sessions/${body.session}/blobs`
    const shown = await fetch(`${path}/${digestOf(PNG)}`)
    expect(Buffer.from(await shown.arrayBuffer())).toEqual(PNG)
    const heads = (answer: Response) =>
      ['content-type', 'content-disposition', 'x-content-type-options'].map((name) =>
        answer.headers.get(name),
      )
    expect(heads(shown)).toEqual(['image/png', 'inline', 'nosniff'])
    const kept = await fetch(`${path}/${digestOf(html)}`)
    expect(heads(kept)).toEqual(['application/octet-stream', 'attachment', 'nosniff'])
    expect(kept.headers.get('content-security-policy')).toContain('sandbox')
    await kept.arrayBuffer()
  })

  it('can be stored before the turn that names them', async () => {
    const data = randomBytes(3_000_000)
    const session = await server.holdfast.resolve({ key: 'upload', agent: 'viewer' })
    const path = `${server.url}/v1/sessions/${session.id}/blobs`
    const headers = { 'content-type': 'application/octet-stream' }
    const stored = await fetch(path, { method: 'POST', headers, body: data })
    expect([stored.status, await stored.json()]).toEqual([
      201,
      { digest: digestOf(data), bytes: data.length },
    ])
    const named = { type: 'image', mediaType: 'image/png', digest: digestOf(data) }
    const { body } = await turnOf('upload', { parts: [named] })
    expect(body.turn.reply.data).toEqual([seenImage(data)])
    const large = await fetch(path, { method: 'POST', headers, body: Buffer.alloc(5_242_881) })
    expect(large.status).toBe(413)
    await large.json()
    const typed = await fetch(path, { method: 'POST', headers: {}, body: 'x' })
    expect(typed.status).toBe(415)
    await typed.json()
  })

  it('are bounded for the session', async () => {
    const limits = { storedPartsBytesMax: 1_000 }
    const small = await openHoldfast({ store: 'memory:', agents, limits })
    const session = await small.resolve({ key: 'k' })
    const part = (byte: number) => ({
      ...{ type: 'image' as const, mediaType: 'image/png', data: Buffer.alloc(600, byte) },
    })
    await session.turn({ parts: [part(1)] })
    await expect(session.turn({ parts: [part(2)] })).rejects.toMatchObject({
      code: 'body_too_large',
    })
    // What it has already takes no room.
    expect((await session.turn({ parts: [part(1)] })).state).toBe('done')
    await small.close()
  })

  it('are for those who may see the session, and count for its owner', async () => {
    const tokens = join(folder, 'tokens.json')
    const tokenOf = (name: string, scopes: readonly string[]) => ({
      ...{ name, principal: name, scopes },
      sha256: createHash('sha256').update(`hf_${name}`).digest('hex'),
    })
    await writeFile(
      tokens,
      JSON.stringify({ tokens: [tokenOf('alice', ['talk', 'manage']), tokenOf('bob', ['talk'])] }),
      { mode: 0o600 },
    )
    const quotas = { principals: { alice: { storedBytes: 10_000 } } }
    const guarded = await serve({ agents, quotas, tokens: await openTokenFile(tokens) })
    const as = (name: string) => ({ authorization: `Bearer hf_${name}` })
    const read = (path: string, name: string) => guarded.call('GET', path, { headers: as(name) })
    const input = { parts: [image()] }
    const { body } = await guarded.post('/v1/keys/k/turns', { input }, as('alice'))
    const path = `/v1/sessions/${body.session}/blobs/${digestOf(PNG)}`
    expect((await read(path, 'alice')).status).toBe(200)
    const stranger = await read(path, 'bob')
    expect([stranger.status, stranger.body.code]).toEqual([404, 'session_unknown'])
    const large = { parts: [image(Buffer.alloc(9_900))] }
    const refused = await guarded.post('/v1/keys/k/turns', { input: large }, as('alice'))
    expect([refused.status, refused.body.code]).toEqual([429, 'quota_exceeded'])
    await guarded.close()
  })

  it.each(['sqlite', 'postgres'])('are gone from the %s store when it is erased', async (kind) => {
    const mark = 'the bytes that shall be gone '
    const data = Buffer.from(mark.repeat(2_000))
    const database = kind === 'postgres' ? await openTestDatabase() : null
    const path = join(folder, 'erase.db')
    const store = database?.freshUrl() ?? `sqlite:${path}`
    const holdfast = await openHoldfast({ store, agents })
    const session = await holdfast.resolve({ key: 'k' })
    await session.turn({ parts: [{ type: 'file', name: 'a', mediaType: 'text/plain', data }] })
    const verify = new CommandLine(['verify', '--store', store])
    await verify.exited
    expect(verify.stdout).toContain('1 checked, 0 bad')
    await session.erase()
    await holdfast.close()
    if (database === null) expect(await readFile(path, 'latin1')).not.toContain(mark)
    else {
      const [{ count }] = await database.query(
        `SELECT count(*)::int AS count FROM ${new URL(store).searchParams.get('schema')}.blobs`,
      )
      expect(count).toBe(0)
      await database.close()
    }
  })
})

describe('clients', () => {
  it.each([1_000, 3_000_000])('sends %i bytes through the socket', async (length) => {
    const data = randomBytes(length)
    const client = connect({ url: server.url, webSocket: WebSocket })
    const session = client.session({ key: `client-${length}`, agent: 'viewer' })
    const message = new Promise((resolve) => session.on('message', resolve))
    const turns = [
      session.turn({ parts: [{ type: 'image', mediaType: 'image/png', data }] }),
      session.turn('after it'),
    ]
    const [seen, after] = await Promise.all(turns)
    expect(seen?.reply?.data).toEqual([seenImage(data)])
    expect(after?.reply?.text).toBe('after it')
    expect(Number(after?.id.slice(1))).toBeGreaterThan(Number(seen?.id.slice(1)))
    expect(await message).toMatchObject({ role: 'user', parts: [{ digest: digestOf(data) }] })
    const blob = new File([PNG], 'photo.png', { type: 'image/png' })
    const again = await session.turn({ text: 'b', parts: [{ type: 'image', data: blob }] })
    expect(again.reply?.data).toEqual(['b', seenImage()])
    session.dispose()
  })

  it('sends files of the command line', async () => {
    const picture = join(folder, 'picture.bin')
    const notes = join(folder, 'notes.md')
    await writeFile(picture, PNG)
    await writeFile(notes, '# notes')
    const args = ['send', 'cli', 'look', '--attach', picture, '--attach', notes]
    const command = new CommandLine([...args, '--json', '--url', server.url])
    expect(await command.exited).toBe(0)
    expect(command.stdout).toContain(digestOf(PNG))
    expect(command.stdout).toContain('file notes.md text/markdown')
    const missing = new CommandLine(['send', 'cli', '--attach', join(folder, 'none')])
    expect(await missing.exited).toBe(2)
  })

  it('of OpenAI send images and files, and get a clear refusal for addresses', async () => {
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 })
    const url = `data:image/png;base64,${PNG.toString('base64')}`
    const headers = { 'x-session-key': 'openai' }
    const content = (address: string): OpenAI.ChatCompletionContentPart[] => [
      { type: 'text', text: 'look' },
      { type: 'image_url', image_url: { url: address } },
    ]
    const messages = [{ role: 'user' as const, content: content(url) }]
    const chat = await client.chat.completions.create({ model: 'viewer', messages }, { headers })
    expect(chat.choices[0]?.message.content).toBe('look')
    const sessions = await server.get('/v1/sessions?key=openai')
    const events = await server.get(`/v1/sessions/${sessions.body.sessions[0].id}/events`)
    expect(JSON.stringify(events.body)).toContain(seenImage())
    const response = await client.responses.create({
      model: 'viewer',
      input: [
        {
          role: 'user',
          content: [
            { type: 'input_text', text: 'read' },
            { type: 'input_image', image_url: url, detail: 'auto' },
            { type: 'input_file', filename: 'a.png', file_data: url },
          ],
        },
      ],
    })
    expect(response.output_text).toBe('read')
    const far = [{ role: 'user' as const, content: content('https://example.test/a.png') }]
    const refused = client.chat.completions.create({ model: 'viewer', messages: far })
    await expect(refused).rejects.toThrow('the server fetches no address')
    const echoed = client.chat.completions.create({ model: 'echo', messages })
    await expect(echoed).rejects.toThrow('takes no images')
  })
})

describe('two nodes', () => {
  it('store what comes to either, and read it from either', async () => {
    const database = await openTestDatabase()
    const store = database.freshUrl()
    const one = await serve({ agents, store, isNode: true })
    const other = await serve({ agents, store, isNode: true })
    const created = await one.post('/v1/keys/k/turns', { input: 'mine' })
    const data = randomBytes(2_000_000)
    const input = { parts: [image(data)] }
    const through = await other.post('/v1/keys/k/turns', { input })
    expect(through.body.turn.reply.data).toEqual([seenImage(data)])
    const path = `/v1/sessions/${created.body.session}/blobs/${digestOf(data)}`
    for (const node of [one, other]) expect((await fetch(node.url + path)).status).toBe(200)
    const client = connect({ url: other.url, webSocket: WebSocket })
    const session = client.session({ key: 'k' })
    const fresh = randomBytes(2_000_000)
    const turn = await session.turn({
      parts: [{ type: 'image', mediaType: 'image/png', data: fresh }],
    })
    expect(turn.reply?.data).toEqual([seenImage(fresh)])
    session.dispose()
    await other.close()
    await one.close()
    await database.close()
  })
})
