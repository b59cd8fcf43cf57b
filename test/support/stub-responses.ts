/** A model behind OpenAI's responses API that says what a test has it say, or calls a tool. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export type ResponsesRequest = {
  readonly body: any
  /** What a user said, without what agents add in tags. */
  readonly users: readonly string[]
  /** The result of the tool that was called just before, if one was. */
  readonly tool: string | null
}

export type ResponsesAnswer =
  /** `isHeld`: it says this and does not end. */
  | { readonly text: string; readonly isHeld?: true }
  | { readonly tool: string; readonly input: object }

export type StubResponses = {
  readonly url: string
  readonly requests: ResponsesRequest[]
  answer: (request: ResponsesRequest) => ResponsesAnswer | Promise<ResponsesAnswer>
  close(): Promise<void>
}

export async function startStubResponses(): Promise<StubResponses> {
  const server = createServer((request, response) => {
    handle(request, response).catch(() => response.destroy())
  })
  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    if (request.method !== 'POST') {
      return void response.end('{"object":"list","data":[],"models":[]}')
    }
    const asked = await readRequest(request)
    stub.requests.push(asked)
    const answer = await stub.answer(asked)
    response.setHeader('content-type', 'text/event-stream')
    for (const data of events(answer)) {
      response.write(`event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`)
    }
    if (!('isHeld' in answer)) response.end()
  }
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const stub: StubResponses = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests: [],
    answer: seen,
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
  return stub
}

export function seen({ users }: ResponsesRequest): ResponsesAnswer {
  return { text: `seen ${users.length}: ${users.at(-1)}` }
}

async function readRequest(request: IncomingMessage): Promise<ResponsesRequest> {
  let text = ''
  for await (const bytes of request) text += String(bytes)
  const body = JSON.parse(text)
  const items: any[] = body.input ?? []
  const users = items.filter(({ role }) => role === 'user').map(({ content }) => plain(content))
  const last = items.at(-1)
  const tool = last?.type === 'function_call_output' ? plain(last.output) : null
  return { body, users: users.filter((one) => one !== ''), tool }
}

function plain(content: unknown): string {
  const parts = Array.isArray(content) ? content.map(({ text }) => text ?? '') : [String(content)]
  return parts
    .join('\n')
    .replace(/<(\w+)>.*?<\/\1>/gs, '')
    .trim()
}

let made = 0

function* events(answer: ResponsesAnswer): Generator<{ type: string } & Record<string, unknown>> {
  made += 1
  const item = itemOf(answer)
  yield { type: 'response.created', response: { id: `r${made}`, status: 'in_progress' } }
  yield { type: 'response.output_item.added', output_index: 0, item }
  if ('text' in answer) {
    const delta = { item_id: `i${made}`, output_index: 0, content_index: 0, delta: answer.text }
    yield { type: 'response.output_text.delta', ...delta }
    if (answer.isHeld === true) return
  }
  yield { type: 'response.output_item.done', output_index: 0, item }
  const input = { input_tokens: 10, input_tokens_details: { cached_tokens: 3 } }
  const usage = { ...input, output_tokens: 5, total_tokens: 15 }
  const response = { id: `r${made}`, status: 'completed', output: [item], usage }
  yield { type: 'response.completed', response }
}

function itemOf(answer: ResponsesAnswer): object {
  const id = `i${made}`
  if ('tool' in answer) {
    const call = { name: answer.tool, arguments: JSON.stringify(answer.input) }
    return { type: 'function_call', id, call_id: `call_${made}`, ...call }
  }
  const content = [{ type: 'output_text', text: answer.text, annotations: [] }]
  return { type: 'message', id, role: 'assistant', status: 'completed', content }
}
