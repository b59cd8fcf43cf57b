/** Claude Code behind the Copilot door: stock SDK clients prompt it, decide for it, and run their tools for it. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { importSdk } from '../support/copilot-sdk.ts'
import { until } from '../support/gate.ts'
import { secretOf, tokenEntry } from '../support/principals.ts'
import { allIn } from '../support/processes.ts'
import { agentConfig, offline } from '../support/real-agents.ts'
import { freePort, ServerProcess } from '../support/server-process.ts'
import { StubModel } from '../support/stub-model.ts'

describe('Claude Code behind the Copilot SDK', () => {
  let folder: string
  let model: StubModel
  let env: Record<string, string>
  let server: ServerProcess
  let port: number
  let sdk: any
  const clients: any[] = []

  const start = async (): Promise<void> => {
    const config = join(folder, 'holdfast.config.json')
    const flags = ['--config', config, '--tokens', join(folder, 'tokens.json')]
    const own = { PATH: process.env['PATH'], ...env }
    server = await ServerProcess.start({ data: join(folder, 'data'), flags, env: own })
    await until(() => server.output.join('').includes('Copilot SDK:'))
  }
  const connect = async (): Promise<any> => {
    const connectionToken = secretOf('app')
    const connection = sdk.RuntimeConnection.forUri(`127.0.0.1:${port}`, { connectionToken })
    const client = new sdk.CopilotClient({ connection })
    clients.push(client)
    await client.start()
    return client
  }

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'holdfast-copilot-claude-'))
    model = await StubModel.start()
    env = await offline('claude', join(folder, 'home'), model.url)
    port = await freePort()
    const agents = { claude: agentConfig('claude', env) }
    await writeFile(
      join(folder, 'holdfast.config.json'),
      JSON.stringify({ agents, copilotPort: port }),
    )
    const tokens = [tokenEntry('app', { scopes: ['talk', 'answer', 'manage'] })]
    await writeFile(join(folder, 'tokens.json'), JSON.stringify({ version: 3, tokens }), {
      mode: 0o600,
    })
    sdk = await importSdk()
    await start()
  })
  afterEach(async () => {
    for (const client of clients.splice(0)) await client.forceStop()
    await server.kill()
    const children = (): number[] => allIn(env['HOME'] ?? '').filter((pid) => pid !== server.pid)
    await expect.poll(children, { timeout: 20_000 }).toEqual([])
    await model.close()
    await rm(folder, { recursive: true, force: true, maxRetries: 5 })
  })

  const weather = (said: (city: string) => unknown, more: object = {}) => ({
    ...{ name: 'weather', description: 'the weather', ...more },
    parameters: { type: 'object', properties: { city: { type: 'string' } } },
    handler: ({ city }: any) => said(city),
  })
  const call = (tool: string, input: object): string =>
    `tool mcp__client__${tool} ${JSON.stringify(input)}`

  it('gives two that send at once their own replies, in one context', async () => {
    const [one, two] = [await connect(), await connect()]
    const first = await one.createSession({ sessionId: 'k', onPermissionRequest: sdk.approveAll })
    const second = await two.resumeSession('k', { onPermissionRequest: sdk.approveAll })
    const replies = await Promise.all([
      first.sendAndWait({ prompt: 'from one' }),
      second.sendAndWait({ prompt: 'from two' }),
    ])
    const words: string[] = replies.map(({ data }: any) => data.content)
    expect(words[0]).toContain('from one')
    expect(words[1]).toContain('from two')
    expect(words.map((text) => text.slice(0, 6)).toSorted()).toEqual(['seen 1', 'seen 2'])
  })

  it('asks the client before it acts, and does what that decides', async () => {
    const client = await connect()
    const asked: any[] = []
    let kind = 'reject'
    const session = await client.createSession({
      onPermissionRequest: (request: any) => {
        asked.push(request)
        return { kind }
      },
    })
    await session.sendAndWait({ prompt: 'run rmdir nothing' })
    expect(asked).toMatchObject([{ kind: 'shell', fullCommandText: 'rmdir nothing' }])
    kind = 'approve-once'
    const { data } = await session.sendAndWait({ prompt: 'run mkdir made && echo allowed' })
    expect(data.content).toContain('allowed')
  })

  it('calls tools that the client has registered, with permission unless the client wants none', async () => {
    const client = await connect()
    const asked: any[] = []
    const onPermissionRequest = (request: any): object => {
      asked.push(request)
      return { kind: 'approve-once' }
    }
    const tools = [weather((city) => `sunny in ${city}`)]
    const session = await client.createSession({ sessionId: 'k', onPermissionRequest, tools })
    const said = async (prompt: string, from = session): Promise<string> =>
      (await from.sendAndWait({ prompt })).data.content
    expect(await said(call('weather', { city: 'Bern' }))).toContain('sunny in Bern')
    expect(asked).toMatchObject([{ kind: 'custom-tool', args: { city: 'Bern' } }])
    // Others from the next turn on, and in the same conversation.
    const free = weather((city) => ({ textResultForLlm: `no ${city}`, resultType: 'failure' }), {
      name: 'forecast',
      skipPermission: true,
    })
    const again = await client.resumeSession('k', { onPermissionRequest, tools: [free] })
    expect(await said(call('forecast', { city: 'Rome' }), again)).toContain('no Rome')
    expect(asked).toHaveLength(1)
    expect(await said(call('weather', { city: 'Bern' }), again)).not.toContain('sunny')
    expect(await said('plain', again)).toMatch(/^seen \d+: plain$/)
  })

  it('has its call answered by a new client when the one that had the tool was killed', async () => {
    const one = await connect()
    let calls = 0
    const silent = weather(() => {
      calls += 1
      return new Promise(() => undefined)
    })
    const options = { onPermissionRequest: sdk.approveAll }
    const first = await one.createSession({ ...options, sessionId: 'k', tools: [silent] })
    await first.send({ prompt: call('weather', { city: 'Bern' }) })
    await until(() => calls === 1)
    await one.forceStop()
    const two = await connect()
    const words: string[] = []
    const tools = [weather((city) => `rain in ${city}`)]
    const onEvent = ({ type, data }: any): void => {
      if (type === 'assistant.message') words.push(data.content)
    }
    await two.resumeSession('k', { ...options, tools, onEvent })
    await until(() => words.some((text) => text.includes('rain in Bern')))
  })

  it('goes on after kill -9 of the server, in the same conversation', async () => {
    const first = await (
      await connect()
    ).createSession({
      ...{ sessionId: 'k', onPermissionRequest: sdk.approveAll },
    })
    await first.sendAndWait({ prompt: 'before' })
    await server.kill()
    await start()
    const second = await (
      await connect()
    ).resumeSession('k', {
      onPermissionRequest: sdk.approveAll,
    })
    const { data } = await second.sendAndWait({ prompt: 'after' })
    expect(data.content).toBe('seen 2: after')
  })
})
