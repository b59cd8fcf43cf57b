/**
 * Stock clients of the Copilot SDK on the Copilot door: the bug report about disposed sessions with
 * the client that it is about, two clients that call `sendAndWait` at once, a client that is killed
 * while a permission waits, and what a thousand disposed sessions leave behind.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import type { Agent } from 'holdfast'
import type { HoldfastServer } from 'holdfast/server'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { importSdk, SDK_URL } from '../support/copilot-sdk.ts'
import { CuttingProxy } from '../support/cutting-proxy.ts'
import { gate, until, type Gate } from '../support/gate.ts'
import { secretOf, TokenFiles } from '../support/principals.ts'
import { serve, type TestServer } from '../support/server.ts'

const PROGRAM = fileURLToPath(new URL('../support/copilot-client.mjs', import.meta.url))

let sdk: any
let files: TokenFiles
let server: TestServer
let port: number
let release: Gate
const clients: any[] = []

const witness: Agent = async (turn, { signal }) => {
  if (turn.text === 'wait') {
    await new Promise((stop) => signal.addEventListener('abort', stop))
    return ''
  }
  if (turn.text === 'fail') throw new Error('as it was told')
  return `you said ${turn.text}`
}
/** Asks for a permission, as a tool call would. */
const permitted: Agent = Object.assign(
  (async (_turn, { ask }) => {
    const question = { kind: 'permission', question: 'May I?', options: ['allow', 'deny'] }
    const detail = { tool: 'bash', kind: 'execute', command: 'ls -l' } as const
    const outcome = await ask({ ...question, detail })
    return outcome.outcome === 'answered' ? String(outcome.answer) : outcome.outcome
  }) satisfies Agent,
  { capabilities: { asks: true } },
)
/** Goes on while its session is disposed of, and fails in its teardown. */
const stubborn: Agent = async function* () {
  try {
    yield 'first'
    await release.opened
    yield 'too late'
  } finally {
    // oxlint-disable-next-line no-unsafe-finally -- the teardown that fails is the point
    throw new Error('teardown failed')
  }
}
const curious: Agent = async (turn, { ask }) => {
  const outcome = await ask({ kind: 'choice', question: 'Which?', options: ['red', 'green'] })
  return outcome.outcome === 'answered' ? String(outcome.answer) : outcome.outcome
}
const caller: Agent = Object.assign(
  (async (turn, { ask }) => {
    const detail = { input: { city: turn.text } }
    const outcome = await ask({ kind: 'tool:weather', question: 'weather', detail })
    return outcome.outcome === 'answered' ? JSON.stringify(outcome.answer) : outcome.outcome
  }) satisfies Agent,
  { capabilities: { clientTools: true } },
)
const speaker: Agent = async function* () {
  yield 'one '
  yield 'two'
}

beforeAll(async () => {
  sdk = await importSdk()
  files = await TokenFiles.make()
  const agents = { witness, permitted, stubborn, curious, caller, speaker }
  const limits = { idleSessionsMax: 0, sweepMs: 100 }
  server = await serve({ agents, limits, tokens: await files.open() })
  port = await server.server.listenCopilot(0)
})
beforeEach(() => {
  release = gate()
})
afterEach(async () => {
  release.open()
  for (const client of clients.splice(0)) await client.forceStop()
  await until(() => server.server.copilotCounts.connections === 0)
})
afterAll(async () => {
  await server.close()
  await files.remove()
})

function newClient({ who = 'alice', at = port }: { who?: string; at?: number } = {}): any {
  const connectionToken = secretOf(who)
  const connection = sdk.RuntimeConnection.forUri(`127.0.0.1:${at}`, { connectionToken })
  const client = new sdk.CopilotClient({ connection })
  clients.push(client)
  return client
}

const onPermissionRequest = () => ({ kind: 'approve-once' })

describe('the bug report: a disposed session and a permission request', () => {
  /** Its own test: A is disposed of, B is created, and B's tool call needs a permission. */
  async function permissionAfter(dispose: (client: any, session: any) => Promise<void>) {
    const client = newClient()
    const asked: string[] = []
    const handler = (name: string) => () => {
      asked.push(name)
      return { kind: 'approve-once' }
    }
    const first = await client.createSession({
      model: 'stubborn',
      onPermissionRequest: handler('A'),
    })
    await dispose(client, first)
    const second = await client.createSession({
      model: 'permitted',
      onPermissionRequest: handler('B'),
    })
    const reply = await second.sendAndWait('run ls')
    expect(reply.data.content).toBe('allow')
    expect(asked).toEqual(['B'])
    return client
  }

  it('asks the handler of the new session, and never that of the old one', async () => {
    await permissionAfter(async (_, session) => session.disconnect())
  })

  it('does so while the old session still works, and its teardown fails', async () => {
    const client = await permissionAfter(async (_, session) => {
      await session.send('go on')
      await session.disconnect()
    })
    release.open()
    expect(await client.stop()).toEqual([])
  })

  it('does so after the old session was erased under its client', async () => {
    await permissionAfter(async (client, session) => {
      await session.send('go on')
      await client.rpc.ping({})
      const headers = { authorization: `Bearer ${secretOf('phone')}` }
      const path = `/v1/sessions?key=${session.sessionId}`
      const { sessions } = (await server.call('GET', path, { headers })).body
      await server.call('DELETE', `/v1/sessions/${sessions[0].id}?erase=true`, { headers })
      await session.disconnect()
    })
  })

  it('denies instead of hanging if the handler fails', async () => {
    // The SDK says so.
    const told = vi.spyOn(console, 'error').mockImplementation(() => undefined)
    const client = newClient()
    const session = await client.createSession({
      model: 'permitted',
      onPermissionRequest: () => {
        throw new Error('the handler fails')
      },
    })
    expect((await session.sendAndWait('run ls')).data.content).toBe('deny')
    expect(told).toHaveBeenCalledOnce()
    told.mockRestore()
  })
})

describe('sendAndWait', () => {
  it('returns each of two clients of one session its own reply, called at once', async () => {
    const [one, other] = [newClient(), newClient({ who: 'phone' })]
    const own = await one.createSession({ onPermissionRequest })
    const same = await other.resumeSession(own.sessionId, { onPermissionRequest })
    for (let round = 0; round < 10; round += 1) {
      const replies = await Promise.all([
        own.sendAndWait(`one ${round}`),
        same.sendAndWait(`other ${round}`),
      ])
      const texts = replies.map(({ data }) => data.content)
      expect(texts).toEqual([`you said one ${round}`, `you said other ${round}`])
    }
  })

  it('returns each call its own reply, if many are made at once', async () => {
    const session = await newClient().createSession({ onPermissionRequest })
    const texts = Array.from({ length: 10 }, (_, index) => `call ${index}`)
    const replies = await Promise.all(texts.map((text) => session.sendAndWait(text)))
    expect(replies.map(({ data }) => data.content)).toEqual(texts.map((text) => `you said ${text}`))
  })

  it('rejects with the failure of its own turn', async () => {
    const session = await newClient().createSession({ onPermissionRequest })
    await expect(session.sendAndWait('fail')).rejects.toThrow('as it was told')
    expect((await session.sendAndWait('go on')).data.content).toBe('you said go on')
  })

  it('ends when its turn is aborted', async () => {
    const session = await newClient().createSession({ onPermissionRequest })
    const started = new Promise((resolve) => session.on('assistant.turn_start', resolve))
    const call = session.sendAndWait('wait')
    await started
    await session.abort()
    expect((await call).data.content).toBe('')
  })
})

describe('a client', () => {
  it('that is killed while a permission waits leaves it to a new one, which answers', async () => {
    const sessionId = 'asked before the kill'
    const program = run(port, 'ask', sessionId)
    await said(program, 'asked')
    program.kill('SIGKILL')
    await once(program, 'exit')
    const asked: any[] = []
    const session = await newClient().resumeSession(sessionId, {
      onPermissionRequest: (request: unknown) => {
        asked.push(request)
        return { kind: 'approve-once' }
      },
    })
    await new Promise((resolve) => session.on('session.idle', resolve))
    expect(asked).toMatchObject([{ kind: 'shell', fullCommandText: 'ls -l' }])
    const events = await session.getEvents()
    const replies = events.filter(({ type }: any) => type === 'assistant.message')
    expect(replies.map(({ data }: any) => data.content)).toEqual(['allow'])
  })

  it('that has lost its connection resumes with a new one, and reads what it has missed', async () => {
    const proxy = new CuttingProxy(port)
    const at = Number(new URL(await proxy.listen()).port)
    try {
      const client = newClient({ at })
      const session = await client.createSession({ onPermissionRequest })
      const { sessionId } = session
      await session.sendAndWait('before')
      await session.send('wait')
      proxy.cut()
      // The SDK has no reconnect of its own: such a client is of no use any more.
      await until(() => client.state === 'disconnected')
      await expect(session.send('too late')).rejects.toThrow()
      const again = await newClient().resumeSession(sessionId, { onPermissionRequest })
      expect(await statusOf(sessionId)).toBe('running')
      await again.abort()
      expect((await again.sendAndWait('after')).data.content).toBe('you said after')
      const said = (await again.getEvents()).filter(({ type }: any) => type === 'user.message')
      expect(said.map(({ data }: any) => data.content)).toEqual(['before', 'wait', 'after'])
    } finally {
      await proxy.close()
    }
  })

  it('is asked for input, and calls its tools for an agent that uses them', async () => {
    const client = newClient()
    const session = await client.createSession({
      model: 'curious',
      onPermissionRequest,
      onUserInputRequest: ({ question, choices }: any) => {
        return { answer: question === 'Which?' ? choices[1] : 'what?', wasFreeform: false }
      },
    })
    expect((await session.sendAndWait('choose')).data.content).toBe('green')
    const weather = sdk.defineTool('weather', {
      description: 'the weather of a city',
      parameters: { type: 'object', properties: { city: { type: 'string' } } },
      handler: ({ city }: { city: string }) => `sunny in ${city}`,
    })
    const tools = [weather]
    const other = await client.createSession({ model: 'caller', onPermissionRequest, tools })
    const reply = await other.sendAndWait('Bern')
    expect(JSON.parse(reply.data.content)).toEqual({ result: 'sunny in Bern' })
    const refused = client.createSession({ model: 'witness', onPermissionRequest, tools })
    await expect(refused).rejects.toThrow('cannot call tools of clients')
  })

  it('streams, lists, describes, changes and deletes', async () => {
    const client = newClient()
    const parts: string[] = []
    const session = await client.createSession({
      model: 'speaker',
      streaming: true,
      onPermissionRequest,
      systemMessage: { content: 'be brief' },
      onEvent: ({ type, data }: any) => {
        if (type === 'assistant.message_delta') parts.push(data.deltaContent)
      },
    })
    expect((await session.sendAndWait('hello')).data.content).toBe('one two')
    expect(parts.join('')).toBe('one two')
    const { sessionId } = session
    expect((await client.listSessions()).map((one: any) => one.sessionId)).toContain(sessionId)
    expect(await client.getLastSessionId()).toBe(sessionId)
    expect(await client.getSessionMetadata(sessionId)).toMatchObject({ sessionId })
    expect((await client.listModels()).map(({ id }: any) => id)).toContain('speaker')
    expect((await client.getStatus()).protocolVersion).toBe(3)
    expect((await client.getAuthStatus()).isAuthenticated).toBe(true)
    await session.setModel('speaker')
    await expect(session.setModel('witness')).rejects.toThrow('belongs to agent speaker')
    await session.disconnect()
    await client.deleteSession(sessionId)
    expect(await client.getSessionMetadata(sessionId)).toBeUndefined()
    await expect(client.resumeSession(sessionId, { onPermissionRequest })).rejects.toThrow(
      'no session',
    )
    expect(await client.stop()).toEqual([])
  })

  it('is refused without a good token', async () => {
    await expect(newClient({ who: 'nobody' }).start()).rejects.toThrow('a good token is needed')
  })

  it('finds no session of another principal by its id', async () => {
    const session = await newClient().createSession({ onPermissionRequest })
    const stranger = newClient({ who: 'stranger' })
    const refused = stranger.resumeSession(session.sessionId, { onPermissionRequest })
    await expect(refused).rejects.toThrow('there is no session')
    expect(await stranger.listSessions()).toEqual([])
  })
})

async function statusOf(key: string): Promise<string | undefined> {
  return (await server.holdfast.list({ key, state: 'open', limit: 1 })).sessions[0]?.status
}

function run(at: number, ...args: string[]): ChildProcess {
  const all = [PROGRAM, SDK_URL, String(at), secretOf('alice'), ...args]
  return spawn(process.execPath, all, { stdio: ['ignore', 'pipe', 'inherit'] })
}

async function said(program: ChildProcess, word: string): Promise<void> {
  let text = ''
  for await (const chunk of program.stdout ?? []) {
    text += String(chunk)
    if (text.includes(word)) return
  }
  throw new Error(`it has ended, and said ${text}`)
}

describe('a thousand sessions that are created and disposed of', () => {
  setFlagsFromString('--expose_gc')
  const collect = runInNewContext('gc') as () => void
  let disk: TestServer
  let diskPort: number

  beforeAll(async () => {
    const store = `sqlite:${join(files.folder, 'holdfast.db')}`
    const limits = { idleSessionsMax: 0, sweepMs: 100 }
    disk = await serve({ store, agents: { witness }, limits, tokens: await files.open() })
    diskPort = await disk.server.listenCopilot(0)
  })
  afterAll(() => disk.close())

  async function memoryAfter(count: number, prefix: string): Promise<number> {
    const program = run(diskPort, 'churn', String(count), prefix)
    const exited = once(program, 'exit')
    await said(program, 'done')
    await exited
    const isFree = ({ connections, attached }: HoldfastServer['copilotCounts']): boolean =>
      connections + attached === 0
    await until(() => isFree(disk.server.copilotCounts))
    await until(() => disk.holdfast.authority.heldCount === 0)
    for (let round = 0; round < 4; round += 1) {
      collect()
      await new Promise((resolve) => setImmediate(resolve))
    }
    return process.memoryUsage().heapUsed
  }

  it('leave the memory of the server where it was', async () => {
    const before = await memoryAfter(300, 'warm ')
    const after = await memoryAfter(1_000, 'disposed ')
    expect(Math.round((after - before) / 1_000)).toBeLessThan(1_000)
  })
})
