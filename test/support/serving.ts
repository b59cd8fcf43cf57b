/** A real server for a test: Holdfast on a store, behind HTTP on a free port of the loopback. */
import { openHoldfast, type Holdfast, type OpenOptions } from 'holdfast'
import { startServer, type ServerOptions } from 'holdfast/server'
import { fetchDescribed } from './described.ts'
import { openUnderTest, startUnderTest } from './nodes-under-test.ts'
import { storeUnderTest } from './store-under-test.ts'

export type Serving = {
  readonly holdfast: Holdfast
  readonly url: string
  post(path: string, body: unknown, headers?: Record<string, string>): Promise<Answer>
  get(path: string): Promise<Answer>
  delete(path: string): Promise<Answer>
  close(): Promise<void>
}

export type Answer = { readonly status: number; readonly headers: Headers; readonly body: any }

export async function serve({
  connectLimits = {},
  ...options
}: Partial<OpenOptions> & Pick<ServerOptions, 'connectLimits'> = {}): Promise<Serving> {
  const holdfast = await openUnderTest(openHoldfast, {
    store: storeUnderTest('memory:'),
    ...options,
  })
  const server = await startUnderTest(startServer, { holdfast, port: 0, connectLimits })
  const call = async (path: string, init: RequestInit): Promise<Answer> => {
    const response = await fetchDescribed(`${server.url}${path}`, init)
    const text = await response.text()
    const json = response.headers.get('content-type')?.includes('json') === true
    const parse = json && !response.headers.get('content-type')?.includes('jsonl')
    return {
      status: response.status,
      headers: response.headers,
      body: parse ? JSON.parse(text) : text,
    }
  }
  return {
    holdfast,
    get url() {
      return server.url
    },
    post: (path, body, headers = {}) =>
      call(path, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
      }),
    get: (path) => call(path, {}),
    delete: (path) => call(path, { method: 'DELETE' }),
    close: () => server.close({ closeHoldfast: true }),
  }
}

/** The lines of a JSON Lines text. */
export function lines(text: string): any[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as unknown)
}
