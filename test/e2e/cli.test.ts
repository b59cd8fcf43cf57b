/** The command line, from outside: real processes, real files, real signals. */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { GUARDED, guarded } from '../support/guarded.ts'

const MAIN = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))
const children = new Set<ChildProcess>()
let folder = ''

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-cli-'))
})

afterEach(() => {
  for (const child of children) child.kill('SIGKILL')
})

afterAll(() => rmSync(folder, { recursive: true }))

describe('serve', () => {
  it('says where it listens and what to try, answers, and stops in order on SIGTERM', async () => {
    const server = await serve(['--data', join(folder, 'first')])
    const answer = await turn(server.url, 'demo', 'hello')
    expect(answer.turn.reply.text).toBe('hello')
    server.child.kill('SIGTERM')
    expect(await server.exited).toBe(0)
    expect(server.output()).toMatch(/agents echo, slow, ask\n.*try: curl -s http:\/\//)
    expect(server.output()).toMatch(/SIGTERM: draining for up to 10000 ms.*\n.*stopped\n$/)
    expect(statSync(join(folder, 'first')).mode & 0o777).toBe(0o700)
  })

  it('keeps its sessions when it is started again', async () => {
    const data = ['--data', join(folder, 'again')]
    const first = await serve(data)
    const { session } = await turn(first.url, 'kept', 'one')
    first.child.kill('SIGINT')
    expect(await first.exited).toBe(0)
    const second = await serve(data)
    expect((await turn(second.url, 'kept', 'two')).session).toBe(session)
    const transcript = await fetch(`${second.url}/v1/sessions/${session}/transcript`)
    const messages = (await transcript.text()).trimEnd().split('\n')
    expect(messages.map((line) => JSON.parse(line).text)).toEqual(['one', 'one', 'two', 'two'])
  })

  it('stops at once on a second signal', async () => {
    const server = await serve(['--store', 'memory:', '--drain-ms', '600000'])
    const running = turn(server.url, 'slow', { text: 'a b', ms: 600_000 }, { agent: 'slow' })
    running.catch(() => undefined)
    await started(server.url)
    server.child.kill('SIGTERM')
    await server.line(/draining/)
    server.child.kill('SIGTERM')
    expect(await server.exited).toBe(1)
    await expect(running).rejects.toThrow('fetch failed')
  })

  it('speaks JSON to programs, and nothing at all if it is to be quiet', async () => {
    const server = await serve(['--store', 'memory:', '--json-log'])
    const [line = ''] = server.output().split('\n')
    expect(JSON.parse(line)).toMatchObject({
      level: 'info',
      message: 'listening',
      store: 'memory:',
    })
    const port = new URL(server.url).port
    const other = await fails(['serve', '--store', 'memory:', '--quiet', '--port', port], 1)
    expect(other).toContain('is in use')
  })

  it('says in one line that its port is taken', async () => {
    const holder = createServer().listen(0, '127.0.0.1')
    await once(holder, 'listening')
    const { port } = holder.address() as AddressInfo
    const data = join(folder, 'taken')
    const said = await fails(['serve', '--port', String(port), '--data', data], 1)
    expect(said).toContain(`port ${port} is in use`)
    expect(existsSync(data)).toBe(false)
    holder.close()
  })

  it('says in one line that its folder cannot be used', async () => {
    const file = join(folder, 'file')
    writeFileSync(file, '')
    // The system's own folder, in which nobody can make another, not even root.
    for (const data of [join(file, 'below'), '/proc/none/below']) {
      const said = await fails(['serve', '--port', '0', '--data', data], 1)
      expect(said).toContain('cannot make the folder')
    }
  })

  it('says in one line that another process has the store, which goes on', async () => {
    const data = ['--data', join(folder, 'locked')]
    const server = await serve(data)
    expect(await fails(['serve', '--port', '0', ...data], 1)).toContain('is in use by another')
    expect((await turn(server.url, 'still', 'here')).turn.state).toBe('done')
  })

  it('says in one line that its store is damaged, and does not touch it', async () => {
    const file = join(folder, 'damaged.db')
    writeFileSync(file, 'this is no database'.repeat(1_000))
    const { mtimeMs, size } = statSync(file)
    const said = await fails(['serve', '--port', '0', '--store', `sqlite:${file}`], 1)
    expect(said).toContain('damaged')
    expect(statSync(file)).toMatchObject({ mtimeMs, size })
  })
})

describe('backup', () => {
  it('copies the store of a running server, and the copy can be served', async () => {
    const data = join(folder, 'source')
    const copy = join(folder, 'copy.db')
    const server = await serve(['--data', data])
    const { session } = await turn(server.url, 'saved', 'hello')
    const { code, output } = await run(['backup', copy, '--data', data])
    expect([code, output]).toEqual([0, expect.stringContaining(`${statSync(copy).size} bytes`)])
    const restored = await serve(['--store', `sqlite:${copy}`])
    expect((await turn(restored.url, 'saved', 'again')).session).toBe(session)
  })

  it('never overwrites a file, and says when there is nothing to copy', async () => {
    const file = join(folder, 'precious')
    writeFileSync(file, 'precious')
    const nowhere = ['--data', join(folder, 'nowhere')]
    expect(await fails(['backup', join(folder, 'new'), ...nowhere], 1)).toContain(
      'there is no file',
    )
    const data = join(folder, 'copied')
    await (await serve(['--data', data])).stop()
    expect(await fails(['backup', file, '--data', data], 1)).toContain('exists')
  })
})

describe('a wrong command line', () => {
  it.each([
    [[], 'holdfast --help'],
    [['srve'], 'do you mean serve?'],
    [['serve', '--prot', '1'], 'do you mean --port?'],
    [['serve', '--port', 'x'], 'from 0 to 65535'],
    [['serve', '--port'], 'argument missing'],
    [['serve', '--store', 'mysql:'], 'memory:, sqlite:FILE or postgres://'],
    [['serve', '--host', '0.0.0.0'], 'loopback'],
    [['serve', '--data', 'a', '--store', 'memory:'], 'exclude each other'],
    [['serve', '-x'], 'holdfast serve --help'],
    [['backup'], 'one FILE'],
  ])('%j is told in one line', async (args, hint) => {
    expect(await fails(args, 2)).toContain(hint)
  })

  it('is not one that asks for help or the version', async () => {
    expect((await run(['serve', '--help'])).output).toMatch(/--drain-ms N .*\(10000\)/)
    expect((await run(['backup', '--help'])).output).toContain('backup FILE')
    expect((await run(['--version'])).output).toMatch(/^\d+\.\d+\.\d+(-\w+)?\n$/)
  })
})

function start(args: readonly string[]) {
  const child = guarded(
    spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', 'pipe', 'pipe'], ...GUARDED }),
  )
  children.add(child)
  const exited = once(child, 'close').then(([code]) => {
    children.delete(child)
    return code as number | null
  })
  let output = ''
  const wanted: { readonly pattern: RegExp; readonly resolve: (line: string) => void }[] = []
  const heard = (line: string): void => {
    output += `${line}\n`
    for (const { pattern, resolve } of wanted) if (pattern.test(line)) resolve(line)
  }
  createInterface({ input: child.stdout }).on('line', heard)
  createInterface({ input: child.stderr }).on('line', heard)
  const line = (pattern: RegExp): Promise<string> =>
    Promise.race([
      new Promise<string>((resolve) => wanted.push({ pattern, resolve })),
      exited.then((code) => Promise.reject(new Error(`exited with ${code}:\n${output}`))),
    ])
  return { child, exited, output: () => output, line }
}

/** A server on a free port, once it says where it listens. */
async function serve(args: readonly string[]) {
  const server = start(['serve', '--port', '0', ...args])
  const line = await server.line(/http:\/\//)
  const [url = ''] = /http:\/\/127\.0\.0\.1:\d+/.exec(line) ?? []
  const stop = async (): Promise<number | null> => {
    server.child.kill('SIGTERM')
    return server.exited
  }
  return { ...server, url, stop }
}

async function run(args: readonly string[]) {
  const { exited, output } = start(args)
  const code = await exited
  return { code, output: output() }
}

/** What it says: one line, no stack. */
async function fails(args: readonly string[], code: number): Promise<string> {
  const result = await run(args)
  expect(result.code, result.output).toBe(code)
  expect(result.output).toMatch(/^holdfast: .*\n$/)
  return result.output
}

async function turn(url: string, key: string, input: unknown, options: object = {}) {
  const answer = await fetch(`${url}/v1/keys/${key}/turns`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ input, ...options }),
  })
  return (await answer.json()) as { session: string; turn: any }
}

/** Resolves when the first turn runs. */
async function started(url: string): Promise<void> {
  for (;;) {
    const metrics = await (await fetch(`${url}/metrics`)).text()
    if (/^holdfast_turns_started_total 1$/m.test(metrics)) return
  }
}
