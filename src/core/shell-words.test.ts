import { spawnSync } from 'node:child_process'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { commandsIn, simpleCommand } from './shell-words.ts'

describe('one simple command', () => {
  it.each<[string, readonly string[]]>([
    ['npm test', ['npm', 'test']],
    ['  git   log --oneline -n 5\n', ['git', 'log', '--oneline', '-n', '5']],
    [`git commit -m 'a; b && c'`, ['git', 'commit', '-m', 'a; b && c']],
    [`echo "it's"`, ['echo', "it's"]],
    [`a''b"c"'d e'`, ['abcd e']],
    ["printf ''", ['printf', '']],
    ['ls /tmp/ä/文', ['ls', '/tmp/ä/文']],
  ])('is read as its words: %s', (line, words) => {
    expect(simpleCommand(line)).toEqual(words)
  })

  it.each([
    ...['', ' ', 'a; b', 'a && b', 'a || b', 'a | b', 'a & b', 'a\nb', 'a\rb', '(a)', '{ a; }'],
    ...['a $(b)', 'a `b`', 'a $b', 'a "$b"', 'a "`b`"', 'a > b', 'a < b', 'a <(b)', "a $'b'"],
    ...[
      'a *',
      'a ?',
      'a [b]',
      'a {b,c}',
      'a ~',
      '~/a',
      'a \\b',
      'a "\\b"',
      'a "!b"',
      '! a',
      'a #b',
    ],
    ...[
      'A=b c',
      'A+=b c',
      'A[1]=b c',
      "''",
      'a =b',
      'a "b',
      "a 'b",
      'a\u00a0b',
      'a\u2028b',
      'a\u0000b',
    ],
    ...['a\u200bb', 'a ^b^c', "a 'b\nc'"],
  ])('is nothing that may be more: %j', (line) => {
    expect(simpleCommand(line)).toBeNull()
  })

  it('has the words that bash would run, whatever the line is', () => {
    const pieces = [
      'a',
      'b',
      ' ',
      '  ',
      "'",
      '"',
      '=',
      '-',
      '/',
      ';',
      '&',
      '|',
      '$',
      '`',
      '\\',
      '*',
    ]
    const more = [
      '?',
      '[',
      ']',
      '{',
      '}',
      '~',
      '!',
      '#',
      '<',
      '>',
      '(',
      ')',
      '\n',
      '\t',
      ',',
      ':',
      '^',
      '%',
      'ä',
    ]
    const line = fc.array(fc.constantFrom(...pieces, ...more), { maxLength: 12 })
    const lines = fc
      .sample(line, 20_000)
      .map((some) => `x${some.join('')}`)
      .filter((text) => simpleCommand(text) !== null)
    expect(lines.length).toBeGreaterThan(500)
    // All in one bash: each line is read by `eval`, and runs a function that prints its words.
    const script = lines.map((text) => `eval ${quoted(`p ${text}`)}; echo`).join('\n')
    const { stdout, status, stderr } = spawnSync('bash', ['--norc', '-s'], {
      input: `cd /; p() { printf '%s\\001' "$@"; }\n${script}\n`,
      encoding: 'utf8',
    })
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
    const read = lines.map((text) =>
      simpleCommand(text)!
        .map((word) => `${word}\u0001`)
        .join(''),
    )
    expect(stdout.split('\n').slice(0, -1)).toEqual(read)
  })
})

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`

describe('the commands of a line', () => {
  it.each<[string, readonly string[]]>([
    ['a b; c d', ['a b', 'c d']],
    ['a && (b || c) | d &', ['a', 'b', 'c', 'd']],
    ['echo $(rm -rf x)', ['echo', 'rm -rf x']],
    ['echo `rm -rf x`', ['echo', 'rm -rf x']],
    [`bash -c 'rm -rf x; ls'`, ['bash -c rm -rf x; ls', 'rm -rf x', 'ls']],
    [`echo "$(rm -rf 'x y')"`, [`echo $(rm -rf 'x y')`, 'rm -rf x y']],
    [`r'm' -rf x`, ['rm -rf x']],
    ['r\\m -rf x', ['rm -rf x']],
    ['rm \\\n-rf x', ['rm -rf x']],
    ['a > rm', ['a', 'rm']],
    [`sh -c "sh -c 'rm x'"`, [`sh -c sh -c 'rm x'`, 'sh -c rm x', 'rm x']],
  ])('are all found: %s', (line, commands) => {
    expect(commandsIn(line).map((words) => words.join(' '))).toEqual(
      expect.arrayContaining([...commands]),
    )
  })

  it('are found in any text, in little time', () => {
    const deep = '"'.repeat(5_000) + "'".repeat(5_000) + '$('.repeat(20_000)
    expect(commandsIn(deep).length).toBeLessThanOrEqual(1_000)
    fc.assert(fc.property(fc.string({ unit: 'binary' }), (line) => Array.isArray(commandsIn(line))))
  })
})
