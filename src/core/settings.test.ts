import { describe, expect, it } from 'vitest'
import { HoldfastError } from './errors.ts'
import { NO_CAPABILITIES, type Runner } from './runner.ts'
import { createSession, decide, evolve } from './session.ts'
import { assertHonoured, changedSettings, checkSettings } from './settings.ts'
import type { Draft } from './events.ts'
import { LOCAL, type Session } from './state.ts'

const MOMENT = { at: 2, said: () => null, hasFollower: () => false }

function created(settings?: object): Session {
  return createSession({
    ...{ type: 'session.created', id: 's', key: null, agent: 'a', internal: false },
    ...{ reconnect: 'reopen', exclusive: false, graceMs: 0, ttlMs: null, labels: {} },
    ...{ seq: 1, at: 1, ...(settings === undefined ? {} : { settings }) },
  })
}

function folded(session: Session, ...drafts: readonly Draft[]): Session {
  return drafts.reduce(
    (state, draft) => evolve(state, { ...draft, seq: state.seq + 1, at: 2 }),
    session,
  )
}

const runner = (settings: readonly string[], check?: Runner['checkSettings']): Runner => ({
  capabilities: { ...NO_CAPABILITIES, settings: settings as never },
  run: () => {
    throw new Error('not run')
  },
  ...(check === undefined ? {} : { checkSettings: check }),
})

describe('settings', () => {
  it.each([
    [{ mode: '' }, 'settings.mode'],
    [{ model: 7 }, 'settings.model'],
    [{ instructions: 'a\0b' }, 'settings.instructions'],
    [{ instructions: 'x'.repeat(65_537) }, 'settings.instructions'],
    [{ cwd: '\ud800' }, 'settings.cwd'],
    [{ directories: 'a' }, 'settings.directories'],
    [{ directories: ['/a', ''] }, 'settings.directories.1'],
    [{ mcpServers: Array.from({ length: 33 }, () => 'a') }, 'settings.mcpServers'],
    [{ onNobody: 'hang' }, 'settings.onNobody'],
    [{ temperature: 1 }, 'settings.temperature'],
    [['mode'], 'settings'],
  ])('are refused by the name of the wrong one: %j', (change, field) => {
    const check = () => checkSettings(change as never)
    expect(check).toThrow(HoldfastError)
    expect(check).toThrow(expect.objectContaining({ code: 'invalid_field', details: { field } }))
  })

  it('are taken back by null', () => {
    const before = { mode: 'plan', model: 'm' }
    expect(changedSettings(before, { mode: null, cwd: '/a' })).toEqual({ model: 'm', cwd: '/a' })
  })

  it('are refused by an agent that cannot honour one, with those that it can', () => {
    const check = () => assertHonoured('a', runner(['model']), { model: 'm', mode: 'plan' })
    const details = { setting: 'mode', honoured: ['model'] }
    expect(check).toThrow(expect.objectContaining({ code: 'setting_unsupported', details }))
  })

  it('are checked by the agent that can', () => {
    const seen: unknown[] = []
    const taking = runner(['mode'], (settings) => void seen.push(settings))
    assertHonoured('a', taking, { mode: 'plan', onNobody: 'deny' })
    assertHonoured('a', taking, { onNobody: 'deny' })
    expect(seen).toEqual([{ mode: 'plan', onNobody: 'deny' }])
  })

  it('of a session change with an event, and only if they change', () => {
    const session = created({ model: 'm' })
    const command = { type: 'configure', settings: { mode: 'plan' }, by: LOCAL } as const
    const events = decide(session, command, MOMENT)
    const settings = { model: 'm', mode: 'plan' }
    expect(events).toEqual([{ type: 'session.configured', settings, by: LOCAL }])
    const after = folded(session, ...events)
    expect(after.settings).toEqual(settings)
    expect(decide(after, command, MOMENT)).toEqual([])
    const back = decide(after, { ...command, settings: { mode: null }, by: null }, MOMENT)
    expect(back).toEqual([{ type: 'session.configured', settings: { model: 'm' } }])
  })
})

describe('the activities of agents', () => {
  const activity = (kind: string, data: unknown) =>
    ({ type: 'turn.activity', turn: 't2', kind, data }) as const

  it('say what the plan and the commands are, and what turns have used together', () => {
    const plan = [{ content: 'look', status: 'pending' }]
    const session = folded(
      created(),
      activity('plan', { entries: plan }),
      activity('commands', { commands: [{ name: 'init' }] }),
      activity('usage', { inputTokens: 3, outputTokens: 2, costUsd: 0.5 }),
      activity('usage', { inputTokens: 4, cachedTokens: 1, outputTokens: -7, costUsd: 'much' }),
      activity('usage', null),
    )
    expect(session).toMatchObject({ plan, commands: [{ name: 'init' }] })
    const usage = { inputTokens: 7, outputTokens: 2, cachedTokens: 1, costUsd: 0.5 }
    expect(session.usage).toEqual(usage)
  })

  it('do not make the session large', () => {
    const entries = Array.from({ length: 1_000 }, () => ({ content: 'x'.repeat(100) }))
    expect(folded(created(), activity('plan', { entries })).plan).toBeNull()
  })
})
