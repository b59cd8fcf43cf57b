/** `holdfast serve --copilot-port`: the real program, its greeting, its refusal, its stop and its crash. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { until } from '../support/gate.ts'
import { secretOf, tokenEntry } from '../support/principals.ts'
import { RawCopilot } from '../support/raw-copilot.ts'
import { ServerProcess } from '../support/server-process.ts'

let folder: string
let tokens: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-copilot-'))
  tokens = join(folder, 'tokens.json')
  const entry = tokenEntry('app', { scopes: ['talk', 'answer', 'manage'] })
  await writeFile(tokens, JSON.stringify({ version: 3, tokens: [entry] }), { mode: 0o600 })
})
afterAll(() => rm(folder, { recursive: true }))

const data = (): string => join(folder, 'data')

async function start(flags: readonly string[]): Promise<{ server: ServerProcess; port: number }> {
  const server = await ServerProcess.start({ data: data(), flags: ['--tokens', tokens, ...flags] })
  const line = /Copilot SDK: RuntimeConnection\.forUri\("127\.0\.0\.1:(\d+)"/
  await until(() => line.test(server.output.join('')))
  return { server, port: Number(line.exec(server.output.join(''))?.[1]) }
}

describe('holdfast serve', () => {
  it('opens the port of the flag, and says where it is', async () => {
    const { server, port } = await start(['--copilot-port', '0'])
    const client = await RawCopilot.open(port, secretOf('app'))
    await client.request('session.create', { sessionId: 'one', model: 'echo' })
    await client.request('session.send', { sessionId: 'one', prompt: 'hello' })
    expect((await client.event('assistant.message')).data.content).toBe('hello')
    expect(await server.stop()).toBe(0)
    await client.closed
  })

  it('opens the port of the configuration', async () => {
    const file = join(folder, 'holdfast.config.json')
    await writeFile(file, JSON.stringify({ copilotPort: 0 }))
    const { server, port } = await start(['--config', file])
    const client = await RawCopilot.open(port, secretOf('app'))
    expect(await client.request('ping')).toMatchObject({ protocolVersion: 3 })
    await client.cut()
    await server.stop()
  })

  it('does not start with that port and without tokens', async () => {
    const starting = ServerProcess.start({ data: data(), flags: ['--copilot-port', '0'] })
    await expect(starting).rejects.toThrow('--copilot-port needs --tokens FILE')
  })

  it('keeps what was accepted over kill -9: the next server goes on with it', async () => {
    const first = await start(['--copilot-port', '0'])
    const client = await RawCopilot.open(first.port, secretOf('app'))
    await client.request('session.create', { sessionId: 'killed', model: 'slow', streaming: true })
    await client.request('session.send', {
      sessionId: 'killed',
      prompt: 'a long answer that is cut',
    })
    await client.event('assistant.message_delta')
    // Recorded in the queue, though it is answered only when its reply was told.
    client.ask('session.send', { sessionId: 'killed', prompt: 'the next' })
    await client.message(({ method, params }) => {
      return method === 'session.event' && params.event.type === 'pending_messages.modified'
    }, client.messages.length)
    await first.server.kill()
    await client.closed
    const second = await start(['--copilot-port', '0'])
    const again = await RawCopilot.open(second.port, secretOf('app'))
    await again.request('session.resume', { sessionId: 'killed' })
    const isDone = async (): Promise<boolean> => {
      const { processing } = await again.request('session.metadata.isProcessing', {
        sessionId: 'killed',
      })
      return !processing
    }
    await until(isDone)
    const { events } = await again.request('session.getMessages', { sessionId: 'killed' })
    const said = events.filter(({ type }: any) => type === 'user.message')
    expect(said.map(({ data: { content } }: any) => content)).toEqual([
      'a long answer that is cut',
      'the next',
    ])
    const replies = events.filter(({ type }: any) => type === 'assistant.message')
    expect(replies.at(-1).data.content).toBe('the next')
    await again.cut()
    await second.server.stop()
  })
})
