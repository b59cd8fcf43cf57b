/**
 * Each of the five real agents behind a real server, over HTTP, with a stub for the model: concurrent
 * turns are answered in order, each its own, in one context, and whatever is killed, the next turn works.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { ServerProcess } from '../support/server-process.ts'
import { brokenInLog, type LoggedEvent } from '../support/log.ts'
import { until } from '../support/gate.ts'
import { allIn, isReaped } from '../support/processes.ts'
import { agentConfig, AGENTS, offline, type AgentName } from '../support/real-agents.ts'
import { StubModel } from '../support/stub-model.ts'

describe.each(AGENTS)('%s behind Holdfast', (name) => {
  let folder: string
  let model: StubModel
  let env: Record<string, string>
  let server: ServerProcess

  const start = async (): Promise<void> => {
    const flags = ['--config', join(folder, 'holdfast.config.json')]
    const own = { PATH: process.env['PATH'], ...env }
    server = await ServerProcess.start({ data: join(folder, 'data'), flags, env: own })
  }
  const post = async (text: string): Promise<any> => {
    const response = await fetch(`${server.url}/v1/keys/fresh/turns`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ input: text, waitMs: 120_000 }),
    })
    return response.json()
  }
  const events = async (session: string): Promise<any[]> => {
    const response = await fetch(`${server.url}/v1/sessions/${session}/events`)
    return ((await response.json()) as { events: any[] }).events
  }
  /** The children of the server, and theirs. */
  const children = (): number[] => allIn(env['HOME'] ?? '').filter((pid) => pid !== server.pid)
  /** One backend session, and a log that keeps the invariants. */
  const expectOneLine = async (session: string): Promise<void> => {
    const log = await events(session)
    expect(log.filter(({ type }) => type === 'session.bound')).toHaveLength(1)
    expect(brokenInLog(log as LoggedEvent[], true)).toEqual([])
  }

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), `holdfast-${name}-`))
    model = await StubModel.start()
    env = await offline(name, join(folder, 'home'), model.url)
    const config = { agents: { [name]: agentConfig(name, env) } }
    await writeFile(join(folder, 'holdfast.config.json'), JSON.stringify(config))
    await start()
  })
  afterEach(async () => {
    await server.kill()
    await expect.poll(children, { timeout: 20_000 }).toEqual([])
    await model.close()
    await rm(folder, { recursive: true, force: true, maxRetries: 5 })
  })

  it('answers concurrent first turns and later ones in order, each its own', async () => {
    const cold = await Promise.all([post('cold one'), post('cold two')])
    const warm = await Promise.all([post('warm one'), post('warm two')])
    const turns = [...cold, ...warm].map(({ turn }) => turn)
    expect(turns.map(({ state, error }) => error ?? state)).toEqual(Array(4).fill('done'))
    const inOrder = turns.toSorted((one, other) => one.startedAt - other.startedAt)
    expect(inOrder.map(({ reply }) => reply.text.trim())).toEqual(
      inOrder.map(({ input }, index) => `seen ${index + 1}: ${input}`),
    )
    await expectOneLine(cold[0].session)
  })

  it('goes on in the same context after kill -9 of the server, and leaves no child', async () => {
    expect((await post('before')).turn.reply.text.trim()).toBe('seen 1: before')
    model.hold(1)
    const lost = post('during').catch(() => null)
    await model.askedAbout('during')
    await server.kill()
    await lost
    await expect.poll(children, { timeout: 20_000 }).toEqual([])
    model.letGo()
    await untilLoadable(name)
    await start()
    const { session, turn } = await post('after')
    expect(turn.error ?? turn.state).toBe('done')
    expect(turn.reply.text).toMatch(/^seen [23]: (during\n)?after/)
    const ends = (await events(session)).filter(({ type }) => type === 'turn.interrupted')
    expect(ends).toHaveLength(1)
    await expectOneLine(session)
  })

  it('goes on after the server was killed at random moments', async () => {
    const { session } = await post('before')
    for (let round = 0; round < (name === 'gemini' ? 1 : 3); round += 1) {
      const turn = post(`round ${round}`).catch(() => null)
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 2_000))
      await server.kill()
      await turn
      await expect.poll(children, { timeout: 20_000 }).toEqual([])
      await untilLoadable(name)
      await start()
    }
    const last = await post('last')
    expect(last.turn.error ?? last.turn.state).toBe('done')
    expect(last.turn.reply.text).toMatch(/^seen [2-5]: last/)
    expect(last.session).toBe(session)
    await expectOneLine(session)
  })

  it('goes on after it was killed at random moments', async () => {
    let session = ''
    const rounds = name === 'gemini' ? 1 : 5
    for (let round = 0; round < rounds; round += 1) {
      const delay = Math.random() * 1_500
      const turn = post(`round ${round}`)
      await new Promise((resolve) => setTimeout(resolve, delay))
      const pids = children()
      for (const pid of pids) kill(pid)
      const answer = await turn
      // One that is killed while it is idle may take the next turn before its end is noticed.
      await until(() => pids.every(isReaped))
      session = answer.session
      expect(['done', 'failed'], `killed after ${delay} ms`).toContain(answer.turn.state)
    }
    const last = await post('last')
    expect(last.turn.error ?? last.turn.state).toBe('done')
    expect(last.turn.reply.text).toContain(': last')
    expect((await post('and last')).turn.reply.text).toContain(': and last')
    await expectOneLine(session)
  })
})

/**
 * Gemini CLI names the file of a session by its minute, and empties it when it loads the session in
 * the very minute in which it was made.
 */
async function untilLoadable(name: AgentName): Promise<void> {
  if (name !== 'gemini') return
  await new Promise((resolve) => setTimeout(resolve, 61_000 - (Date.now() % 60_000)))
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It ended by itself meanwhile.
  }
}
