/** Stock clients of OpenAI's API against a server: two turns each, in every way they have. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Agent } from 'holdfast'
import {
  CLIENTS,
  importClient,
  NAMING_CLIENTS,
  SAID,
  type Talk,
} from '../support/openai-clients.ts'
import { serve, type TestServer } from '../support/server.ts'

let server: TestServer

type Said = { readonly role: string; readonly text: string }

/** Answers with all that it was told, in this turn and before. */
const witness: Agent = async function* ({ input }, context) {
  const said: Said[] = []
  for await (const { role, text } of context.history()) said.push({ role, text })
  const { messages } = typeof input === 'string' ? { messages: undefined } : input
  const now = Array.isArray(messages)
    ? (messages as { role: string; content: string }[])
    : [{ role: 'user', content: typeof input === 'string' ? input : input.text }]
  for (const { role, content } of now) said.push({ role, text: content })
  yield 'told '
  yield said.map(({ role, text }) => `<${role}: ${text}>`).join('')
}

const FIRST = `told <user: ${SAID[0]}>`
const SECOND = `told <user: ${SAID[0]}><assistant: ${FIRST}><user: ${SAID[1]}>`

beforeAll(async () => {
  server = await serve({ agents: { witness } })
})
afterAll(() => server.close())

let keys = 0
function nextKey(): string {
  keys += 1
  return `client-${keys}`
}

const STREAMED = [
  ['whole', false],
  ['streamed', true],
] as const

describe.each(Object.entries({ ...CLIENTS, ...NAMING_CLIENTS }))('%s', (name, client) => {
  const isNaming = Object.hasOwn(NAMING_CLIENTS, name)

  it.each(STREAMED)('remembers the first turn in the second, %s', async (_, stream) => {
    const talk: Talk = { url: server.url, key: undefined, stream }
    expect(await client(talk)).toEqual([FIRST, SECOND])
  })

  it.runIf(!isNaming).each(STREAMED)('has its session by a key, %s', async (_, stream) => {
    const key = nextKey()
    expect(await client({ url: server.url, key, stream })).toEqual([FIRST, SECOND])
    const session = await server.holdfast.find(key)
    expect(await session?.state()).toMatchObject({ turns: SAID.length })
  })
})

it('a conversation of @openai/agents is listed, popped and cleared', async () => {
  const { OpenAI } = await importClient('openai')
  const { OpenAIConversationsSession } = await importClient('@openai/agents')
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 })
  const session = new OpenAIConversationsSession({ client })
  const user = (content: string) => ({ type: 'message', role: 'user', content })
  await session.addItems([user('one'), user('two')])
  await session.addItems([user('three')])
  expect(await session.popItem()).toMatchObject({ content: [{ text: 'three' }] })
  const texts = (await session.getItems()).map(({ content }: any) => content[0].text)
  expect(texts).toEqual(['one', 'two'])
  expect(await session.getItems(1)).toMatchObject([{ content: [{ text: 'two' }] }])
  const id = await session.getSessionId()
  await session.clearSession()
  await expect(client.conversations.retrieve(id)).rejects.toMatchObject({ status: 404 })
})
