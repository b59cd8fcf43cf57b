import { describe, expect, it } from 'vitest'
import type { AskOutcome, RunnerTurn, ToolCall } from '../../core/index.ts'
import { abilitiesOf, capabilitiesOf } from './abilities.ts'
import { loadSdk } from './connection.ts'
import { promptOf } from './content.ts'
import type { AcpSettings } from './options.ts'
import { AcpSession } from './session.ts'
import { permissionAnswer, permissionQuestion } from './tools.ts'

const OPTIONS = [{ optionId: 'yes', name: 'Allow', kind: 'allow_once' as const }]

describe('a permission request', () => {
  it.each<[AskOutcome, object]>([
    [
      { outcome: 'answered', answer: 'yes', by: null },
      { outcome: 'selected', optionId: 'yes' },
    ],
    [{ outcome: 'timed_out' }, { outcome: 'cancelled' }],
    [{ outcome: 'nobody_to_ask' }, { outcome: 'cancelled' }],
    [{ outcome: 'withdrawn' }, { outcome: 'cancelled' }],
  ])('of which became %j is answered with %j', (outcome, answer) => {
    expect(permissionAnswer(outcome)).toEqual(answer)
  })

  it('has the command, its folder and the kinds of its options', () => {
    const rawInput = { command: ['ls', '-l'], cwd: '/w', description: 'to look' }
    const toolCall = { toolCallId: 'c', title: 'ls -l', kind: 'execute' as const, rawInput }
    const { detail, data } = permissionQuestion({ toolCall, options: OPTIONS }, undefined)
    const said = { command: 'ls -l', cwd: '/w', reason: 'to look' }
    expect(detail).toEqual({ tool: 'ls -l', kind: 'execute', ...said, input: rawInput })
    expect(data).toEqual({ tool: { id: 'c' }, kinds: { yes: 'allow_once' } })
  })

  it('has the diff and the paths, also those of earlier updates of the call', () => {
    const known: ToolCall = {
      ...{ id: 'c', name: 'Write', kind: 'edit', locations: [{ path: '/w/a' }] },
      diff: [{ path: '/w/a', before: null, after: 'x' }],
    }
    const asked = permissionQuestion({ toolCall: { toolCallId: 'c' }, options: OPTIONS }, known)
    const diff = [{ path: '/w/a', before: null, after: 'x' }]
    expect(asked.detail).toEqual({ tool: 'Write', kind: 'edit', paths: ['/w/a'], diff })
    const content = [{ type: 'diff' as const, path: '/w/b', oldText: 'o', newText: 'n' }]
    const later = { toolCall: { toolCallId: 'c', content }, options: OPTIONS }
    expect(permissionQuestion(later, known).detail).toMatchObject({
      diff: [{ path: '/w/b', before: 'o', after: 'n' }],
    })
  })

  it('has an address or a plan, where that is what it is about', () => {
    const asked = (rawInput: object) =>
      permissionQuestion({ toolCall: { toolCallId: 'c', rawInput }, options: OPTIONS }, undefined)
    expect(asked({ url: 'https://example.com' }).detail).toMatchObject({
      url: 'https://example.com',
    })
    expect(asked({ plan: '# Do it' }).detail).toMatchObject({ plan: '# Do it' })
  })
})

describe('an open session', () => {
  const modes = { currentModeId: 'ask', availableModes: [{ id: 'ask' }, { id: 'plan' }] }
  const requests = (session: AcpSession, settings: object) =>
    [...session.changes(settings)].map(({ method, params, done }) => {
      done()
      return [method, params]
    })

  it('is brought to the mode of each turn, and back to its own', () => {
    const session = new AcpSession('S', { modes })
    expect(requests(session, {})).toEqual([])
    const set = (modeId: string) => [['session/set_mode', { sessionId: 'S', modeId }]]
    expect(requests(session, { mode: 'plan' })).toEqual(set('plan'))
    expect(requests(session, { mode: 'plan' })).toEqual([])
    expect(requests(session, {})).toEqual(set('ask'))
  })

  it('has options in groups, which replace the older fields', () => {
    const options = [{ name: 'fast', options: [{ value: 'one' }, { value: 'two' }] }]
    const model = { id: 'm', category: 'model', type: 'select', currentValue: 'one', options }
    const models = { currentModelId: 'old', availableModels: [{ modelId: 'old' }] }
    const session = new AcpSession('S', { models, configOptions: [model] })
    expect(session.valuesOf('model')).toEqual(['one', 'two'])
    expect(requests(session, { model: 'two' })).toEqual([
      [
        'session/set_config_option',
        { sessionId: 'S', configId: 'm', type: 'select', value: 'two' },
      ],
    ])
  })

  it.each([
    [{ mode: 'other' }, 'invalid_field'],
    [{ model: 'any' }, 'setting_unsupported'],
  ])('refuses %j with %s', (settings, code) => {
    const session = new AcpSession('S', { modes })
    expect(() => requests(session, settings)).toThrow(expect.objectContaining({ code }))
  })

  it('knows what the agent tells between prompts', () => {
    const session = new AcpSession('S', { modes })
    session.update({ sessionUpdate: 'current_mode_update', currentModeId: 'plan' })
    expect(session.mode).toBe('plan')
    const availableCommands = [{ name: 'web', description: 'search', input: { hint: 'what' } }]
    session.update({ sessionUpdate: 'available_commands_update', availableCommands })
    const command = { name: 'web', description: 'search', hint: 'what' }
    expect([session.takeCommands(), session.takeCommands()]).toEqual([[command], null])
  })

  it('costs what was added since the turn before', () => {
    const session = new AcpSession('S', {})
    const cost = (amount: number) =>
      session.update({ sessionUpdate: 'usage_update', cost: { amount, currency: 'USD' } })
    expect(session.takeCost()).toBeUndefined()
    cost(0.25)
    expect(session.takeCost()).toBe(0.25)
    cost(0.75)
    expect(session.takeCost()).toBe(0.5)
  })
})

describe('what an agent can do', () => {
  const options = { command: 'x', folders: ['/w'] } as unknown as AcpSettings

  it('is what it said in the handshake, and offered with its sessions', () => {
    const abilities = abilitiesOf({
      agentCapabilities: {
        promptCapabilities: { image: true },
        sessionCapabilities: { resume: {}, fork: {} },
      },
      _meta: { steering: { supported: true } },
    })
    const known = { abilities, modes: ['default', 'bypassPermissions'], models: [] }
    expect(capabilitiesOf(known, options)).toMatchObject({
      ...{ images: true, files: false, steering: true, fork: 'head', load: true },
      ...{ settings: ['mode', 'cwd'], modes: ['default'] },
    })
  })

  it('is not known before it has run: then settings are admitted', () => {
    const known = { abilities: null, modes: [], models: [] }
    const settings = ['mode', 'model', 'instructions', 'cwd', 'directories']
    expect(capabilitiesOf(known, options)).toMatchObject({ settings, images: true, fork: null })
  })
})

describe('the input of a prompt', () => {
  const turn = (part: object) => ({ id: 't', input: 'x', text: 'x', parts: [part] }) as RunnerTurn
  const data = new TextEncoder().encode('{}')
  const image = { type: 'image', mediaType: 'image/png', data }
  const file = { type: 'file', name: 'a b.json', mediaType: 'application/json', data }

  it('has images and files where the agent takes them', () => {
    const takes = { image: true, embeddedContext: true }
    expect(promptOf(turn(image), takes)).toEqual([
      { type: 'image', mimeType: 'image/png', data: 'e30=' },
    ])
    const resource = { uri: 'file:///a%20b.json', mimeType: 'application/json', text: '{}' }
    expect(promptOf(turn(file), takes)).toEqual([{ type: 'resource', resource }])
  })

  it.each([image, file])('is refused where it does not: %j', (part) => {
    const refused = expect.objectContaining({ code: 'input_unsupported' })
    expect(() => promptOf(turn(part), {})).toThrow(refused)
  })
})

describe('the library of the protocol', () => {
  it('that is not installed is named, with how to install it', async () => {
    const missing = Object.assign(new Error("Cannot find package '@agentclientprotocol/sdk'"), {
      code: 'ERR_MODULE_NOT_FOUND',
    })
    await expect(loadSdk(() => Promise.reject(missing))).rejects.toThrow(
      /npm install @agentclientprotocol\/sdk zod/,
    )
  })

  it('that is broken is told as it is', async () => {
    const broken = new SyntaxError('unexpected token')
    await expect(loadSdk(() => Promise.reject(broken))).rejects.toBe(broken)
  })
})
