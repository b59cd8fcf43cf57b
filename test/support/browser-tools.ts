/** Stock tools that drive browsers, as `scripts/browser-tools.mjs` has installed them. */
import { spawn, type ChildProcess } from 'node:child_process'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { GUARDED, guarded } from './guarded.ts'

const FOLDER = fileURLToPath(new URL('../../.agents/browser-tools/', import.meta.url))
const resolve = createRequire(join(FOLDER, 'package.json')).resolve

export const PROGRAMS = {
  playwrightMcp: '@playwright/mcp/cli.js',
  devtoolsMcp: 'chrome-devtools-mcp/build/src/bin/chrome-devtools-mcp.js',
  lighthouse: 'lighthouse/cli/index.js',
} as const

export function startTool(path: string, args: readonly string[]): ChildProcess {
  const program = join(FOLDER, 'node_modules', path)
  // What a tool writes where it runs stays out of the project.
  const stdio: ['pipe', 'pipe', 'pipe'] = ['pipe', 'pipe', 'pipe']
  const options = { cwd: FOLDER, stdio, ...GUARDED }
  return guarded(spawn(process.execPath, [program, ...args], options))
}

export async function importTool(name: string): Promise<any> {
  return import(pathToFileURL(resolve(name)).href)
}

/** An MCP server, over its standard input and output. */
export class McpServer {
  readonly #child: ChildProcess
  readonly #replies = new Map<number, (reply: any) => void>()
  #id = 0

  private constructor(child: ChildProcess) {
    this.#child = child
    createInterface({ input: child.stdout! }).on('line', (line) => {
      const reply = JSON.parse(line) as { id?: number }
      if (reply.id !== undefined) this.#replies.get(reply.id)?.(reply)
    })
    child.stderr?.resume()
  }

  static async start(path: string, args: readonly string[]): Promise<McpServer> {
    const server = new McpServer(startTool(path, args))
    const clientInfo = { name: 'test', version: '1' }
    await server.#ask('initialize', { protocolVersion: '2025-06-18', capabilities: {}, clientInfo })
    server.#say({ method: 'notifications/initialized' })
    return server
  }

  /** What a tool answers, as one text. */
  async call(name: string, args: object = {}): Promise<string> {
    const { result, error } = await this.#ask('tools/call', { name, arguments: args })
    const parts: { text?: string }[] = result?.content ?? []
    return error?.message ?? parts.map(({ text = '' }) => text).join('\n')
  }

  #say(message: object): void {
    this.#child.stdin?.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
  }

  #ask(method: string, params: object): Promise<any> {
    this.#id += 1
    const id = this.#id
    const replied = new Promise<any>((settle) => this.#replies.set(id, settle))
    this.#say({ id, method, params })
    return replied
  }

  async stop(): Promise<void> {
    const exited = new Promise((settle) => this.#child.once('exit', settle))
    this.#child.stdin?.end()
    this.#child.kill('SIGTERM')
    await exited
  }
}
