import { describe, expect, it } from 'vitest'
import { openHoldfast, type Agent } from '../index.ts'
import type { Diagnostic } from './diagnostics.ts'
import { LIMITS, type Limits } from './limits.ts'
import { askOf, boundDetail } from './questions.ts'

const limits = LIMITS as Limits

describe('the detail of an ask', () => {
  it('is kept whole if it fits', () => {
    const detail = { tool: 'Bash', command: 'ls', input: { command: 'ls' } }
    const ask = askOf({ kind: 'permission', question: 'q', detail }, { turn: 't', at: 0, limits })
    expect(ask.detail).toEqual(detail)
  })

  it('keeps the beginnings of what is too large, and says so', () => {
    const after = 'x'.repeat(200_000)
    const detail = { tool: 'Write', diff: [{ path: '/a', before: null, after }], input: { after } }
    const ask = askOf({ kind: 'permission', question: 'q', detail }, { turn: 't', at: 0, limits })
    expect(ask.detail).toMatchObject({ tool: 'Write', truncated: true })
    expect(ask.detail?.input).toBeUndefined()
    expect(JSON.stringify(ask).length).toBeLessThanOrEqual(limits.askBytesMax)
    expect(ask.detail?.diff?.[0]).toMatchObject({ path: '/a', before: null })
  })

  it('is never larger than it may be, however it is made', () => {
    const paths = Array.from({ length: 10_000 }, (_, index) => `/${'p'.repeat(200)}${index}`)
    const detail = { tool: 't'.repeat(50_000), paths, reason: 'r'.repeat(50_000) }
    for (const charsMax of [60_000, 8_000, 600]) {
      const bounded = boundDetail(detail, charsMax)
      expect(JSON.stringify(bounded).length).toBeLessThanOrEqual(charsMax)
      expect(bounded.truncated).toBe(true)
    }
  })
})

describe('what an agent asks', () => {
  const ask = (question: object) =>
    askOf(
      { kind: 'permission', question: 'q', ...question },
      {
        turn: 't',
        at: 0,
        limits,
      },
    )
  const circle: Record<string, unknown> = {}
  circle['self'] = circle

  it.each([
    [{ detail: 'rm -rf' }, 'detail must be an object'],
    [{ detail: null }, 'detail must be an object'],
    [{ detail: { command: ['ls'] } }, 'detail.command must be a text'],
    [{ detail: { kind: 'magic' } }, 'detail.kind must be one of read, edit'],
    [{ detail: { paths: '/a' } }, 'detail.paths must be a list'],
    [{ detail: { paths: [7] } }, 'detail.paths.0 must be a text'],
    [{ detail: { diff: [{ path: '/a' }] } }, 'detail.diff.0.before must be a text'],
    [{ detail: { diff: [{ before: '', after: '' }] } }, 'detail.diff.0.path must be a text'],
    [{ detail: { diff: [null] } }, 'detail.diff.0.path must be a text'],
    [{ detail: { truncated: 'yes' } }, 'detail.truncated must be true'],
    [{ detail: { secret: 'x' } }, 'detail.secret is not known'],
    [{ detail: { input: circle } }, 'detail cannot be written as JSON'],
    [{ detail: { input: 1n } }, 'detail cannot be written as JSON'],
    [{ detail: () => 1 }, 'detail cannot be written as JSON'],
    [{ data: circle }, 'data cannot be written as JSON'],
    [{ kind: 7 }, 'kind must be a text'],
    [{ question: circle }, 'question cannot be written as JSON'],
    [{ options: 'allow' }, 'options must be a list'],
    [{ options: [{ id: 'allow' }] }, 'options.0.label must be a text'],
    [{ options: [{ id: 'a', label: 'a', grants: [{}] }] }, 'options.0.grants.0.label must be'],
    [{ accepts: ['shouting'] }, 'accepts.0 must be one of'],
    [{ timeoutMs: Number.NaN }, 'timeoutMs must be a number'],
    [{ onNobody: 'hope' }, 'onNobody must be one of wait, deny'],
  ])('is refused in words that name what is wrong: %#', (question, words) => {
    expect(() => ask(question)).toThrow(words)
  })

  it.each([
    ['a text', 'a text'],
    [null, 'null'],
    [{ a: 1 }, '{"a":1}'],
    [undefined, ''],
  ])('has a question that is a text, whatever it is: %j', (question, words) => {
    expect(ask({ question }).question).toBe(words)
  })

  it('is copied: what the agent changes later changes nothing', () => {
    const detail = { input: { command: 'ls' } }
    const asked = ask({ detail })
    detail.input.command = 'rm'
    expect(asked.detail).toEqual({ input: { command: 'ls' } })
  })
})

describe('an ask of a wrong shape', () => {
  it('is an error of its agent and a diagnostic, and leaves nothing behind', async () => {
    const diagnostics: Diagnostic[] = []
    const agent: Agent = async ({ text }, context) => {
      const detail = { command: ['ls'] } as never
      const asking = context.ask({ kind: 'permission', question: 'q', detail })
      if (text === 'fail') await asking
      return asking.then(String, (error: Error) => error.message)
    }
    const hold = await openHoldfast({
      store: 'memory:',
      agents: { agent },
      onDiagnostic: (diagnostic) => void diagnostics.push(diagnostic),
    })
    const session = await hold.resolve()
    const words = "an ask's detail.command must be a text"
    const { error } = await session.turn('fail')
    expect(error).toEqual({ code: 'runner_failed', message: words })
    expect((await session.turn('go on')).reply?.text).toBe(words)
    expect(await session.asks()).toEqual([])
    const told = diagnostics.filter(({ code }) => code === 'runner_failed')
    const facts = { reason: 'ask', session: session.id, error: words }
    expect(told.map((one) => one.facts)).toEqual([
      { ...facts, turn: 't2' },
      { ...facts, turn: 't4' },
    ])
    await hold.close()
  })
})
