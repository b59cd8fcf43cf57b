/** Stock clients of OpenAI's API, as `scripts/openai-clients.mjs` has installed them. */
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

/** `npm run e2e:clients` says where they are. */
const FOLDER = process.env['OPENAI_CLIENTS'] ?? ''
const { resolve } = createRequire(join(FOLDER, 'package.json'))

/** One of them. They have types of their own, which this project does not install. */
export async function importClient(name: string): Promise<any> {
  return import(/* @vite-ignore */ pathToFileURL(resolve(name)).href)
}

export type Talk = {
  readonly url: string
  /** The key of the session; without it, the client keeps the conversation as it usually does. */
  readonly key: string | undefined
  readonly stream: boolean
}

/** Says two things, one after the other, as one conversation, and returns the replies. */
export type Client = (talk: Talk) => Promise<readonly string[]>

const MODEL = 'witness'
export const SAID = ['first', 'second'] as const

function headersOf({ key }: Talk): Record<string, string> {
  return key === undefined ? {} : { 'x-session-key': key }
}

async function openai(talk: Talk): Promise<any> {
  const { OpenAI } = await importClient('openai')
  const defaultHeaders = headersOf(talk)
  return new OpenAI({ baseURL: `${talk.url}/v1`, apiKey: 'none', maxRetries: 0, defaultHeaders })
}

/** The texts of a stream, as one. */
async function joined<Piece>(
  stream: AsyncIterable<Piece>,
  textOf: (piece: Piece) => unknown,
): Promise<string> {
  let text = ''
  for await (const piece of stream) {
    const part = textOf(piece)
    if (typeof part === 'string') text += part
  }
  return text
}

const chatCompletions: Client = async (talk) => {
  const { chat } = await openai(talk)
  const messages: object[] = []
  const replies: string[] = []
  for (const content of SAID) {
    messages.push({ role: 'user', content })
    const reply = talk.stream
      ? await chat.completions.stream({ model: MODEL, messages }).finalContent()
      : (await chat.completions.create({ model: MODEL, messages })).choices[0].message.content
    messages.push({ role: 'assistant', content: reply })
    replies.push(reply)
  }
  return replies
}

function responses(memory: 'previous' | 'conversation' | 'history'): Client {
  return async (talk) => {
    const client = await openai(talk)
    const isKeyed = talk.key !== undefined
    const made = memory === 'conversation' && !isKeyed ? await client.conversations.create() : null
    const history: object[] = []
    const replies: string[] = []
    let previous: string | undefined
    for (const content of SAID) {
      history.push({ role: 'user', content })
      const params = {
        model: MODEL,
        input: memory === 'history' ? history : content,
        ...(made === null ? {} : { conversation: made.id }),
        ...(memory === 'previous' ? { previous_response_id: previous } : {}),
      }
      const response = talk.stream
        ? await client.responses.stream(params).finalResponse()
        : await client.responses.create(params)
      previous = response.id
      history.push(...response.output)
      replies.push(response.output.map(({ content: [{ text }] }: any) => text).join(''))
    }
    return replies
  }
}

function aiSdk(modelOf: (talk: Talk) => Promise<any>): Client {
  return async (talk) => {
    const { generateText, streamText } = await importClient('ai')
    const model = await modelOf(talk)
    const messages: object[] = []
    const replies: string[] = []
    for (const content of SAID) {
      messages.push({ role: 'user', content })
      const options = { model, messages, maxRetries: 0 }
      const result = talk.stream ? streamText(options) : await generateText(options)
      replies.push(talk.stream ? await joined(result.textStream, String) : result.text)
      messages.push(...(await result.response).messages)
    }
    return replies
  }
}

async function aiSdkOpenAi(talk: Talk): Promise<any> {
  const { createOpenAI } = await importClient('@ai-sdk/openai')
  return createOpenAI({ baseURL: `${talk.url}/v1`, apiKey: 'none', headers: headersOf(talk) })
}

async function aiSdkCompatible(talk: Talk): Promise<any> {
  const { createOpenAICompatible } = await importClient('@ai-sdk/openai-compatible')
  const options = { name: 'holdfast', baseURL: `${talk.url}/v1`, headers: headersOf(talk) }
  return createOpenAICompatible(options)(MODEL)
}

function langchain(useResponsesApi: boolean): Client {
  return async (talk) => {
    const { ChatOpenAI } = await importClient('@langchain/openai')
    const { HumanMessage } = await importClient('@langchain/core/messages')
    const configuration = { baseURL: `${talk.url}/v1`, defaultHeaders: headersOf(talk) }
    const options = { model: MODEL, apiKey: 'none', maxRetries: 0, useResponsesApi, configuration }
    const chat = new ChatOpenAI(options)
    const messages: object[] = []
    const replies: string[] = []
    for (const content of SAID) {
      messages.push(new HumanMessage(content))
      let message: any
      if (talk.stream) {
        for await (const chunk of await chat.stream(messages)) {
          message = message === undefined ? chunk : message.concat(chunk)
        }
      } else message = await chat.invoke(messages)
      messages.push(message)
      replies.push(message.text)
    }
    return replies
  }
}

type AgentsMemory = 'history' | 'previous' | 'conversation' | 'conversations session'

/** How the runner of `@openai/agents` is told of what was said before. */
async function agentsMemory(memory: AgentsMemory, client: any) {
  const { OpenAIConversationsSession } = await importClient('@openai/agents')
  const conversationId = memory === 'conversation' ? (await client.conversations.create()).id : null
  const session =
    memory === 'conversations session' ? new OpenAIConversationsSession({ client }) : undefined
  return (last: any) => ({
    ...(session === undefined ? {} : { session }),
    ...(conversationId === null ? {} : { conversationId }),
    ...(memory === 'previous' ? { previousResponseId: last?.lastResponseId } : {}),
  })
}

function agents(memory: AgentsMemory, useResponses = true): Client {
  return async (talk) => {
    const client = await openai(talk)
    const { Agent, OpenAIProvider, Runner } = await importClient('@openai/agents')
    const modelProvider = new OpenAIProvider({ openAIClient: client, useResponses })
    const runner = new Runner({ modelProvider, tracingDisabled: true })
    const agent = new Agent({ name: 'tester', model: MODEL })
    const optionsAfter = await agentsMemory(memory, client)
    const replies: string[] = []
    let last: any
    for (const content of SAID) {
      const history = memory === 'history' ? (last?.history ?? []) : []
      const said = history.length === 0 ? content : [...history, { role: 'user', content }]
      last = await runner.run(agent, said, { stream: talk.stream, ...optionsAfter(last) })
      if (talk.stream) await last.completed
      replies.push(last.finalOutput)
    }
    return replies
  }
}

/** By name: the packages, and how they keep a conversation. */
export const CLIENTS: Readonly<Record<string, Client>> = {
  'openai, chat completions': chatCompletions,
  'openai, previous_response_id': responses('previous'),
  'openai, conversation': responses('conversation'),
  'openai, responses with the history': responses('history'),
  'ai with @ai-sdk/openai': aiSdk(async (talk) => (await aiSdkOpenAi(talk))(MODEL)),
  'ai with @ai-sdk/openai, chat': aiSdk(async (talk) => (await aiSdkOpenAi(talk)).chat(MODEL)),
  'ai with @ai-sdk/openai-compatible': aiSdk(aiSdkCompatible),
  '@langchain/openai': langchain(false),
  '@langchain/openai, responses': langchain(true),
  '@openai/agents, history': agents('history'),
  '@openai/agents, chat completions': agents('history', false),
  '@openai/agents, previousResponseId': agents('previous'),
  '@openai/agents, OpenAIConversationsSession': agents('conversations session'),
}

/** It names the session itself, so that a key beside it is refused. */
export const NAMING_CLIENTS: Readonly<Record<string, Client>> = {
  '@openai/agents, conversationId': agents('conversation'),
}
