/**
 * Real agents that ask, behind a real server: their asks reach callers over HTTP with what they are
 * about, the answers count, and whatever is killed meanwhile, the conversation stays one line.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { ADAPTER } from '../support/real-agents.ts'
import {
  answer,
  ASKING,
  AskingAgent,
  asksAt,
  optionOf,
  outcomesOf,
} from '../support/asking-agent.ts'
import { expectOwnAnswers } from '../support/turns-at-once.ts'
import { CommandLine, killCommands } from '../support/command-line.ts'
import { until } from '../support/gate.ts'
import { ServerProcess } from '../support/server-process.ts'

describe.each(ASKING)('%s', (name) => {
  let agent: AskingAgent
  let server: ServerProcess

  const start = async (): Promise<void> => {
    server = await ServerProcess.start({ data: agent.data, ...agent.starting })
  }
  const turn = async (input: string, key = 'k'): Promise<any> => {
    const { body } = await server.post(`/v1/keys/${key}/turns`, { input, waitMs: 120_000 })
    return body.turn ?? body
  }
  const create = (body: object) => server.post('/v1/sessions', { key: 'k', ...body })

  beforeEach(async () => {
    agent = await AskingAgent.open(name)
    await start()
  })
  afterEach(async () => {
    killCommands()
    await server.kill()
    await agent.close()
  })

  it('asks with the command, and does what is allowed by HTTP', async () => {
    const done = turn(agent.wants('mkdir made'))
    const [ask] = await asksAt(server)
    expect(ask).toMatchObject({ kind: 'permission', session: { key: 'k' } })
    expect(ask.detail.command).toContain('mkdir made')
    expect(agent.has('made')).toBe(false)
    expect((await answer(server, ask, optionOf(ask, 'allow'))).status).toBe(200)
    expect(await done).toMatchObject({ state: 'done', error: null })
    expect(agent.has('made')).toBe(true)
    expect((await turn('next')).reply.text).toBe('seen 2: next')
    expect(await outcomesOf(server, 'k')).toEqual(['answered'])
    await agent.expectLinear(server, 'k')
  })

  it('asks with the diff of a file', async () => {
    // In its usual mode Codex may write where it works.
    await create(name === 'codex' ? { settings: { mode: 'read-only' } } : {})
    const done = turn(agent.wantsFile('new.txt', 'hello'))
    const [ask] = await asksAt(server)
    const path = join(agent.work, 'new.txt')
    expect(ask.detail).toMatchObject({
      kind: 'edit',
      paths: [path],
      diff: [{ path, before: null, after: 'hello\n' }],
    })
    expect(agent.has('new.txt')).toBe(false)
    await answer(server, ask, optionOf(ask, 'allow'))
    expect((await done).state).toBe('done')
    expect(readFileSync(path, 'utf8')).toBe('hello\n')
    await agent.expectLinear(server, 'k')
  })

  it('does not do what is denied, and is told why where that can be told', async () => {
    const done = turn(agent.wants('mkdir never'))
    const [ask] = await asksAt(server)
    const option = optionOf(ask, 'deny')
    const takesMessage = ask.accepts?.includes('message') === true
    // An ACP agent has no field for it.
    expect(takesMessage).toBe(name !== ADAPTER)
    await answer(server, ask, takesMessage ? { option, message: 'not on a Friday' } : option)
    const { state, reply } = await done
    expect(state).toBe('done')
    if (takesMessage) expect(reply.text).toContain('not on a Friday')
    expect(agent.has('never')).toBe(false)
    expect((await turn('next')).reply.text).toMatch(/^seen \d: next$/)
    await agent.expectLinear(server, 'k')
  })

  it('asks once for what is always allowed', async () => {
    const text = agent.wants('mkdir -p again')
    const done = turn(text)
    const [ask] = await asksAt(server)
    await answer(server, ask, 'allow_always')
    expect((await done).state).toBe('done')
    expect((await turn(text)).state).toBe('done')
    expect(agent.has('again')).toBe(true)
    expect(await outcomesOf(server, 'k')).toEqual(['answered'])
    await agent.expectLinear(server, 'k')
  })

  it('goes on without what nobody allows in time, or can allow', async () => {
    const settings = { onNobody: 'deny' }
    await create({ key: 'hasty', agent: 'hasty' })
    await create({ key: 'alone', settings })
    for (const [key, outcome] of [
      ['hasty', 'timed_out'],
      ['alone', 'nobody_to_ask'],
    ] as const) {
      expect((await turn(agent.wants(`mkdir ${key}`), key)).state).toBe('done')
      expect(agent.has(key)).toBe(false)
      expect((await turn('next', key)).reply.text).toMatch(/^seen \d: next$/)
      expect(await outcomesOf(server, key)).toEqual([outcome])
      await agent.expectLinear(server, key)
    }
  })

  it('is killed with its server while it asks: the ask is withdrawn, and asked again', async () => {
    expect((await turn('before')).reply.text).toBe('seen 1: before')
    await agent.expectLinear(server, 'k')
    const lost = turn(agent.wants('mkdir twice')).catch(() => null)
    await asksAt(server)
    await server.kill()
    await lost
    await until(() => agent.running().length === 0)
    await start()
    const again = turn(agent.wants('mkdir twice'))
    const [ask] = await asksAt(server)
    expect(agent.has('twice')).toBe(false)
    await answer(server, ask, optionOf(ask, 'allow'))
    expect((await again).state).toBe('done')
    expect(agent.has('twice')).toBe(true)
    expect((await turn('after')).reply.text).toMatch(/^seen [34]: after$/)
    expect(await outcomesOf(server, 'k')).toEqual(['withdrawn', 'answered'])
    await agent.expectLinear(server, 'k')
  })

  it('waits for an answer when its client is killed, and ends its turn', async () => {
    const url = ['--url', server.url]
    const client = new CommandLine(['send', 'k', agent.wants('mkdir later'), ...url])
    const [ask] = await asksAt(server)
    client.child.kill('SIGKILL')
    await client.exited
    const queued = turn('queued')
    expect(await asksAt(server)).toMatchObject([{ id: ask.id }])
    await answer(server, ask, optionOf(ask, 'allow'))
    expect((await queued).reply.text).toBe('seen 2: queued')
    expect(agent.has('later')).toBe(true)
    await agent.expectLinear(server, 'k')
  })

  it('stops when it is idle, and comes back with its context', async () => {
    await create({ agent: 'brief' })
    const done = turn(agent.wants('mkdir one'))
    const [ask] = await asksAt(server)
    await answer(server, ask, optionOf(ask, 'allow'))
    await done
    await until(() => agent.running(server).length === 0)
    expect((await turn('two')).reply.text).toBe('seen 2: two')
    await agent.expectLinear(server, 'k')
  })

  it('answers 20 turns at once through three doors on a fresh key, each its own', async () => {
    await expectOwnAnswers(agent, [server])
  })
})
