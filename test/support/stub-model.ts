/**
 * The model behind the agents, as a stub on loopback: it answers every request with how many messages
 * of a user it saw and the last of them, so that lost context shows. It speaks Anthropic's Messages,
 * OpenAI's chat completions and responses, and Gemini's generateContent, all of them streamed.
 * `run COMMAND` makes an agent run the command in its shell, and `tool NAME {…}` makes it call that
 * tool; the answer is its output. The answer to `hang` begins, and does not end.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

export type ModelRequest = {
  readonly path: string
  readonly users: readonly string[]
  readonly model?: string
  /** The system prompt as JSON text. */
  readonly system?: string
  /** As they were sent. */
  readonly messages?: unknown
}

/** How to put an answer on the wire, in the protocol of the request. */
type Protocol = {
  readonly users: (body: any) => string[]
  readonly begin: (body: any) => readonly Event[]
  readonly word: (text: string) => readonly Event[]
  readonly end: (text: string) => readonly Event[]
  /** A whole answer that runs a command with the agent's tool. */
  readonly run?: (command: string, body: any) => readonly Event[]
  /** What the tool said, if the request brings it. */
  readonly output?: (body: any) => string | null
  /** A whole answer that calls this tool. */
  readonly tool?: (name: string, input: string, body: any) => readonly Event[]
}

type Event = readonly [name: string | null, data: unknown]

export class StubModel {
  readonly url: string
  /** What it was asked, in order. */
  readonly requests: ModelRequest[] = []
  /** What it is about to say; tests may say something else. */
  answer = (users: readonly string[]): string => `seen ${users.length}: ${users.at(-1)}`
  /** How long it thinks before its first word. */
  thinkMs = 0
  readonly #server: ReturnType<typeof createServer>
  readonly #waiting: (() => void)[] = []
  /** Requests that are answered only when as many are there, or when they are let go. */
  #together = 0
  #wordsFirst = 0
  #held: (() => void)[] = []

  private constructor(server: ReturnType<typeof createServer>) {
    this.#server = server
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    server.on('request', (request, response) => {
      this.#handle(request, response).catch(() => response.destroy())
    })
  }

  static async start(): Promise<StubModel> {
    const server = createServer()
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    return new StubModel(server)
  }

  /** Resolves when so many requests have come in all. */
  async asked(count: number): Promise<void> {
    while (this.requests.length < count) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve))
    }
  }

  /** Resolves when it has been asked what the user said last. */
  async askedAbout(text: string): Promise<void> {
    while (!this.requests.some(({ users }) => users.at(-1)?.includes(text) === true)) {
      await this.asked(this.requests.length + 1)
    }
  }

  /** From now on a request gets so many words of its answer, and the rest when let go. */
  hold(words: number): void {
    this.#together = Number.POSITIVE_INFINITY
    this.#wordsFirst = words
  }

  /** The next so many requests are answered together, when all of them are there. */
  together(count: number): void {
    this.#together = count
  }

  letGo(): void {
    this.#together = 0
    this.#wordsFirst = 0
    for (const release of this.#held.splice(0)) release()
  }

  async close(): Promise<void> {
    this.letGo()
    this.#server.closeAllConnections()
    await new Promise((resolve) => this.#server.close(resolve))
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = (request.url ?? '').replace(/\?.*/, '')
    const protocol = request.method === 'POST' ? protocolOf(path) : null
    const body = await readBody(request)
    if (protocol === null) return sendJson(response, extra(path))
    const users = protocol.users(body)
    const { model, system, messages } = body
    this.requests.push({ path, users, model, system: JSON.stringify(system ?? ''), messages })
    for (const tell of this.#waiting.splice(0)) tell()
    const output = protocol.output?.(body) ?? null
    const call = output === null ? callIn(protocol, users.at(-1) ?? '', body) : null
    if (call === null) {
      return this.#respond(response, protocol, body, output ?? this.answer(users))
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    send(response, call)
    response.end()
  }

  async #respond(response: ServerResponse, protocol: Protocol, body: any, answer: string) {
    const words = answer.split(/(?<=\s)/)
    const isEndless = protocol.users(body).at(-1) === 'hang'
    const first = isEndless ? 1 : this.#wordsFirst
    if (this.thinkMs > 0) await sleep(this.thinkMs)
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    send(response, [...protocol.begin(body), ...words.slice(0, first).flatMap(protocol.word)])
    if (isEndless) return
    await this.#pause()
    send(response, [...words.slice(first).flatMap(protocol.word), ...protocol.end(answer)])
    response.end()
  }

  async #pause(): Promise<void> {
    if (this.#together === 0) return
    const released = new Promise<void>((resolve) => this.#held.push(resolve))
    if (this.#held.length >= this.#together) this.letGo()
    await released
  }
}

/** What a user tells the model to do, as a whole answer; null: nothing. */
function callIn(protocol: Protocol, text: string, body: any): readonly Event[] | null {
  const [, command] = /^run (.*)$/s.exec(text) ?? []
  if (command !== undefined) return protocol.run?.(command, body) ?? null
  const [, name, input] = /^tool (\w+) (\{.*\})$/s.exec(text) ?? []
  return name === undefined ? null : (protocol.tool?.(name, input ?? '{}', body) ?? null)
}

function send(response: ServerResponse, events: readonly Event[]): void {
  for (const [name, data] of events) {
    const event = name === null ? '' : `event: ${name}\n`
    response.write(`${event}data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`)
  }
}

function sendJson(response: ServerResponse, value: unknown): void {
  response.writeHead(value === null ? 404 : 200, { 'content-type': 'application/json' })
  response.end(JSON.stringify(value))
}

async function readBody(request: IncomingMessage): Promise<any> {
  let text = ''
  for await (const chunk of request) text += String(chunk)
  return text === '' ? {} : JSON.parse(text)
}

/** What agents look at besides. */
function extra(path: string): unknown {
  if (path.endsWith('/count_tokens')) return { input_tokens: 10 }
  if (path.endsWith(':countTokens')) return { totalTokens: 10 }
  if (path.endsWith('/models'))
    return { object: 'list', data: [{ id: 'stub-model', object: 'model' }] }
  return null
}

function protocolOf(path: string): Protocol | null {
  if (path.endsWith('/v1/messages')) return anthropic
  if (path.endsWith('/chat/completions')) return chat
  if (path.endsWith('/responses')) return responses
  return path.endsWith(':streamGenerateContent') ? gemini : null
}

/** What a user said; what agents say in a user's name stands between tags. */
function userTexts(messages: readonly any[], parts: (message: any) => unknown): string[] {
  return messages
    .filter(({ role }) => role === 'user')
    .map((message) => ownText(parts(message)))
    .filter((text) => text !== '')
}

function ownText(content: unknown): string {
  const texts = typeof content === 'string' ? [content] : Array.isArray(content) ? content : []
  return texts
    .map((part: any): string => (typeof part === 'string' ? part : (part.text ?? '')))
    .map((text) => text.replace(/<([\w-]+)[^>]*>[^]*?<\/\1>/g, '').trim())
    .filter((text) => text !== '')
    .join('\n')
}

const anthropic: Protocol = {
  users: ({ messages }) => userTexts(messages, ({ content }) => content),
  begin: ({ model }) => [
    anthropicEvent('message_start', {
      message: {
        // Claude Code takes messages with the same id for one.
        id: `msg_${nextId()}`,
        type: 'message',
        role: 'assistant',
        model,
        content: [],
        stop_reason: null,
        stop_sequence: null,
        usage: { input_tokens: 10, output_tokens: 1 },
      },
    }),
    anthropicEvent('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
  ],
  word: (text) => [
    anthropicEvent('content_block_delta', { index: 0, delta: { type: 'text_delta', text } }),
  ],
  end: () => [
    anthropicEvent('content_block_stop', { index: 0 }),
    anthropicEvent('message_delta', {
      delta: { stop_reason: 'end_turn', stop_sequence: null },
      usage: { output_tokens: 5 },
    }),
    anthropicEvent('message_stop', {}),
  ],
  run: (command, body) =>
    anthropicCall('Bash', JSON.stringify({ command, description: 'stub' }), body),
  tool: (name, input, body) => anthropicCall(name, input, body),
  output: ({ messages }) => {
    const answered = messages.findLastIndex(({ role }: any) => role === 'assistant')
    const latest = messages.slice(answered + 1).filter(({ role }: any) => role === 'user')
    const parts: any[] = latest.flatMap(({ content }: any) => content)
    const results = parts.filter(({ type }) => type === 'tool_result')
    const said = ownText(parts).replace(/^\[Request interrupted.*\]\n?/m, '')
    if (results.length === 0 || said !== '') return null
    return results.map(({ content }) => ownText(content)).join('; ')
  },
}

let ids = 0

function nextId(): number {
  ids += 1
  return ids
}

function anthropicCall(name: string, input: string, body: any): readonly Event[] {
  const [start] = anthropic.begin(body)
  const block = { type: 'tool_use', id: `toolu_${nextId()}`, name, input: {} }
  const delta = { type: 'input_json_delta', partial_json: input }
  return [
    ...(start === undefined ? [] : [start]),
    anthropicEvent('content_block_start', { index: 0, content_block: block }),
    anthropicEvent('content_block_delta', { index: 0, delta }),
    anthropicEvent('content_block_stop', { index: 0 }),
    anthropicEvent('message_delta', {
      delta: { stop_reason: 'tool_use', stop_sequence: null },
      usage: { output_tokens: 5 },
    }),
    anthropicEvent('message_stop', {}),
  ]
}

function anthropicEvent(type: string, data: object): Event {
  return [type, { type, ...data }]
}

const chat: Protocol = {
  users: ({ messages }) => userTexts(messages, ({ content }) => content),
  begin: () => [[null, chunk({ role: 'assistant', content: '' })]],
  word: (text) => [[null, chunk({ content: text })]],
  end: () => [
    [
      null,
      {
        ...chunk({}, 'stop'),
        usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 },
      },
    ],
    [null, '[DONE]'],
  ],
  run: (command) => chat.tool!('bash', JSON.stringify({ command, description: 'stub' }), null),
  tool: (name, input) => {
    const call = { name, arguments: input }
    const tool = { index: 0, id: `call_${nextId()}`, type: 'function', function: call }
    return [
      [null, chunk({ role: 'assistant', tool_calls: [tool] })],
      [null, chunk({}, 'tool_calls')],
      [null, '[DONE]'],
    ]
  },
  output: ({ messages }) => {
    const last = messages.at(-1)
    return last.role === 'tool' ? ownText(last.content) : null
  },
}

function chunk(delta: object, finish: string | null = null) {
  const choices = [{ index: 0, delta, finish_reason: finish }]
  return {
    id: 'chat_stub',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'stub-model',
    choices,
  }
}

const responses: Protocol = {
  users: ({ input }) =>
    typeof input === 'string' ? [input] : userTexts(input, ({ content }) => content),
  begin: () => [
    responsesEvent('response.created', { response: { id: 'resp_stub', status: 'in_progress' } }),
    responsesEvent('response.output_item.added', {
      output_index: 0,
      item: { type: 'message', id: 'item_stub', role: 'assistant', content: [] },
    }),
  ],
  word: (delta) => [
    responsesEvent('response.output_text.delta', {
      item_id: 'item_stub',
      output_index: 0,
      content_index: 0,
      delta,
    }),
  ],
  end: (text) => {
    const content = [{ type: 'output_text', text, annotations: [] }]
    const item = {
      type: 'message',
      id: 'item_stub',
      role: 'assistant',
      status: 'completed',
      content,
    }
    const usage = { input_tokens: 10, output_tokens: 5, total_tokens: 15 }
    return [
      responsesEvent('response.output_item.done', { output_index: 0, item }),
      responsesEvent('response.completed', {
        response: { id: 'resp_stub', status: 'completed', output: [item], usage },
      }),
    ]
  },
  run: (command, body) => {
    const { name, arguments: input } = shellCall(command, body)
    return responses.tool!(name ?? '', input, body)
  },
  tool: (name, input, body) => {
    const call = { call_id: `call_${body.input.length}`, name, arguments: input }
    const item = { type: 'function_call', ...call }
    const usage = { input_tokens: 10, output_tokens: 5, total_tokens: 15 }
    return [
      ...responses.begin(body).slice(0, 1),
      responsesEvent('response.output_item.done', { output_index: 0, item }),
      responsesEvent('response.completed', {
        response: { id: 'resp_stub', status: 'completed', output: [item], usage },
      }),
    ]
  },
  output: ({ input }) => {
    const last = input.at(-1)
    return last.type === 'function_call_output' ? ownText(last.output) : null
  },
}

/** Codex calls its shell by different names and arguments. */
function shellCall(command: string, { tools }: any) {
  const name = ['exec_command', 'shell_command', 'shell'].find((one) =>
    tools.some((tool: any) => tool.name === one),
  )
  const input = name === 'shell' ? ['sh', '-c', command] : command
  return {
    name,
    arguments: JSON.stringify(name === 'exec_command' ? { cmd: input } : { command: input }),
  }
}

function responsesEvent(type: string, data: object): Event {
  return [type, { type, ...data }]
}

const gemini: Protocol = {
  users: ({ contents }) => userTexts(contents, ({ parts }) => parts),
  begin: () => [],
  word: (text) => [[null, candidate(text)]],
  end: () => [
    [
      null,
      {
        ...candidate('', 'STOP'),
        usageMetadata: { promptTokenCount: 10, candidatesTokenCount: 5, totalTokenCount: 15 },
      },
    ],
  ],
  run: (command) =>
    gemini.tool!('run_shell_command', JSON.stringify({ command, description: 'stub' }), null),
  tool: (name, input) => {
    const parts = [{ functionCall: { name, args: JSON.parse(input) } }]
    const content = { role: 'model', parts }
    return [[null, { candidates: [{ index: 0, content, finishReason: 'STOP' }] }]]
  },
  output: ({ contents }) => {
    const parts: any[] = contents.at(-1).parts
    const said = parts.flatMap(({ functionResponse }) => functionResponse?.response?.output ?? [])
    return said.length === 0 ? null : said.join('; ')
  },
}

function candidate(text: string, finishReason?: string) {
  const content = { role: 'model', parts: [{ text }] }
  return { candidates: [{ index: 0, content, ...(finishReason ? { finishReason } : {}) }] }
}
