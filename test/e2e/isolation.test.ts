/**
 * Escapes that real processes try: an agent reads what its turn names, in bubblewrap, as another
 * user only, and without any isolation, which is the control that shows that there was something to
 * read.
 */
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  chmodSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { asNobody, isRoot, sandboxed } from '../support/isolation.ts'
import { CLI } from '../support/repository.ts'
import { ServerProcess } from '../support/server-process.ts'

const ALICE = 'hf_secret-of-alice'
const BOB = 'hf_secret-of-bob'
const IN_ENVIRONMENT = 'secret-of-the-servers-environment'
const IN_DESCRIPTOR = 'secret-of-an-inherited-descriptor'
const NOTE = "note-of-another-session's-agent"

/** Does what the turn says, and answers with JSON. */
const AGENT = `
  import { openSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs'
  const links = (folder) => readdirSync(folder).map((name) => {
    try { return name + ' ' + readlinkSync(folder + '/' + name) } catch { return name + ' closed' }
  })
  const ACTIONS = {
    read: (path) => readFileSync(path, 'latin1'),
    list: (path) => readdirSync(path),
    open: (path) => openSync(path, 'r'),
    write: (path) => writeFileSync(path, ${JSON.stringify(NOTE)}),
    call: async (url) => (await fetch(url)).status,
    pwd: () => process.cwd(),
    self: () => ({
      args: readFileSync('/proc/self/cmdline', 'latin1'),
      env: readFileSync('/proc/self/environ', 'latin1'),
      fds: links('/proc/self/fd'),
    }),
  }
  const [name, argument] = JSON.parse(readFileSync(0, 'utf8'))
  try {
    console.log(JSON.stringify({ done: await ACTIONS[name](argument) }))
  } catch (error) {
    console.log(JSON.stringify({ refused: error.cause?.code ?? error.code ?? error.message }))
  }
`

type Outcome = { readonly done?: any; readonly refused?: string }

const onLinux = describe.runIf(process.platform === 'linux')

let folder: string
let data: string
let tokens: string
let server: ServerProcess

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex')

function writeTokens(file: string, principals: Readonly<Record<string, string>>): void {
  const entries = Object.entries(principals).map(([principal, token]) => {
    return { name: principal, sha256: sha256(token), scopes: ['talk'], principal }
  })
  writeFileSync(file, JSON.stringify({ version: 3, tokens: entries }), { mode: 0o600 })
}

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-isolation-'))
  // Other users have to reach the program and the data folder.
  chmodSync(folder, 0o755)
  data = join(folder, 'data')
  tokens = join(folder, 'tokens.json')
  writeTokens(tokens, { alice: ALICE, bob: BOB })
  const program = join(folder, 'agent.mjs')
  writeFileSync(program, AGENT)
  const agent = { runner: 'process', command: process.execPath, args: [program] }
  const config = join(folder, 'config.json')
  const agents = {
    sandboxed: { ...agent, ...sandboxed(program) },
    offline: { ...agent, ...sandboxed(program), network: false },
    ...(isRoot ? { user: { ...agent, ...asNobody } } : {}),
    bare: agent,
  }
  writeFileSync(config, JSON.stringify({ agents }))
  const secret = join(folder, 'secret')
  writeFileSync(secret, IN_DESCRIPTOR)
  server = await ServerProcess.start({
    data,
    // Node closes low descriptors in its children by itself.
    under: ['/bin/bash', '-c', `exec 200<'${secret}'; exec "$@"`, 'bash'],
    flags: ['--config', config, '--tokens', tokens, '--allow-unisolated-agents'],
    env: { ...process.env, HOLDFAST_TOKEN: IN_ENVIRONMENT },
  })
})
afterAll(async () => {
  await server.stop()
  rmSync(folder, { recursive: true, force: true })
})

/** What became of it in a session of this agent. */
async function attempt(agent: string, action: readonly string[], key = agent): Promise<Outcome> {
  const body = { agent, input: JSON.stringify(action) }
  const headers = { authorization: `Bearer ${ALICE}` }
  const answer = await server.post(`/v1/keys/${key}/turns`, body, headers)
  expect(answer.body).toMatchObject({ turn: { state: 'done' } })
  return JSON.parse(answer.body.turn.reply.text) as Outcome
}

/** Where an agent of another session has left a note. */
async function notedElsewhere(agent: string): Promise<string> {
  const { done } = await attempt(agent, ['pwd'], `${agent}-other`)
  const note = join(done as string, 'note')
  expect(await attempt(agent, ['write', note], `${agent}-other`)).toEqual({})
  return note
}

const REFUSED = { refused: expect.stringMatching(/^(ENOENT|EACCES|EPERM)$/) as unknown }
const isolated = ['sandboxed', 'offline']

onLinux('what an agent may read', () => {
  /** What is read on the machine, and how. */
  const secrets: Readonly<Record<string, () => readonly [string, string]>> = {
    'the database': () => ['read', join(data, 'holdfast.db')],
    'the tokens file': () => ['read', tokens],
    "the server's environment": () => ['read', `/proc/${server.pid}/environ`],
    "the server's descriptors": () => ['list', `/proc/${server.pid}/fd`],
    "the server's view of the disk": () => ['list', `/proc/${server.pid}/root${data}`],
    // Other systems than those without Yama protect it by themselves from a user's own processes.
    ...(isRoot ? { "the server's memory": () => ['open', `/proc/${server.pid}/mem`] } : {}),
  }

  describe.each(Object.entries(secrets))('of %s', (_, secret) => {
    it.each(isolated)('is nothing in %s', async (agent) => {
      expect(await attempt(agent, secret())).toEqual(REFUSED)
    })

    it.runIf(isRoot)('is nothing as another user', async () => {
      expect(await attempt('user', secret())).toEqual(REFUSED)
    })

    it('is all of it without isolation', async () => {
      expect(await attempt('bare', secret())).toHaveProperty('done')
    })
  })

  it.each(isolated)("is nothing of another session's folder in %s", async (agent) => {
    const note = await notedElsewhere(agent)
    expect(readFileSync(note, 'utf8')).toBe(NOTE)
    expect(await attempt(agent, ['read', note])).toEqual(REFUSED)
    expect(await attempt(agent, ['write', note])).toEqual(REFUSED)
  })

  it("is another session's folder as another user, and without isolation", async () => {
    for (const agent of isRoot ? ['user', 'bare'] : ['bare']) {
      const note = await notedElsewhere(agent)
      expect(await attempt(agent, ['read', note])).toEqual({ done: NOTE })
    }
  })

  it('is its own folder and home beside no other', async () => {
    const { done: own } = await attempt('sandboxed', ['pwd'])
    const name = basename(own as string)
    expect(await attempt('sandboxed', ['list', data])).toEqual({ done: ['agents'] })
    const names = await attempt('sandboxed', ['list', join(data, 'agents')])
    expect(names).toEqual({ done: [name, `${name}.home`] })
  })

  it('is its own folder and home, which it keeps', async () => {
    const { done: own } = await attempt('sandboxed', ['pwd'])
    for (const place of [own as string, `${own}.home`]) {
      expect(await attempt('sandboxed', ['write', join(place, 'kept')])).toEqual({})
      expect(await attempt('sandboxed', ['read', join(place, 'kept')])).toEqual({ done: NOTE })
    }
    expect(await attempt('sandboxed', ['write', '/usr/kept'])).toEqual({ refused: 'EROFS' })
    expect(await attempt('sandboxed', ['write', '/tmp/kept'])).toEqual({})
    expect(readdirSync('/tmp')).not.toContain('kept')
  })

  it('is no other process', async () => {
    const { done } = await attempt('sandboxed', ['list', '/proc'])
    const pids = (done as string[]).map(Number).filter((pid) => pid > 0)
    expect(pids.length).toBeLessThan(5)
    expect(pids).not.toContain(server.pid)
  })
})

onLinux('of the server itself', () => {
  it('an agent reaches nothing without a token', async () => {
    const url = `${server.url}/v1/sessions`
    expect(await attempt('sandboxed', ['call', url])).toEqual({ done: 401 })
    expect(await attempt('bare', ['call', url])).toEqual({ done: 401 })
    expect(await attempt('offline', ['call', url])).toEqual({ refused: 'ECONNREFUSED' })
  })

  it('an agent reaches everything if there are no tokens', async () => {
    const open = await ServerProcess.start({ data: join(folder, 'open') })
    const url = `${open.url}/v1/sessions`
    expect(await attempt('sandboxed', ['call', url])).toEqual({ done: 200 })
    await open.stop()
  })

  it.each(['sandboxed', 'bare'])('no secret is in the process of %s', async (agent) => {
    const { done } = await attempt(agent, ['self'])
    const { args, env, fds } = done as { args: string; env: string; fds: string[] }
    for (const secret of [ALICE, BOB, sha256(ALICE), IN_ENVIRONMENT]) {
      expect(args + env).not.toContain(secret)
    }
    // Only stdio, its own look at the folder, and what Node opens by itself.
    expect(fds.filter((line) => / \//.test(line) && !/ \/(proc|dev)\//.test(line))).toEqual([])
    expect(fds.map((line) => line.split(' ')[0])).not.toContain('200')
    expect(readlinkSync(`/proc/${server.pid}/fd/200`)).toBe('/dev/null')
  })
})

onLinux('a server with several principals', () => {
  const start = (...flags: string[]): string => {
    const args = [CLI, 'serve', '--port', '0', '--data', join(folder, 'other'), ...flags]
    const { status, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', cwd: folder })
    expect(status).toBe(1)
    return stderr
  }
  const config = (agents: object): string => {
    const file = join(folder, 'other.json')
    writeFileSync(file, JSON.stringify({ agents }))
    return file
  }
  const bare = { runner: 'process', command: '/bin/sh' }

  it('does not start with an agent that is not isolated', () => {
    const said = start('--tokens', tokens, '--config', config({ bare }))
    expect(said).toMatch(/the agent bare is not isolated: it has no "isolation" or "wrap"/)
    const shared = { ...bare, ...sandboxed(), cwd: '/var' }
    expect(start('--tokens', tokens, '--config', config({ shared }))).toMatch(/share one folder/)
    const one = { ...bare, runner: 'acp', wrap: ['/usr/bin/env'], perSession: false }
    expect(start('--tokens', tokens, '--config', config({ one }))).toMatch(/share one process/)
  })

  it('does not start with such an agent if others issue its tokens', () => {
    const file = join(folder, 'jwt.json')
    const jwt = [{ issuer: 'https://id.example', audience: 'a', scopes: ['talk'] }]
    writeFileSync(file, JSON.stringify({ agents: { bare }, jwt }))
    expect(start('--config', file)).toMatch(/the agent bare is not isolated/)
  })

  it('says that its agents are not isolated when it starts, and in /ready', async () => {
    expect((await server.get('/ready')).body).toEqual({
      status: 'ready',
      warnings: ['agents_unisolated'],
    })
    const agents = isRoot ? '"user, bare"' : 'bare'
    expect(server.output.join('')).toContain(`not isolated from each other agents=${agents}
`)
  })

  it('starts and is content with agents that are isolated or run no program', async () => {
    const isolatedOnly = config({ a: { ...bare, ...sandboxed() } })
    const flags = ['--tokens', tokens, '--config', isolatedOnly]
    const content = await ServerProcess.start({ data: join(folder, 'content'), flags })
    expect((await content.get('/ready')).body).toEqual({ status: 'ready' })
    expect(content.output.join('')).not.toContain('isolated')
    await content.stop()
  })

  it('does not start with a data folder or a tokens file that others may read', () => {
    const exposed = join(folder, 'exposed.json')
    writeTokens(exposed, { alice: ALICE, bob: BOB })
    chmodSync(exposed, 0o644)
    expect(start('--tokens', exposed)).toMatch(/others may read .*: chmod 600 /)
    const open = mkdtempSync(join(folder, 'open-'))
    chmodSync(open, 0o755)
    expect(start('--tokens', tokens, '--data', open)).toMatch(/others may read .*: chmod 700 /)
  })

  it('reports the second principal that its tokens get while it runs', async () => {
    const growing = join(folder, 'growing.json')
    writeTokens(growing, { alice: ALICE })
    const flags = ['--tokens', growing, '--config', config({ bare })]
    const single = await ServerProcess.start({ data: join(folder, 'single'), flags })
    expect((await single.get('/ready')).body).toEqual({ status: 'ready' })
    writeTokens(growing, { alice: ALICE, bob: BOB })
    await expect.poll(() => single.output.join('')).toContain('not isolated from each other')
    expect((await single.get('/ready')).body.warnings).toEqual(['agents_unisolated'])
    await single.stop()
  })
})

onLinux('a server with one principal', () => {
  it('starts, and reports files that others may read', async () => {
    const open = mkdtempSync(join(folder, 'open-'))
    chmodSync(open, 0o755)
    const single = await ServerProcess.start({ data: open })
    expect(single.output.join('')).toMatch(/other users of this machine may read a file/)
    expect((await single.get('/ready')).body).toEqual({ status: 'ready' })
    await single.stop()
  })
})
