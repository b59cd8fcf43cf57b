/**
 * The way to start a server in a test: Holdfast on a store, behind HTTP on a free port of the
 * loopback. `server-process.ts` starts one as a process of its own.
 */
import { randomBytes } from 'node:crypto'
import type { Holdfast, OpenOptions } from 'holdfast'
import type { HoldfastServer, ServerOptions } from 'holdfast/server'
import { Endpoint } from './endpoint.ts'
import { openUnderTest, startUnderTest } from './nodes-under-test.ts'
import { freePort } from './server-process.ts'
import { storeUnderTest } from './store-under-test.ts'

export type { Answer, Call } from './endpoint.ts'

export type TestServerOptions = Partial<OpenOptions> &
  Partial<Omit<ServerOptions, 'holdfast' | 'cluster'>> & {
    /** One of several nodes on `store`, each of which forwards to the others. */
    readonly isNode?: boolean
  }

export type CloseOptions = Parameters<HoldfastServer['close']>[0]

type Parts = { readonly holdfast: Holdfast; readonly server: HoldfastServer }

export class TestServer extends Endpoint {
  readonly holdfast: Holdfast
  readonly server: HoldfastServer

  constructor({ holdfast, server }: Parts) {
    super()
    this.holdfast = holdfast
    this.server = server
  }

  override get url(): string {
    return this.server.url
  }

  /** Closes Holdfast too, and with it the store. */
  close(options: CloseOptions = {}): Promise<void> {
    return this.server.close({ closeHoldfast: true, ...options })
  }
}

export async function serve(options: TestServerOptions = {}): Promise<TestServer> {
  return new TestServer(await startParts(options))
}

/** What all nodes of this process know each other by. */
const secret = randomBytes(32).toString('hex')

/** For helpers that add to a server. */
export async function startParts({
  isNode = false,
  ...options
}: TestServerOptions): Promise<Parts> {
  const store = options.store ?? storeUnderTest('memory:')
  const port = isNode ? await freePort() : (options.port ?? 0)
  const advertise = isNode ? { advertise: `http://127.0.0.1:${port}` } : {}
  const cluster = isNode ? { cluster: { secret } } : {}
  const holdfast = await openUnderTest({ ...options, ...advertise, store })
  try {
    const all = { ...options, ...cluster, port, holdfast }
    return { holdfast, server: await startUnderTest(all) }
  } catch (error) {
    await holdfast.close()
    throw error
  }
}

/** The lines of a JSON Lines text. */
export function lines(text: string): any[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as unknown)
}
