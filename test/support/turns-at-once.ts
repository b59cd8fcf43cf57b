/** Many turns at once on a fresh key, through three doors of one server or of several nodes. */
import OpenAI from 'openai'
import { expect } from 'vitest'
import { WebSocket } from 'ws'
import { connect } from '../../src/client/index.ts'
import { answer, eventsOf, optionOf, type AskingAgent } from './asking-agent.ts'
import type { Endpoint } from './endpoint.ts'

const COUNT = 20
const KEY = 'fresh'
const WAIT_MS = 120_000

/** Every fourth turn asks, and is allowed by HTTP: its answer is what its command has said. */
const asks = (n: number): boolean => n % 4 === 0

type Door = (input: string) => Promise<string>

/** Native HTTP, the socket and OpenAI's API of a server. */
function doorsOf(server: Endpoint, model: string) {
  const session = connect({ url: server.url, webSocket: WebSocket }).session({ key: KEY })
  const openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 })
  const headers = { 'x-session-key': KEY, 'x-session-on-nobody': 'wait' }
  const doors: readonly Door[] = [
    async (input) => {
      const { body } = await server.post(`/v1/keys/${KEY}/turns`, { input, waitMs: WAIT_MS })
      return body.turn?.reply?.text ?? JSON.stringify(body)
    },
    async (input) => {
      const result = await session.turn(input, { waitMs: WAIT_MS })
      return result.reply?.text ?? JSON.stringify(result)
    },
    async (content) => {
      const messages = [{ role: 'user' as const, content }]
      const made = await openai.chat.completions.create({ model, messages }, { headers })
      return made.choices[0]?.message.content ?? ''
    },
  ]
  return { doors, session }
}

/** Allows what is asked, at each server in turn, until it is stopped; returns how much that was. */
function allowing(servers: readonly Endpoint[]) {
  const state = { on: true }
  const run = async (): Promise<number> => {
    let count = 0
    for (let n = 0; state.on; n += 1) {
      const server = servers[n % servers.length]!
      for (const ask of (await server.get('/v1/asks')).body.asks) {
        const { status } = await answer(server, ask, optionOf(ask, 'allow'))
        if (status === 200) count += 1
      }
    }
    return count
  }
  const counting = run()
  return () => {
    state.on = false
    return counting
  }
}

/** Each turn gets its own answer, in the order of the log, and the conversation is one line. */
export async function expectOwnAnswers(
  agent: AskingAgent,
  servers: readonly Endpoint[],
): Promise<void> {
  const clients = servers.map((server) => doorsOf(server, agent.name))
  const doors = [0, 1, 2].flatMap((door) => clients.map((client) => client.doors[door]!))
  const stop = allowing(servers)
  const inputs = Array.from({ length: COUNT }, (_, n) =>
    asks(n) ? agent.wants(`mkdir made-${n}; echo made-${n}-`) : `say-${n}-`,
  )
  const replies = await Promise.all(inputs.map((input, n) => doors[n % doors.length]!(input)))
  expect(await stop()).toBe(inputs.filter((_, n) => asks(n)).length)
  for (const [n, reply] of replies.entries()) {
    expect([n, reply]).toEqual([n, expect.stringContaining(asks(n) ? `made-${n}-` : `: say-${n}-`)])
    expect([n, agent.has(`made-${n}`)]).toEqual([n, asks(n)])
  }
  const events = await eventsOf(servers[0]!, KEY)
  const started = events.filter(({ type }) => type === 'turn.started').map(({ input }) => input)
  expect(started.toSorted()).toEqual(inputs.toSorted())
  for (const [place, input] of started.entries()) {
    if (asks(inputs.indexOf(input))) continue
    expect(replies[inputs.indexOf(input)]).toBe(`seen ${place + 1}: ${input}`)
  }
  for (const { session } of clients) session.dispose()
  await agent.expectLinear(servers[0]!, KEY)
}
