/** `holdfast serve --agent` and `--config`: which agents there are, and what is said about others. */
import { spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { ServerProcess } from '../support/server-process.ts'

const MAIN = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))

let folder: string
let server: ServerProcess | null = null

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-serve-'))
})
afterEach(async () => {
  await server?.stop()
  server = null
  rmSync(folder, { recursive: true, force: true })
})

/** Programs are looked for in the folder, and nowhere else. */
const env = (): NodeJS.ProcessEnv => ({ PATH: folder, HOME: folder })

const start = async (...flags: string[]): Promise<ServerProcess> => {
  server = await ServerProcess.start({ data: join(folder, 'data'), flags, env: env() })
  return server
}

function fails(...flags: string[]): [number | null, string] {
  const args = [MAIN, 'serve', '--port', '0', '--data', join(folder, 'data'), ...flags]
  const { status, stderr } = spawnSync(process.execPath, args, {
    cwd: folder,
    env: env(),
    encoding: 'utf8',
  })
  return [status, stderr]
}

/** A program that says what it was started with. */
function program(name: string): string {
  const file = join(folder, name)
  writeFileSync(file, `#!/bin/sh\nread -r text\nprintf '%s' "${name}: $text"\n`)
  chmodSync(file, 0o755)
  return file
}

const agentOf = async (text: string, body: object = {}): Promise<string> => {
  const response = await fetch(`${server?.url}/v1/keys/${text}/turns`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ input: text, ...body }),
  })
  const { turn } = (await response.json()) as any
  return turn.reply?.text ?? turn.error?.message
}

describe('an agent', () => {
  it('that is not known is told in one line, with the one that was probably meant', () => {
    expect(fails('--agent', 'cluade')).toEqual([
      2,
      'holdfast: there is no agent cluade: do you mean claude?\n',
    ])
    expect(fails('--agent', 'nobody')[1]).toMatch(
      /there are: claude, codex, .*, echo, slow, ask\n$/,
    )
  })

  it('whose program is not installed is told in one line, with how to install it', () => {
    expect(fails('--agent', 'claude')).toEqual([
      1,
      expect.stringMatching(
        /^holdfast: agents\.claude\.command names no program: claude: .*npm.*\n$/,
      ),
    ])
  })

  it('that is named first is the default, and the built-in ones stay', async () => {
    program('one')
    program('two')
    const agents = {
      one: { runner: 'process', command: 'one' },
      two: { runner: 'process', command: './two' },
    }
    writeFileSync(join(folder, 'my.json'), JSON.stringify({ agents }))
    const config = ['--config', join(folder, 'my.json')]
    await start(...config)
    expect(await agentOf('hello')).toBe('one: hello')
    await expect.poll(() => server?.output.join('')).toContain('agents one, two, echo, slow, ask')
    await server?.stop()
    await start(...config, '--agent', 'two', '--agent', 'echo')
    expect(await agentOf('again')).toBe('two: again')
    expect(await agentOf('back', { agent: 'one' })).toBe('one: back')
    expect(await agentOf('echoed', { agent: 'echo' })).toBe('echoed')
  })
})

describe('a configuration', () => {
  it('is found in the working folder, and what is wrong with it is told in one line', () => {
    writeFileSync(join(folder, 'holdfast.config.json'), '{"agents":{"a":{"runner":"process"}}}')
    const file = join(folder, 'holdfast.config.json')
    expect(fails()).toEqual([1, `holdfast: ${file}: agents.a.command is missing\n`])
    expect(fails('--config', 'gone.json')[1]).toContain('gone.json cannot be read: ENOENT')
  })

  it('sets limits, which flags may set otherwise', async () => {
    const file = join(folder, 'limits.json')
    writeFileSync(file, JSON.stringify({ limits: { replyCharsMax: 3, queuedTurnsMax: 0 } }))
    await start('--config', file, '--queue', '9')
    expect(await agentOf('long')).toContain('the answer is over 3 characters')
  })
})
