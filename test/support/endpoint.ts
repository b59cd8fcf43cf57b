/** HTTP calls to a server under test. */
export type Answer = {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  /** The JSON that it is, or the text. */
  readonly body: any
}

export type Call = {
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
}

export abstract class Endpoint {
  abstract get url(): string

  get port(): number {
    return Number(new URL(this.url).port)
  }

  async call(method: string, path: string, { body, headers = {} }: Call = {}): Promise<Answer> {
    // JSON lines are a text already.
    const isText = headers['content-type'] === 'application/jsonl'
    const json = { 'content-type': 'application/json' }
    const response = await fetch(`${this.url}${path}`, {
      method,
      headers: { ...(body === undefined ? {} : json), ...headers },
      ...(body === undefined ? {} : { body: isText ? (body as string) : JSON.stringify(body) }),
    })
    const text = await response.text()
    const isJson = /json(?!l)/.test(response.headers.get('content-type') ?? '')
    const { status } = response
    return { status, headers: response.headers, text, body: isJson ? JSON.parse(text) : text }
  }

  get(path: string): Promise<Answer> {
    return this.call('GET', path)
  }

  post(path: string, body: unknown, headers: Record<string, string> = {}): Promise<Answer> {
    return this.call('POST', path, { body, headers })
  }

  delete(path: string): Promise<Answer> {
    return this.call('DELETE', path)
  }
}
