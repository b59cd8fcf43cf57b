/**
 * Real agents behind Holdfast, editors in front: stock ACP clients on stdio and on WebSockets, two
 * at once on one session, over a server that is killed.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { selected, StockClient } from '../support/acp-client.ts'
import { ShimProcess } from '../support/acp-shim.ts'
import { until } from '../support/gate.ts'
import { allIn } from '../support/processes.ts'
import { agentConfig, offline } from '../support/real-agents.ts'
import { freePort, ServerProcess } from '../support/server-process.ts'
import { StubModel } from '../support/stub-model.ts'

describe.each(['claude', 'codex', 'opencode'] as const)('%s behind editors', (name) => {
  let folder: string
  let model: StubModel
  let env: Record<string, string>
  let port: number
  let server: ServerProcess
  const ends: (() => unknown)[] = []

  const start = async (): Promise<void> => {
    const flags = ['--config', join(folder, 'holdfast.config.json')]
    const own = { PATH: process.env['PATH'], ...env }
    server = await ServerProcess.start({ data: join(folder, 'data'), flags, port, env: own })
  }
  const editor = async (): Promise<StockClient> => {
    const shim = new ShimProcess(server.url, ['--key', 'k'])
    ends.push(() => shim.close())
    await shim.client.initialize()
    return shim.client
  }
  const other = async (): Promise<StockClient> => {
    const client = await StockClient.connect(server.url)
    ends.push(() => client.close())
    return client
  }

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), `holdfast-${name}-`))
    model = await StubModel.start()
    env = await offline(name, join(folder, 'home'), model.url)
    const config = { agents: { [name]: agentConfig(name, env) } }
    await writeFile(join(folder, 'holdfast.config.json'), JSON.stringify(config))
    port = await freePort()
    await start()
  })
  afterEach(async () => {
    for (const end of ends.splice(0)) await end()
    await server.kill()
    const children = (): number[] => allIn(env['HOME'] ?? '').filter((pid) => pid !== server.pid)
    await expect.poll(children, { timeout: 20_000 }).toEqual([])
    await model.close()
    await rm(folder, { recursive: true, force: true, maxRetries: 5 })
  })

  it('answers two at once in one context, and shows it all to one that comes later', async () => {
    const [one, two] = [await editor(), await other()]
    const id = await one.open()
    expect(await two.open({ key: 'k' })).toBe(id)
    const answers = await Promise.all([one.prompt(id, 'from one'), two.prompt(id, 'from two')])
    expect(answers.map(({ stopReason }) => stopReason)).toEqual(['end_turn', 'end_turn'])
    await until(() => /seen 1.*seen 2/s.test(one.said()) && /seen 1.*seen 2/s.test(two.said()))
    expect(one.said('user_message_chunk')).toBe('from two')
    const late = await other()
    await late.request('session/load', { sessionId: id, cwd: '/', mcpServers: [] })
    await until(() => /seen 2/.test(late.said()))
    expect(late.said('user_message_chunk')).toContain('from one')
    expect(late.said()).toBe(one.said())
  })

  it('goes on after kill -9 of the server in the middle of an answer', async () => {
    const client = await editor()
    const id = await client.open()
    await client.prompt(id, 'before')
    model.hold(1)
    const during = client.prompt(id, 'during').catch((error: unknown) => error)
    await model.askedAbout('during')
    await server.kill()
    model.letGo()
    await start()
    expect(await during).toMatchObject({ data: { code: 'interrupted' } })
    expect(await client.prompt(id, 'after')).toMatchObject({ stopReason: 'end_turn' })
    await until(() => /seen [23]: (during\n)?after/.test(client.said()))
  })

  it.runIf(name === 'claude')('asks both, and the answer of one counts', async () => {
    const [one, two] = [await editor(), await other()]
    const id = await one.open()
    await two.open({ key: 'k' })
    const prompt = one.prompt(id, 'run rmdir nothing')
    const [first, second] = [await one.nextAsk(), await two.nextAsk()]
    expect(first.params.toolCall.content[0].content.text).toContain('rmdir nothing')
    const kinds = first.params.options.map(({ kind }: any) => kind)
    expect(kinds).toEqual(expect.arrayContaining(['allow_once', 'reject_once']))
    const deny = second.params.options.find(({ kind }: any) => kind === 'reject_once')
    second.answer(selected(deny.optionId))
    expect(await prompt).toMatchObject({ stopReason: 'end_turn' })
    await until(() => first.isCancelled())
    expect(one.kinds()).toContain('tool_call')
  })
})
