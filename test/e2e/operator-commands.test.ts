/** `top`, `doctor`, `inspect` and `completion`, as processes of their own. */
import { spawnSync } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { builtinAgents, type Agent } from 'holdfast'
import { CommandLine, killCommands } from '../support/command-line.ts'
import { gate } from '../support/gate.ts'
import { secretOf, TokenFiles } from '../support/principals.ts'
import { serve, type TestServer } from '../support/server.ts'

const EVIL = '\u001B[2Jkey'
const held = gate()
const halting: Agent = async () => {
  await held.opened
  return ''
}

let folder = ''
let server: TestServer

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-operator-'))
  server = await serve({ agents: { ...builtinAgents, halting } })
})
afterEach(() => killCommands())
afterAll(async () => {
  held.open()
  await server.close()
  rmSync(folder, { recursive: true })
})

async function output(args: readonly string[], env: Record<string, string> = {}) {
  const command = new CommandLine(args, { env: { HOLDFAST_URL: server.url, ...env } })
  const code = await command.exited
  return { code, stdout: command.stdout, stderr: command.stderr }
}

describe('top', () => {
  it('shows the sessions and asks of now, and nothing that a terminal would obey', async () => {
    await server.post('/v1/sessions', { key: EVIL, agent: 'halting' })
    void server.holdfast.turn({ key: EVIL }, 'x')
    await expect
      .poll(async () => (await server.get('/v1/sessions?status=running')).body.sessions.length)
      .toBe(1)
    const { code, stdout } = await output(['top', '--once'])
    expect(code).toBe(0)
    expect(stdout).toMatch(/sessions {2}1 running, 0 waiting, 0 queued\n/)
    expect(stdout).toMatch(/turns\/min \d+ started/)
    expect(stdout).toMatch(/\nrunning {3}.*key {2}halting/)
    expect(stdout).not.toContain('\u001B')
    const { sessions, nodes } = JSON.parse((await output(['top', '--once', '--json'])).stdout)
    expect([sessions[0].key, nodes.length]).toEqual([EVIL, 1])
  })
})

describe('doctor', () => {
  it('finds a sound machine sound, and says how to mend what it finds', async () => {
    const data = join(folder, 'data')
    mkdirSync(data, { mode: 0o755 })
    const { code, stdout } = await output(['doctor', '--data', data, '--port', '0'])
    expect(code).toBe(0)
    expect(stdout).toMatch(/^ok +store .*holdfast\.db will be made$/m)
    expect(stdout).toMatch(/^ok +server +http:\/\/127\.0\.0\.1:\d+ runs /m)
    expect(stdout).toContain(`→ chmod go-rwx ${data}`)
  })

  it('ends with 1 and names the fault where something is bad', async () => {
    const config = join(folder, 'holdfast.config.json')
    writeFileSync(config, '{"agents": 1}')
    const args = ['doctor', '--json', '--config', config, '--url', 'http://127.0.0.1:1']
    const { code, stdout } = await output([...args, '--data', join(folder, 'none'), '--port', '0'])
    const found = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    const bad = found.filter(({ state }) => state === 'bad').map(({ check }) => check)
    expect([code, bad]).toEqual([1, ['configuration', 'agents', 'server']])
  })
})

describe('inspect', () => {
  it('hands a token over in a file that only this user can read, and removes it', async () => {
    const files = await TokenFiles.make()
    const guarded = await serve({ tokens: await files.open() })
    const env = { HOLDFAST_URL: guarded.url, HOLDFAST_TOKEN: 'wrong' }
    expect(await output(['inspect', '--print'], env)).toMatchObject({ code: 1, stdout: '' })
    const command = new CommandLine(['inspect', '--print'], {
      env: { ...env, HOLDFAST_TOKEN: secretOf('admin') },
    })
    await command.said('inspect.html\n')
    const page = fileURLToPath(command.stdout.trim())
    expect(statSync(page).mode & 0o777).toBe(0o600)
    expect(statSync(dirname(page)).mode & 0o777).toBe(0o700)
    expect(readFileSync(page, 'utf8')).toContain('/#/token/')
    expect(command.stdout).not.toContain('token/')
    command.child.kill('SIGTERM')
    await command.exited
    expect(existsSync(dirname(page))).toBe(false)
    await guarded.close()
    await files.remove()
  })

  it.runIf(process.platform === 'linux')(
    'removes the file when it is ended while the browser is started',
    async () => {
      const files = await TokenFiles.make()
      const guarded = await serve({ tokens: await files.open() })
      const asked = join(folder, 'asked')
      const opener = `#!/bin/sh\necho "$1" > ${asked}\nwhile [ -e ${asked} ]; do /bin/sleep 0.1; done\n`
      writeFileSync(join(folder, 'xdg-open'), opener, { mode: 0o755 })
      const env = { HOLDFAST_URL: guarded.url, HOLDFAST_TOKEN: secretOf('admin'), PATH: folder }
      const command = new CommandLine(['inspect'], { env })
      const address = () => (existsSync(asked) ? readFileSync(asked, 'utf8').trim() : '')
      await expect.poll(address, { timeout: 20_000 }).toMatch(/inspect\.html$/)
      const page = fileURLToPath(address())
      command.child.kill('SIGTERM')
      await command.exited
      expect(existsSync(dirname(page))).toBe(false)
      rmSync(asked)
      await guarded.close()
      await files.remove()
    },
  )

  it('opens a server without a token by its address alone', async () => {
    expect((await output(['inspect', '--print'])).stdout).toBe(`${server.url}/\n`)
  })
})

describe('completion', () => {
  it('completes commands, flags and files in bash', async () => {
    const { stdout } = await output(['completion', 'bash'])
    const complete = (line: string): string[] => {
      const words = line.split(' ').map((word) => `'${word}'`)
      const script = `${stdout}
        COMP_WORDS=(${words.join(' ')}); COMP_CWORD=${words.length - 1}; _holdfast
        printf '%s\\n' "\${COMPREPLY[@]}"`
      return spawnSync('bash', ['-c', script], { encoding: 'utf8' }).stdout.trim().split('\n')
    }
    expect(complete('holdfast ver')).toEqual(['verify'])
    expect(complete('holdfast top --int')).toEqual(['--interval'])
    expect(complete(`holdfast top --token-file ${folder}/da`)).toEqual([join(folder, 'data')])
  })

  it('is made for zsh and fish too, and for no other shell', async () => {
    expect((await output(['completion', 'zsh'])).stdout).toContain(
      "'--interval=[how often it is read]",
    )
    expect((await output(['completion', 'fish'])).stdout).toContain('-l interval -x')
    expect((await output(['completion', 'csh'])).code).toBe(2)
    expect((await output(['completion', 'constructor'])).code).toBe(2)
  })
})
