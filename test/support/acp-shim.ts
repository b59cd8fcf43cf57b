/** `holdfast acp` as an editor has it: as a process, or in this one; with a stock client on it. */
import { spawn, type ChildProcess } from 'node:child_process'
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { PassThrough, Readable, Writable } from 'node:stream'
import { ndJsonStream } from '@agentclientprotocol/sdk'
import { AcpShim } from '../../src/cli/acp-shim.ts'
import { StockClient, type ClientAnswers } from './acp-client.ts'
import { GUARDED, guarded } from './guarded.ts'
import { CLI } from './repository.ts'

export class ShimProcess {
  readonly child: ChildProcess
  readonly client: StockClient
  readonly exited: Promise<number | null>
  stderr = ''

  constructor(url: string, flags: readonly string[], env: NodeJS.ProcessEnv = {}) {
    const args = [CLI, 'acp', '--url', url, ...flags]
    const options = { stdio: ['pipe', 'pipe', 'pipe'] as const, ...GUARDED }
    const child = guarded(
      spawn(process.execPath, args, { ...options, env: { ...process.env, ...env }, stdio: 'pipe' }),
    )
    this.child = child
    child.stderr?.on('data', (data: Buffer) => (this.stderr += data.toString()))
    this.exited = new Promise((resolve) => child.once('close', resolve))
    this.client = stockClient(child.stdin, child.stdout)
  }

  /** As an editor ends it. */
  async close(): Promise<number | null> {
    this.client.close()
    this.child.stdin?.end()
    return this.exited
  }
}

/** In this process: for many connections that are lost. */
export function shimHere(
  url: string,
  answers: ClientAnswers = {},
): { client: StockClient; close: () => Promise<void> } {
  const [input, output] = [new PassThrough(), new PassThrough()]
  const shim = new AcpShim({
    ...{
      url: `${url.replace('http', 'ws')}/acp`,
      token: null,
      hasKey: false,
      note: () => undefined,
    },
    input,
    output,
  })
  const running = shim.run()
  const close = async (): Promise<void> => {
    input.end()
    await running
    output.end()
  }
  return { client: stockClient(input, output, answers), close }
}

function stockClient(input: Writable, output: Readable, answers: ClientAnswers = {}): StockClient {
  const writable = Writable.toWeb(input) as WritableStream<Uint8Array>
  const readable = Readable.toWeb(output) as ReadableStream<Uint8Array>
  return new StockClient(ndJsonStream(writable, readable), undefined, answers)
}

/** A TCP proxy that cuts each connection at a byte of its own choice. */
export class ByteCutter {
  cuts = 0
  /** Nothing of the client arrives any more. */
  isDeaf = false
  /** How many bytes the next connection may carry, both ways together. */
  readonly #budget: () => number
  readonly #server: Server
  readonly #open = new Set<Socket>()

  constructor(port: number, budget: () => number) {
    this.#budget = budget
    this.#server = createServer((near) => {
      let left = this.#budget()
      const far = connect(port, '127.0.0.1')
      const end = (): void => {
        near.destroy()
        far.destroy()
      }
      const carry = (from: Socket, to: Socket): void => {
        this.#open.add(from)
        from.on('error', () => undefined)
        from.on('close', () => {
          this.#open.delete(from)
          end()
        })
        from.on('data', (data: Buffer) => {
          if (left <= 0 || (this.isDeaf && from === near)) return
          const part = data.subarray(0, left)
          left -= part.length
          to.write(part)
          if (left > 0) return
          this.cuts += 1
          // What was carried arrives.
          setImmediate(end)
        })
      }
      carry(near, far)
      carry(far, near)
    })
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve))
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** Cuts what is open now. */
  cut(): void {
    for (const socket of this.#open) socket.destroy()
  }

  async close(): Promise<void> {
    this.cut()
    await new Promise((resolve) => this.#server.close(resolve))
  }
}
