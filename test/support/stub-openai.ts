/** A model behind OpenAI's chat completions that says what a test has it say, and can misbehave. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export type ChatRequest = {
  readonly headers: IncomingMessage['headers']
  readonly body: any
  /** What a user said, without what agents add in tags. */
  readonly users: readonly string[]
  /** The result of the tool that was called just before, if one was. */
  readonly tool: string | null
}

export type ChatAnswer =
  | { readonly text: string; readonly finish?: string }
  | { readonly tool: string; readonly input: object }
  /** Anything else, by the test itself. */
  | ((response: ServerResponse) => unknown)

export type StubOpenAi = {
  readonly url: string
  readonly requests: ChatRequest[]
  answer: (request: ChatRequest) => ChatAnswer | Promise<ChatAnswer>
  close(): Promise<void>
}

export async function startStubOpenAi(): Promise<StubOpenAi> {
  const server = createServer((request, response) => {
    handle(request, response).catch(() => response.destroy())
  })
  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const asked = await readRequest(request)
    stub.requests.push(asked)
    const answer = await stub.answer(asked)
    if (typeof answer === 'function') return void (await answer(response))
    for (const chunk of chunks(answer)) response.write(`data: ${JSON.stringify(chunk)}\n\n`)
    response.end('data: [DONE]\n\n')
  }
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const stub: StubOpenAi = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    requests: [],
    answer: ({ users }) => ({ text: `seen ${users.length}: ${users.at(-1)}` }),
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
  server.prependListener('request', (_, response) => {
    response.setHeader('content-type', 'text/event-stream')
  })
  return stub
}

async function readRequest(request: IncomingMessage): Promise<ChatRequest> {
  let text = ''
  for await (const bytes of request) text += String(bytes)
  const body = JSON.parse(text === '' ? '{}' : text)
  const messages: any[] = body.messages ?? []
  const users = messages.filter(({ role }) => role === 'user').map(({ content }) => plain(content))
  const last = messages.at(-1)
  const tool = last?.role === 'tool' ? plain(last.content) : null
  return { headers: request.headers, body, users, tool }
}

function plain(content: unknown): string {
  const parts = Array.isArray(content) ? content.map(({ text }) => String(text)) : [String(content)]
  return parts
    .join('\n')
    .replace(/<(\w+)>.*?<\/\1>/gs, '')
    .trim()
}

let calls = 0

function* chunks(answer: Exclude<ChatAnswer, (...args: any[]) => unknown>): Generator<object> {
  if ('tool' in answer) {
    calls += 1
    const call = { name: answer.tool, arguments: JSON.stringify(answer.input) }
    const tool = { index: 0, id: `call_${calls}`, type: 'function', function: call }
    yield chunk({ role: 'assistant', tool_calls: [tool] })
    return yield { ...chunk({}, 'tool_calls'), usage }
  }
  for (const content of answer.text.split(/(?<=\s)/)) yield chunk({ role: 'assistant', content })
  yield chunk({}, answer.finish ?? 'stop')
  yield { ...chunk({}), choices: [], usage }
}

const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 }

function chunk(delta: object, finish: string | null = null): object {
  const choices = [{ index: 0, delta, finish_reason: finish }]
  const id = { id: 'chat_stub', object: 'chat.completion.chunk', created: 1, model: 'stub-model' }
  return { ...id, choices }
}
