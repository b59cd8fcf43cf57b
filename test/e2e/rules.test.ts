/** Rules for permissions: what agents ask is decided before people are asked. */
import { createHash } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import type { AgentContext, AskDetail, AskOutcome, Rule } from '../../src/index.ts'
import { openTokenFile } from '../../src/server/index.ts'
import { CommandLine } from '../support/command-line.ts'
import { serve } from '../support/server.ts'

const RULES: readonly Rule[] = [
  { name: 'tests', decision: 'allow', commands: ['npm *'] },
  { name: 'no publishing', decision: 'deny', commands: ['npm publish *'], message: 'Ask Bob.' },
  { name: 'secrets', decision: 'deny', paths: ['**/.env'] },
]

let closing: () => Promise<void>
afterEach(() => closing())

/** An agent that asks for what its input says, as JSON, and answers with the outcome. */
async function open(rules: readonly Rule[] = RULES) {
  const agent = async ({ text }: { readonly text: string }, context: AgentContext) => {
    const detail = JSON.parse(text) as AskDetail
    const options = [
      'allow',
      { id: 'always', label: 'Always', grants: [{ label: 'all', data: 1 }] },
      'deny',
    ]
    const accepts = ['message', 'input'] as const
    const asked = { kind: 'permission', question: 'May I?', options, accepts, detail }
    const outcome = await context.ask(asked)
    return JSON.stringify({ outcome, grants: context.session.grants })
  }
  const server = await serve({ agents: { agent }, rules })
  closing = () => server.close()
  const { body } = await server.call('POST', '/v1/sessions', { body: { key: 'k' } })
  const path = `/v1/sessions/${body.id}`
  const turn = (detail: AskDetail) =>
    server.call('POST', `${path}/turns`, { body: { input: JSON.stringify(detail) } })
  /** The outcome that the agent was told. */
  const ask = async (detail: AskDetail): Promise<AskOutcome> => {
    const { body: done } = await turn(detail)
    return JSON.parse(done.turn.reply.text).outcome
  }
  const openAsk = async () => {
    const asks = async () => (await server.call('GET', `${path}/asks`)).body.asks
    await expect.poll(asks).toHaveLength(1)
    return (await asks())[0]
  }
  const answer = (id: string, value: unknown) =>
    server.call('POST', `${path}/asks/${id}`, { body: { answer: value } })
  const events = async () => (await server.call('GET', `${path}/events`)).body.events
  return { server, path, turn, ask, openAsk, answer, events }
}

describe('a rule', () => {
  it('allows without asking anybody, and is in the log', async () => {
    const { ask, events } = await open()
    const outcome = { outcome: 'answered', answer: 'allow', by: null, rule: 'tests' }
    expect(await ask({ command: 'npm test' })).toEqual(outcome)
    const logged = (await events()).filter(({ type }: { type: string }) => type.startsWith('ask.'))
    expect(logged).toMatchObject([
      { type: 'ask.opened', detail: { command: 'npm test' } },
      { type: 'ask.settled', outcome: 'answered', answer: 'allow', by: null, rule: 'tests' },
    ])
  })

  it('denies with its words', async () => {
    const { ask } = await open()
    const answer = { option: 'deny', message: 'Ask Bob.' }
    expect(await ask({ command: 'npm publish' })).toMatchObject({ answer, rule: 'no publishing' })
    expect(await ask({ command: 'npm test; npm publish' })).toMatchObject({ answer })
    expect(await ask({ paths: ['/w/.env'] })).toMatchObject({ rule: 'secrets' })
  })

  it('wins over a client that would answer, and over one that is not there', async () => {
    const { ask, server, path } = await open()
    await server.call('PATCH', path, { body: { settings: { onNobody: 'deny' } } })
    expect(await ask({ command: 'npm test' })).toMatchObject({ answer: 'allow' })
  })

  it('leaves the rest to people', async () => {
    const { turn, openAsk, answer } = await open()
    const asked = turn({ command: 'ls' })
    const { id, options } = await openAsk()
    expect(options.map((option: { id: string }) => option.id)).toEqual([
      ...['allow', 'deny', 'holdfast:allow_same'],
    ])
    await answer(id, 'deny')
    expect(JSON.parse((await asked).body.turn.reply.text).outcome).toMatchObject({ answer: 'deny' })
  })
})

describe('what a person allows for the session', () => {
  it('is that very request, which the agent may make again', async () => {
    const { turn, ask, openAsk, answer, server, path, events } = await open()
    const asked = turn({ command: 'ls' })
    await answer((await openAsk()).id, 'holdfast:allow_same')
    const told = JSON.parse((await asked).body.turn.reply.text)
    expect(told).toMatchObject({ outcome: { answer: 'allow' }, grants: [] })
    expect((await server.call('GET', path)).body.grants).toMatchObject([{ label: 'ls' }])
    expect(await ask({ command: 'ls' })).toMatchObject({ answer: 'allow', by: null, grant: 'ls' })
    const another = turn({ command: 'ls -l' })
    await answer((await openAsk()).id, 'deny')
    await another
    const grants = (await events()).filter(
      ({ type }: { type: string }) => type === 'session.granted',
    )
    expect(grants).toHaveLength(1)
  })

  it('does not change what a rule denies', async () => {
    const { turn, openAsk, answer } = await open()
    const asked = turn({ command: 'ls' })
    const { id } = await openAsk()
    const input = { command: 'npm publish' }
    const refused = await answer(id, { option: 'allow', input })
    expect(refused).toMatchObject({ status: 403, body: { code: 'forbidden' } })
    expect(refused.body.detail).toContain('no publishing')
    await answer(id, { option: 'allow', input: { command: 'ls -l' } })
    expect((await asked).body.turn.state).toBe('done')
  })
})

it('is asked of people where an ask has no option that allows it', async () => {
  const rules: readonly Rule[] = [{ name: 'all', decision: 'allow' }]
  const agent = async (_turn: unknown, context: AgentContext) => {
    const options = ['yes', 'no']
    const { outcome } = await context.ask({
      kind: 'permission',
      question: '?',
      options,
      timeoutMs: 0,
    })
    return outcome
  }
  const server = await serve({ agents: { agent }, rules })
  closing = () => server.close()
  const { body } = await server.call('POST', '/v1/keys/k/turns', { body: { input: 'x' } })
  expect(body.turn.reply.text).toBe('timed_out')
})

describe('holdfast rules test', () => {
  it('says what is decided, and why', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-rules-'))
    closing = () => rm(folder, { recursive: true })
    const file = join(folder, 'holdfast.config.json')
    await writeFile(file, JSON.stringify({ rules: RULES }))
    const run = async (...args: string[]) => {
      const line = new CommandLine(['rules', 'test', '--config', file, ...args])
      return { code: await line.exited, stdout: line.stdout, stderr: line.stderr }
    }
    const denied = await run('--command', 'npm publish')
    expect(denied).toMatchObject({ code: 0 })
    expect(denied.stdout).toContain('deny: by the rule "no publishing"')
    expect(denied.stdout).toMatch(/secrets +deny +paths does not match/)
    expect((await run('--command', 'ls')).stdout).toContain('ask: people are asked')
    const json = await run('--command', 'npm test', '--json')
    expect(JSON.parse(json.stdout)).toMatchObject({ decision: 'allow', rule: 'tests' })
    await writeFile(
      file,
      JSON.stringify({ rules: [{ name: 'x', decision: 'allow', commands: ['a;b'] }] }),
    )
    const wrong = await run('--command', 'ls')
    expect(wrong).toMatchObject({ code: 1 })
    expect(wrong.stderr).toContain('rules.0.commands')
  })
})

describe('a rule that says whose answers are taken', () => {
  const NAMES = ['olga', 'bob', 'eve', 'admin']

  async function guarded(rule: Partial<Rule>) {
    const rules = [{ name: 'careful', decision: 'ask', ...rule } as Rule]
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-rules-'))
    const file = join(folder, 'tokens.json')
    const tokens = NAMES.map((name) => ({
      name,
      principal: name,
      groups: name === 'bob' ? ['team'] : [],
      scopes: name === 'admin' ? ['admin'] : ['talk', 'answer', 'manage', 'edit'],
      sha256: createHash('sha256').update(`hf_secret-of-${name}`).digest('hex'),
    }))
    await writeFile(file, JSON.stringify({ version: 3, tokens }), { mode: 0o600 })
    const agent = async (_: unknown, context: AgentContext) => {
      const options = [
        { id: 'yes', label: 'Yes', means: 'allow' as const },
        { id: 'always', label: 'Always', grants: [{ label: 'all', data: 1 }] },
        { id: 'no', label: 'No', means: 'deny' as const },
      ]
      const detail = { command: 'deploy' }
      const accepts = ['input'] as const
      return JSON.stringify(
        await context.ask({ kind: 'permission', question: 'May I?', options, accepts, detail }),
      )
    }
    const source = await openTokenFile(file)
    const server = await serve({ agents: { agent }, rules, tokens: source })
    closing = async () => {
      await server.close()
      source.close()
      await rm(folder, { recursive: true })
    }
    const as = (name: string, method: string, path: string, body?: object) =>
      server.call(method, path, {
        headers: { authorization: `Bearer hf_secret-of-${name}` },
        ...(body === undefined ? {} : { body }),
      })
    const { body } = await as('olga', 'POST', '/v1/sessions', {})
    const path = `/v1/sessions/${body.id}`
    const share = (holder: string) =>
      as('olga', 'POST', `${path}/shares`, { with: holder, scopes: ['answer'] })
    const turn = as('olga', 'POST', `${path}/turns`, { input: 'go' })
    const asks = async () => (await as('olga', 'GET', `${path}/asks`)).body.asks
    await expect.poll(asks).toHaveLength(1)
    const [ask] = await asks()
    const answer = (name: string, value: unknown) =>
      as(name, 'POST', `${path}/asks/${ask.id}`, { answer: value })
    return { ask, asks, answer, share, turn, as, path }
  }

  it('takes that of the owner only', async () => {
    const { ask, answer, share, turn } = await guarded({ answeredBy: 'owner' })
    expect(ask).toMatchObject({ rule: 'careful', answeredBy: 'owner' })
    await share('bob')
    expect((await answer('bob', 'yes')).body).toMatchObject({ status: 403, code: 'forbidden' })
    expect((await answer('admin', 'yes')).body).toMatchObject({ status: 403 })
    expect((await answer('olga', 'yes')).status).toBe(200)
    expect((await turn).body.turn.reply.text).toContain('"olga"')
  })

  it('takes that of a group with which it is shared, and not that of an administrator', async () => {
    const { answer, share } = await guarded({ answeredBy: 'group' })
    await share('@team')
    expect((await answer('admin', 'yes')).status).toBe(403)
    expect((await answer('bob', 'yes')).status).toBe(200)
  })

  it('takes that of a client that drives the session only', async () => {
    const { answer } = await guarded({ answeredBy: 'driver' })
    expect((await answer('olga', 'yes')).body.code).toBe('forbidden')
  })

  it('wants two different people to give the same answer', async () => {
    const { ask, asks, answer, share, turn, as, path } = await guarded({ people: 2 })
    // What would allow more than this is not offered.
    expect(ask.options.map(({ id }: any) => id)).toEqual(['yes', 'no'])
    await share('bob')
    await share('eve')
    expect((await answer('olga', 'yes')).body.ask).toMatchObject({
      outcome: 'approved',
      missing: 1,
    })
    expect((await answer('olga', 'yes')).body.code).toBe('ask_approved')
    const edited = { option: 'yes', input: { command: 'rm' } }
    expect((await answer('bob', edited)).body.code).toBe('forbidden')
    const [waiting] = await asks()
    expect(waiting.approvals).toMatchObject([{ by: { id: 'olga' }, answer: 'yes' }])
    const { body: inbox } = await as('bob', 'GET', '/v1/asks')
    expect(inbox.asks).toMatchObject([{ id: ask.id, approvals: [{ by: { id: 'olga' } }] }])
    expect((await answer('bob', 'yes')).body.ask.outcome).toBe('answered')
    expect((await answer('eve', 'yes')).body.code).toBe('ask_settled')
    expect((await turn).body.turn.reply.text).toContain('"yes"')
    const { body: log } = await as('olga', 'GET', `${path}/events`)
    const types = log.events.map(({ type }: any) => type)
    expect(types.filter((type: string) => type.startsWith('ask.'))).toEqual([
      'ask.opened',
      'ask.approved',
      'ask.settled',
    ])
  })

  it('lets one of them deny it', async () => {
    const { answer, share, turn } = await guarded({ people: 2 })
    await share('bob')
    await answer('olga', 'yes')
    await answer('bob', 'no')
    expect((await turn).body.turn.reply.text).toContain('"no"')
  })
})
