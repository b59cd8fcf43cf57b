/** What an operator may write, and what is said about what they may not. */
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Value } from '../../test/support/typebox-value.ts'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openHoldfast } from '../open.ts'
import { checkConfig, findProgram, openAgents, PRESETS, readConfig, runnersOf } from './index.ts'
import { CONFIG_SCHEMA } from './schema.ts'

let folder: string

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-config-'))
})
afterEach(() => rm(folder, { recursive: true, force: true }))

const write = (name: string, content: unknown): Promise<void> =>
  writeFile(join(folder, name), typeof content === 'string' ? content : JSON.stringify(content))

const ISSUER = { issuer: 'https://id.example', audience: 'holdfast' }

describe('a configuration', () => {
  it.each([
    [[], 'the configuration must be an object'],
    [{ browsers: { b: { egress: 'all' } } }, 'browsers.b.egress must be any, or a list of names'],
    [{ browsers: { b: { egress: [1] } } }, 'browsers.b.egress must be any, or a list of names'],
    [{ browsers: { b: { open: true } } }, 'browsers.b.open is no field; there are: egress'],
    [{ browsers: { 'a b': {} } }, 'must be the name of a --browser'],
    [{ agent: {} }, 'agent is no field; there are: agents, defaultAgent, copilotPort, browsers'],
    [{ agents: [] }, 'agents must be an object'],
    [{ agents: { 'a b': {} } }, 'agents.a b must be named with 1 to 64 letters'],
    [JSON.parse('{"agents":{"__proto__":{}}}'), 'agents.__proto__ must be named with'],
    [
      { agents: { x: { runner: 'process', command: 'x', env: { 'A=B': '' } } } },
      'agents.x.env.A=B is no name of a variable',
    ],
    [{ agents: { a: 'claude' } }, 'agents.a must be an object'],
    [{ agents: { a: {} } }, 'agents.a.runner must be one of process'],
    [{ agents: { a: { runner: 'magic' } } }, 'agents.a.runner must be one of process'],
    [{ agents: { a: { runner: 'process' } } }, 'agents.a.command is missing'],
    [
      { agents: { a: { runner: 'process', command: 7 } } },
      'agents.a.command must be a text, not empty',
    ],
    [
      { agents: { a: { runner: 'process', command: 'x', argv: [] } } },
      'agents.a.argv is no field; there are: command, args',
    ],
    [
      { agents: { a: { runner: 'process', command: 'x', args: 'y' } } },
      'agents.a.args must be a list of texts',
    ],
    [
      { agents: { a: { runner: 'process', command: 'x', env: { A: 1 } } } },
      'agents.a.env.A must be a text',
    ],
    [
      { agents: { a: { runner: 'process', command: 'x', turnMs: 0.5 } } },
      'agents.a.turnMs must be a whole number from 1 on',
    ],
    [
      { agents: { a: { runner: 'process', command: 'x', output: 'xml' } } },
      'agents.a.output must be one of claude, codex, text',
    ],
    [{ agents: { a: { preset: 'clade' } } }, 'agents.a.preset must be one of claude, codex'],
    [
      { agents: { a: { preset: 'claude', runner: 'process' } } },
      'agents.a.runner is what the preset says',
    ],
    [{ agents: { a: { preset: 'claude', args: 1 } } }, 'agents.a.args must be a list of texts'],
    [{ limits: { waitMs: -1 } }, 'limits.waitMs must be a number that is not negative'],
    [{ limits: { patience: 1 } }, 'limits.patience is no limit'],
    [{ defaultAgent: 1 }, 'defaultAgent must be a text'],
    [{ jwt: {} }, 'jwt must be'],
    [{ jwt: [{ issuer: 'https://id.example' }] }, 'jwt.0.audience is missing'],
    [{ jwt: [{ ...ISSUER, audiance: 'x' }] }, 'jwt.0.audiance is no field; there are: issuer'],
    [{ jwt: [{ ...ISSUER, algorithms: ['none'] }] }, 'jwt.0.algorithms must be a list of RS256'],
    [{ jwt: [{ ...ISSUER, algorithms: ['HS256'] }] }, 'jwt.0.algorithms must be a list of RS256'],
    [{ jwt: [{ ...ISSUER, algorithms: [] }] }, 'jwt.0.algorithms must be a list of RS256'],
    [{ jwt: [{ ...ISSUER, scopes: ['root'] }] }, 'jwt.0.scopes must be a list of watch'],
    [{ jwt: [{ ...ISSUER, scopeMap: { a: 'talk' } }] }, 'jwt.0.scopeMap.a must be a list of watch'],
    [{ jwt: [{ ...ISSUER, clockSkewMs: 600_001 }] }, 'jwt.0.clockSkewMs must be at most 600000'],
    [{ jwt: [{ ...ISSUER, claims: { sub: 'x' } }] }, 'jwt.0.claims.sub is no field'],
  ])('%j is refused: %s', (content, problem) => {
    expect(() => checkConfig(content)).toThrow(problem)
    expect(Value.Check(CONFIG_SCHEMA, content)).toBe(false)
  })

  it.each([
    [[{ ...ISSUER, issuer: 'id.example' }], 'jwt.0.issuer must be an address with https://'],
    [[{ ...ISSUER, issuer: 'http://id.example' }], 'jwt.0.issuer must be an address'],
    [[{ ...ISSUER, issuer: 'http://127.0.0.1.id.example' }], 'jwt.0.issuer must be an address'],
    [[{ ...ISSUER, issuer: 'https://me:secret@id.example' }], 'jwt.0.issuer must be an address'],
    [[{ ...ISSUER, jwks: 'http://192.0.2.1/keys' }], 'jwt.0.jwks must be an address'],
    [[ISSUER, ISSUER], 'jwt.1.issuer is there already'],
  ])('jwt %j is refused: %s', (jwt, problem) => {
    expect(() => checkConfig({ jwt })).toThrow(problem)
  })

  it.each(['https://id.example/realm/', 'http://localhost:8080', 'http://[::1]:80'])(
    'may have the issuer %s',
    (issuer) => {
      const jwt = [{ ...ISSUER, issuer }]
      expect(checkConfig({ jwt }).jwt).toEqual(jwt)
    },
  )

  it('may name its JSON Schema', () => {
    const content = { $schema: './node_modules/holdfast/config.schema.json', defaultAgent: 'echo' }
    expect(checkConfig(content).defaultAgent).toBe('echo')
  })

  it('may be a module without a limit, which JSON cannot say', () => {
    expect(checkConfig({ limits: { turnMs: Infinity } }).limits).toEqual({ turnMs: Infinity })
  })

  it('may be empty, or not be there', async () => {
    const empty = {
      agents: {},
      defaultAgent: null,
      copilotPort: null,
      browsers: {},
      limits: {},
      sharedKeys: {},
      jwt: [],
      quotas: {},
      budgets: {},
      rules: [],
      retention: {},
      webhooks: [],
    }
    expect(checkConfig({})).toEqual(empty)
    expect(await readConfig(folder)).toEqual({ file: null, base: folder, ...empty })
  })
})

describe('its file', () => {
  it('is found in the working folder, JSON first', async () => {
    await write('holdfast.config.mjs', 'export default { defaultAgent: "module" }')
    expect((await readConfig(folder)).defaultAgent).toBe('module')
    await write('holdfast.config.json', { defaultAgent: 'json' })
    expect(await readConfig(folder)).toMatchObject({
      defaultAgent: 'json',
      file: join(folder, 'holdfast.config.json'),
    })
  })

  it.each([
    ['a.json', '{', 'is no JSON'],
    ['a.json', '{"agents":{"x":{"runner":"process"}}}', 'a.json: agents.x.command is missing'],
    ['a.mjs', 'export const config = {}', 'has no default export'],
    ['a.mjs', 'throw new Error("broken")', 'cannot be loaded: broken'],
    ['a.yaml', '', 'must end in .json'],
    ['gone/a.json', null, 'cannot be read: ENOENT'],
  ])('%s with %j is refused: %s', async (name, content, problem) => {
    if (content !== null) await write(name, content)
    await expect(readConfig(folder, name)).rejects.toThrow(problem)
  })

  it('may be TypeScript where Node reads it, and says which one does where not', async () => {
    await write('holdfast.config.ts', 'export default { defaultAgent: "typed" as string }')
    const { typescript } = process.features as { typescript?: unknown }
    const reads = typescript === 'strip' || typescript === 'transform'
    const read = readConfig(folder).then(({ defaultAgent }) => defaultAgent)
    if (reads) expect(await read).toBe('typed')
    else await expect(read).rejects.toThrow('needs Node 22.18 or newer')
  })
})

describe('agents', () => {
  const open = async (content: unknown, names: readonly string[] = []) => {
    await write('holdfast.config.json', JSON.stringify(content))
    const options = { folder: join(folder, 'agents'), names }
    return runnersOf(await openAgents(await readConfig(folder), options))
  }

  it('that are programs are looked for at the start', async () => {
    const agents = { a: { runner: 'process', command: 'no-such-program-here' } }
    await expect(open({ agents })).rejects.toThrow(
      'agents.a.command names no program: no-such-program-here',
    )
    await expect(open({ agents: { a: { preset: 'claude', command: './gone' } } })).rejects.toThrow(
      'agents.a.command names no program: ./gone: install it (npm install -g @anthropic-ai/claude',
    )
  })

  it('whose session id is never reported are refused', async () => {
    const agent = { runner: 'process', command: 'node', laterArgs: ['{sessionUuid}'] }
    await expect(open({ agents: { a: agent } })).rejects.toThrow(
      'agents.a.laterArgs name {sessionUuid}, but no first turn chooses or tells one',
    )
  })

  it('may be functions in a module of the operator', async () => {
    await write('agent.mjs', 'export const shout = async ({ text }) => text.toUpperCase()')
    const agent = { runner: 'function', module: './agent.mjs' }
    const agents = await open({ agents: { a: { ...agent, export: 'shout' } } })
    const holdfast = await openHoldfast({ store: 'memory:', agents })
    expect((await (await holdfast.resolve()).turn('hello')).reply?.text).toBe('HELLO')
    await holdfast.close()
    await expect(open({ agents: { a: agent } })).rejects.toThrow(
      'agents.a.export must name an async function of ./agent.mjs, not default',
    )
    await expect(
      open({ agents: { a: { runner: 'function', module: './gone.mjs' } } }),
    ).rejects.toThrow('agents.a.module cannot be loaded')
  })

  it('may be functions in the configuration itself', async () => {
    const agent = 'async function* a({ text }) { yield text + "!" }'
    await write('holdfast.config.mjs', `export default { agents: { async: ${agent} } }`)
    const agents = runnersOf(await openAgents(await readConfig(folder), { folder, names: [] }))
    const holdfast = await openHoldfast({ store: 'memory:', agents })
    expect((await (await holdfast.resolve()).turn('hello')).reply?.text).toBe('hello!')
    await holdfast.close()
  })

  it('named besides are presets, with the operator’s own fields on top', async () => {
    const bin = join(folder, 'bin')
    await mkdir(bin)
    const program = join(bin, 'claude')
    await writeFile(program, `#!/bin/sh\nprintf '%s ' "$@"\n`)
    await chmod(program, 0o755)
    const claude = { preset: 'claude-once', command: './bin/claude', args: ['--model', 'x'] }
    const agents = await open({ agents: { claude: { ...claude, output: 'text' } } }, ['claude'])
    const holdfast = await openHoldfast({ store: 'memory:', agents })
    const session = await holdfast.resolve()
    const said = (await session.turn('hello')).reply?.text
    const { backend } = await session.state()
    expect(said).toBe(
      [...(PRESETS['claude-once']?.args ?? []), '--model x --session-id', backend].join(' '),
    )
    await holdfast.close()
  })

  it('find their program on PATH, or by a path of their own', async () => {
    const program = join(folder, 'tool')
    await writeFile(program, '')
    expect(await findProgram('tool', '/', folder)).toBe(null)
    await chmod(program, 0o755)
    expect(await findProgram('tool', '/', `/no/such/folder:${folder}`)).toBe(program)
    expect(await findProgram('./tool', folder, '')).toBe(program)
    expect(await findProgram('tool', folder, '')).toBe(null)
  })
})
