/**
 * What the agents do by themselves with two turns at once: the reason for what stands in front of them.
 * Claude Code's part is in `test/scenarios/trinity-779-claude.test.ts`.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { offline, programOf, type AgentName } from '../support/real-agents.ts'
import { StubModel } from '../support/stub-model.ts'

let folder: string
let model: StubModel
const children: ChildProcess[] = []

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-bare-'))
  await mkdir(join(folder, 'work'))
  model = await StubModel.start()
})
afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
  await model.close()
  await rm(folder, { recursive: true, force: true, maxRetries: 5 })
})

async function run(name: AgentName, args: readonly string[]): Promise<ChildProcess> {
  const env = await offline(name, join(folder, 'home'), model.url)
  const child = spawn(programOf(name), [...args], {
    cwd: join(folder, 'work'),
    env: { PATH: process.env['PATH'], ...env },
    stdio: ['pipe', 'pipe', 'ignore'],
  })
  children.push(child)
  return child
}

describe('codex, bare', () => {
  const exec = async (text: string, ...args: string[]): Promise<any[]> => {
    const child = await run('codex', ['exec', ...args, '--json', '--skip-git-repo-check', text])
    child.stdin?.end()
    let output = ''
    child.stdout?.on('data', (chunk: Buffer) => (output += chunk.toString()))
    await once(child, 'close')
    return output
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line) as unknown)
  }
  const isAnswered = (lines: readonly any[]): boolean =>
    lines.some(({ type }) => type === 'turn.completed')

  it('refuses one of two turns that resume at the same time', async () => {
    const [{ thread_id: id }] = await exec('zero')
    model.hold(0)
    const first = exec('one', 'resume', id)
    await model.askedAbout('one')
    const second = await exec('two', 'resume', id)
    model.letGo()
    expect([isAnswered(await first), isAnswered(second)]).toEqual([true, false])
  })
})

describe.each([
  ['opencode', ['acp'], 'merges them: nobody answers the first', ['end_turn', 'end_turn']],
  ['gemini', ['--acp', '-m', 'gemini-2.5-flash'], 'drops the first', ['cancelled', 'end_turn']],
  ['copilot', ['--acp'], 'drops the first', ['cancelled', 'end_turn']],
] as const)('%s, bare', (name, args, what, expected) => {
  /** What each of two prompts that are sent at the same time comes to, and all that was said. */
  const promptTwice = async (): Promise<{ ends: unknown[]; said: string }> => {
    const child = await run(name, args)
    let said = ''
    let id = 0
    const waiting = new Map<number, (result: any) => void>()
    createInterface({ input: child.stdout! }).on('line', (line) => {
      const message = line.startsWith('{') ? JSON.parse(line) : {}
      const { sessionUpdate, content } = message.params?.update ?? {}
      if (sessionUpdate === 'agent_message_chunk') said += content.text
      waiting.get(message.id)?.(message.error ?? message.result)
    })
    const call = (method: string, params: object): Promise<any> => {
      id += 1
      const answer = new Promise((resolve) => waiting.set(id, resolve))
      child.stdin?.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`)
      return answer
    }
    await call('initialize', { protocolVersion: 1, clientCapabilities: {} })
    const cwd = join(folder, 'work')
    const { sessionId } = await call('session/new', { cwd, mcpServers: [] })
    const prompt = (text: string): Promise<any> =>
      call('session/prompt', { sessionId, prompt: [{ type: 'text', text }] })
    const ends = await Promise.all([prompt('one'), prompt('two')])
    return { ends: ends.map(({ stopReason }) => stopReason), said }
  }

  it(`does not answer two prompts at the same time, each its own: it ${what}`, async () => {
    const { ends, said } = await promptTwice()
    expect(ends).toEqual(expected)
    // Whether a cancelled one is heard of at all is a matter of luck.
    if (name === 'opencode') expect(said).toBe('seen 2: two')
  })
})
