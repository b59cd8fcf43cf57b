/**
 * Real agents over ACP, offline: the Copilot CLI in depth (permissions through the doors, kills,
 * restarts), opencode and the Gemini CLI for the common ground. `npm run e2e:agents` runs this.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { acpRunner, type AcpOptions, type Runner } from 'holdfast'
import { until } from '../support/gate.ts'
import { allIn, isReaped } from '../support/processes.ts'
import { offline, programOf, type AgentName } from '../support/real-agents.ts'
import { lines, serve, type TestServer } from '../support/server.ts'
import { startStubOpenAi, type ChatRequest, type StubOpenAi } from '../support/stub-openai.ts'
import { StubModel } from '../support/stub-model.ts'
import { dial, type WireClient } from '../support/wire-client.ts'

const ARGS: Partial<Record<AgentName, string[]>> = {
  copilot: ['--acp'],
  opencode: ['acp'],
  gemini: ['--acp', '-m', 'gemini-2.5-flash'],
}

describe('ACP agents', () => {
  let root: string
  let home: string
  let model: StubOpenAi
  let serving: TestServer | null = null
  const clients: WireClient[] = []

  beforeAll(async () => {
    root = mkdtempSync(join(tmpdir(), 'holdfast-agents-'))
    home = join(root, 'home')
    model = await startStubOpenAi()
  })

  afterAll(async () => {
    await model.close()
    rmSync(root, { recursive: true, force: true })
  })

  afterEach(async () => {
    for (const client of clients.splice(0)) client.socket.terminate()
    await serving?.close()
    serving = null
    expect(allIn(home)).toEqual([])
  })

  const agent = async (name: AgentName, options: Partial<AcpOptions> = {}): Promise<Runner> => {
    const url = name === 'gemini' ? gemini.url : model.url.replace(/\/v1$/, '')
    return acpRunner({
      command: programOf(name),
      args: ARGS[name] ?? [],
      env: await offline(name, home, url),
      folder: join(root, 'work'),
      ...(name === 'gemini' ? { reopenMs: 60_000 } : {}),
      ...options,
    })
  }
  const start = async (name: AgentName, options: Partial<AcpOptions> = {}): Promise<TestServer> => {
    const store = `sqlite:${join(root, `${name}.db`)}`
    serving = await serve({ store, agents: { [name]: await agent(name, options) } })
    return serving
  }
  const attach = (hello: object): WireClient => {
    const client = dial(serving!.url, { answers: ['permission'], ...hello })
    clients.push(client)
    return client
  }
  const turn = (key: string, input: string): Promise<any> =>
    serving!.post(`/v1/keys/${key}/turns`, { input }).then(({ body }) => body.turn)
  let gemini: StubModel
  beforeAll(async () => {
    gemini = await StubModel.start()
  })
  afterAll(() => gemini.close())

  describe.each(['copilot', 'opencode', 'gemini'] as const)('%s', (name) => {
    it('keeps its context over turns, a killed agent and a new server', async () => {
      await start(name)
      // Two cold turns at once: one waits for the other, whichever came first.
      const texts = ['one', 'two']
      const turns = await Promise.all(texts.map((text) => turn('alice', text)))
      const replies: string[] = turns.map(({ reply }) => reply.text as string).sort()
      const order = replies.map((reply) => reply.slice('seen 1: '.length))
      expect(replies).toEqual(order.map((text, index) => `seen ${index + 1}: ${text}`))
      expect([...order].sort()).toEqual(texts)
      for (const [index, { reply }] of turns.entries()) expect(reply.text).toContain(texts[index])
      const { body } = await serving!.get('/v1/sessions?key=alice')
      const [{ id }] = body.sessions
      const { backend } = (await serving!.get(`/v1/sessions/${id}`)).body
      expect(backend).toEqual(expect.any(String))
      const pids = allIn(home)
      for (const pid of pids) process.kill(pid, 'SIGKILL')
      await until(() => pids.every(isReaped))
      expect(await turn('alice', 'three')).toMatchObject({
        error: null,
        reply: { text: 'seen 3: three' },
      })
      await serving!.close()
      await start(name)
      expect(await turn('alice', 'four')).toMatchObject({
        error: null,
        reply: { text: 'seen 4: four' },
      })
      const session = (await serving!.get(`/v1/sessions/${id}`)).body
      expect(session.backend).toBe(backend)
      const { body: transcript } = await serving!.get(`/v1/sessions/${id}/transcript`)
      expect(lines(transcript).map(({ role, text }) => `${role}: ${text}`)).toEqual(
        [...order, 'three', 'four'].flatMap((text, index) => [
          `user: ${text}`,
          `assistant: seen ${index + 1}: ${text}`,
        ]),
      )
    })
  })

  describe('a permission request of copilot', () => {
    let file: string
    /** The model wants to run a command, then says how that went. */
    const wantsTool = ({ users, tool }: ChatRequest) =>
      tool === null && users.at(-1)?.startsWith('touch')
        ? { tool: 'bash', input: { command: `echo x >> ${file}`, description: 'leave a mark' } }
        : { text: tool ?? `seen ${users.length}` }

    beforeEach(() => {
      file = join(root, `mark-${Math.random()}`)
      model.answer = wantsTool
    })

    afterEach(() => {
      model.answer = ({ users }) => ({ text: `seen ${users.length}: ${users.at(-1)}` })
    })

    const session = async (key: string): Promise<string> =>
      (await serving!.post('/v1/sessions', { key })).body.id as string
    const settled = async (id: string): Promise<any[]> => {
      const { body } = await serving!.get(`/v1/sessions/${id}/events`)
      return body.events.filter(({ type }: any) => type === 'ask.settled')
    }

    it('waits for a client that is gone, reaches it when it is back, and its answer counts', async () => {
      await start('copilot')
      const id = await session('back')
      const phone = attach({ session: id })
      const { attachment, resume } = await phone.frame('welcome')
      phone.send({ type: 'turn', id: 'r1', input: 'touch' })
      const ask = await phone.frame('ask.opened')
      expect(ask).toMatchObject({
        kind: 'permission',
        options: [{ id: 'allow_once' }, { id: 'allow_always' }, { id: 'reject_once' }],
        detail: { command: `echo x >> ${file}` },
      })
      await phone.cut()
      expect((await serving!.get(`/v1/sessions/${id}/asks`)).body.asks).toHaveLength(1)
      const back = attach({ session: id, auth: { resume: { attachment, token: resume } } })
      const { asks } = await back.frame('welcome')
      expect(asks).toMatchObject([{ id: ask['ask'] }])
      expect(existsSync(file)).toBe(false)
      back.send({ type: 'answer', id: 'r2', ask: ask['ask'], answer: 'allow_once' })
      await back.frame('turn.done')
      expect(readFileSync(file, 'utf8')).toBe('x\n')
      expect(await settled(id)).toMatchObject([{ outcome: 'answered', attachment }])
    })

    it.each([
      ['timed_out', { askMs: 100 }],
      ['nobody_to_ask', { onNobody: 'deny' as const }],
    ])('that nobody answers is %s: nothing is run, and the turn ends', async (outcome, options) => {
      await start('copilot', options)
      const id = await session(outcome)
      const done = await turn(outcome, 'touch')
      expect(done.state).toBe('done')
      expect(existsSync(file)).toBe(false)
      expect(await settled(id)).toMatchObject([{ outcome }])
      model.answer = ({ users }) => ({ text: `seen ${users.length}: ${users.at(-1)}` })
      expect((await turn(outcome, 'next')).reply.text).toBe('seen 2: next')
    })

    it('goes to two clients: the first answer counts, and both are told', async () => {
      await start('copilot')
      const id = await session('two')
      const [phone, desk] = [attach({ session: id }), attach({ session: id })]
      await Promise.all([phone.frame('welcome'), desk.frame('welcome')])
      phone.send({ type: 'turn', id: 'r1', input: 'touch' })
      const asks = await Promise.all([phone.frame('ask.opened'), desk.frame('ask.opened')])
      const { ask } = asks[0]
      desk.send({ type: 'answer', id: 'd1', ask, answer: 'allow_once' })
      phone.send({ type: 'answer', id: 'p1', ask, answer: 'reject_once' })
      const replies = await Promise.all([desk.reply('d1'), phone.reply('p1')])
      const refused = replies.filter(({ error }) => error !== undefined)
      expect(refused).toMatchObject([{ error: { code: 'ask_settled' } }])
      const told = await Promise.all([phone.frame('ask.settled'), desk.frame('ask.settled')])
      expect(told[0]['answer']).toBe(told[1]['answer'])
      await Promise.all([phone.frame('turn.done'), desk.frame('turn.done')])
      expect(existsSync(file)).toBe(told[0]['answer'] === 'allow_once')
      expect(await settled(id)).toHaveLength(1)
    })

    it('of a cancelled turn is withdrawn, and the agent goes on with the next', async () => {
      await start('copilot')
      const id = await session('withdrawn')
      const phone = attach({ session: id })
      await phone.frame('welcome')
      phone.send({ type: 'turn', id: 'r1', input: 'touch' })
      const { turn: running } = await phone.frame('ask.opened')
      await serving!.delete(`/v1/sessions/${id}/turns/${running}`)
      await phone.frame('turn.cancelled')
      expect(await settled(id)).toMatchObject([{ outcome: 'withdrawn' }])
      expect(existsSync(file)).toBe(false)
      model.answer = ({ users }) => ({ text: `seen ${users.at(-1)}` })
      expect((await turn('withdrawn', 'next')).reply.text).toBe('seen next')
    })
  })

  it('killed at random moments, copilot never holds up its session', async () => {
    await start('copilot')
    let release: (() => void) | null = null
    // A request of a process that was killed may come late: it must not hold up a later turn.
    let isHeld = false
    model.answer = async ({ users }) => {
      if (users.at(-1) === 'slow' && isHeld) {
        await new Promise<void>((resolve) => {
          release = resolve
        })
      }
      return { text: `seen ${users.at(-1)}` }
    }
    for (let round = 0; round < 8; round += 1) {
      isHeld = true
      const slow = turn('killed', 'slow')
      // From before it is started, over its start and the prompt, to when the model is at work.
      const isThere = (): boolean => allIn(home).length > 0 || release !== null
      await until(round % 2 === 0 ? isThere : () => release !== null)
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 300))
      const pids = allIn(home)
      for (const pid of pids) process.kill(pid, 'SIGKILL')
      isHeld = false
      ;(release as (() => void) | null)?.()
      release = null
      await until(() => pids.every(isReaped))
      expect(['failed', 'done']).toContain((await slow).state)
      const next = await turn('killed', 'next')
      expect({ round, next }).toMatchObject({
        next: { state: 'done', reply: { text: 'seen next' } },
      })
    }
  })
})
