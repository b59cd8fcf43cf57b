import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import type { Ask } from '../client/index.ts'
import { until } from '../../test/support/gate.ts'
import { askPerson, describeAsk, readAnswer } from './prompt.ts'

const options = [
  { id: 'allow_once', label: 'Allow' },
  { id: 'deny', label: 'Deny' },
]
const ask: Ask = {
  id: 'a4',
  turn: 't2',
  kind: 'permission',
  question: 'May I?',
  options,
  deadline: 0,
  onNobody: 'wait',
}

describe('readAnswer', () => {
  it.each([
    ['allow_once', 'allow_once'],
    [' Allow ', 'allow_once'],
    ['2', 'deny'],
    ['DENY', 'deny'],
    ['3', undefined],
    ['', undefined],
    ['perhaps', undefined],
  ])('takes %j for %j', (text, answer) => {
    expect(readAnswer({ options }, text)).toBe(answer)
  })

  it('takes anything but nothing where there are no options', () => {
    expect(readAnswer({ options: null }, ' blue ')).toBe('blue')
    expect(readAnswer({ options: null }, ' ')).toBeUndefined()
  })
})

describe('a question', () => {
  it('cannot steer the terminal', () => {
    const text = describeAsk({ question: 'a\u001b[2Jb\nc', options: null })
    expect(text).toBe('? a\uFFFD[2Jb\n  c')
  })
})

describe('askPerson', () => {
  function terminal() {
    const [input, output] = [new PassThrough(), new PassThrough()]
    let shown = ''
    output.on('data', (data: Buffer) => (shown += data.toString()))
    return { input, output, onInterrupt: () => undefined, shown: () => shown }
  }

  it('asks again until the answer is one', async () => {
    const person = terminal()
    const answered = askPerson(person, ask, new AbortController().signal)
    person.input.write('perhaps\n')
    await until(() => person.shown().includes('please answer with one of the above\n> '))
    person.input.write('allow\n')
    expect(await answered).toBe('allow_once')
    expect(person.shown()).toContain('? May I?\n  1) Allow (allow_once)\n  2) Deny (deny)\n> ')
  })

  it('takes the end of the input for no answer', async () => {
    const person = terminal()
    const answered = askPerson(person, ask, new AbortController().signal)
    person.input.end()
    expect(await answered).toBeUndefined()
    expect(person.shown()).toContain('(not answered here)')
  })

  it('lets go when the question is settled elsewhere', async () => {
    const person = terminal()
    const settled = new AbortController()
    const answered = askPerson(person, ask, settled.signal)
    settled.abort()
    person.output.write('what comes next')
    expect(await answered).toBeUndefined()
    await until(() => person.shown().includes('what comes next'))
    expect(person.shown()).toMatch(/> \r?\n\(no longer asked\)\nwhat comes next/)
  })
})
