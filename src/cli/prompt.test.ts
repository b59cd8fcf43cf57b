import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import type { Ask } from '../client/index.ts'
import { until } from '../../test/support/gate.ts'
import {
  answerHint,
  askPerson,
  describeAsk,
  lineToEdit,
  readAnswer,
  readTypedAnswer,
} from './prompt.ts'

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

describe('other arguments', () => {
  const input = { command: 'ls \u202E' }
  const editable = { options, accepts: ['message', 'input'] as const, detail: { input } }

  it('are the JSON behind an option; with a mistake in it nothing is answered', () => {
    const answer = { option: 'allow_once', input: { command: 'rm' } }
    expect(readTypedAnswer(editable, 'allow {"command": "rm"}')).toEqual(answer)
    expect(readTypedAnswer(editable, '1 {"command": }')).toBeUndefined()
    const words = { option: 'allow_once', message: '{}' }
    expect(readTypedAnswer({ options, accepts: ['message'] }, '1 {}')).toEqual(words)
  })

  it('begin with those that were asked about, without what controls the terminal', () => {
    const line = lineToEdit(editable, ' edit ')
    expect(line).toBe(String.raw`allow_once {"command":"ls \u202e"}`)
    expect(readTypedAnswer(editable, line!)).toEqual({ option: 'allow_once', input })
    expect(lineToEdit({ options, accepts: ['message'] }, 'edit')).toBeNull()
    expect(lineToEdit({ ...editable, detail: {} }, 'edit')).toBeNull()
    expect(lineToEdit(editable, 'edit it')).toBeNull()
  })

  it('are offered to those that may edit them', () => {
    expect(answerHint(editable, true)).toContain('; edit changes the arguments)')
    expect(answerHint(editable, false)).not.toContain('edit')
    expect(answerHint({ options, accepts: ['input'] }, false)).toBeNull()
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

  it('puts the arguments there to be changed', async () => {
    const person = terminal()
    const accepts = ['input'] as const
    const editable = { ...ask, accepts, detail: { input: { n: 1 } } }
    const signal = new AbortController().signal
    const answered = askPerson({ ...person, mayEdit: true }, editable, signal)
    person.input.write('edit\n')
    await until(() => person.shown().split('\n> ').length === 2 && person.shown().endsWith('> > '))
    person.input.write('\n')
    expect(await answered).toEqual({ option: 'allow_once', input: { n: 1 } })
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
