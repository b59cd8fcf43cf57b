import { describe, expect, it } from 'vitest'
import {
  choice,
  number,
  parseArguments,
  readFlags,
  repeated,
  text,
  toggle,
  UsageError,
} from './command.ts'

const TABLE = {
  port: number('N', 'the port').between(0, 65_535).or(7420),
  state: choice('STATE', 'the state', ['open', 'closed']),
  host: repeated('NAME', 'a host'),
  json: toggle('as JSON'),
  file: text('FILE', 'the file').required(),
}

const read = (...args: string[]) => readFlags(TABLE, parseArguments(TABLE, args))

describe('flags', () => {
  it('have the values of the command line, or their defaults', () => {
    expect(read('--file', 'a')).toEqual({
      port: 7420,
      state: null,
      host: [],
      json: false,
      file: 'a',
    })
    const args = ['--file=a', '--file', 'b', '--host', 'x', '--host', 'y', '--json', '--port', '0']
    expect(read(...args, '--state', 'open')).toEqual({
      port: 0,
      state: 'open',
      host: ['x', 'y'],
      json: true,
      file: 'b',
    })
  })

  it.each([
    [[], '--file FILE is required'],
    [['--file', ''], '--file must not be empty'],
    [
      ['--file', 'a', '--port', '65536'],
      '--port must be a whole number from 0 to 65535, not 65536',
    ],
    [['--file', 'a', '--port', '1e3'], '--port must be a whole number'],
    [['--file', 'a', '--state', 'ajar'], '--state must be open or closed, not ajar'],
    [['--fiel', 'a'], 'there is no flag --fiel: do you mean --file?'],
    [['--unlike', 'a'], 'there is no flag --unlike'],
    [['--json=yes', '--file', 'a'], 'does not take an argument'],
  ])('%j are refused in one line', (args, problem) => {
    expect(() => read(...args)).toThrow(UsageError)
    expect(() => read(...args)).toThrow(problem)
  })

  it('end at --, after which there are only words', () => {
    expect(parseArguments(TABLE, ['a', '--', '--unlike']).words).toEqual(['a', '--unlike'])
  })
})
