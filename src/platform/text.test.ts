import { expect, it } from 'vitest'
import { readLines, redact } from './text.ts'

it.each([
  ['API_KEY', 'sk-123456789', 'the key sk-123456789', 'the key [API_KEY]'],
  ['DATABASE', 'pg://a:p%40ss@host', 'p%40ss or p@ss', '[DATABASE] or [DATABASE]'],
  ['PROXY', 'http://a:100%@host', 'the password 100%', 'the password [PROXY]'],
  ['PLAIN', 'sk-123456789', 'sk-123456789', 'sk-123456789'],
])('the value of %s, %s, is removed from a text if it is a secret', (name, value, text, shown) => {
  expect(redact(text, { [name]: value })).toBe(shown)
})

it.each([
  [
    ['one\ntwo', '\nthree'],
    ['one', 'two', 'three'],
  ],
  [
    ['a\r', '\nb\rc\r', 'd'],
    ['a', 'b', 'c', 'd'],
  ],
  [
    ['in ', 'parts', ' \u2028', '\n', '\n'],
    ['in parts \u2028', ''],
  ],
  [[], []],
])('the lines of %j are %j', async (chunks, lines) => {
  const given = async function* () {
    yield* chunks
  }
  const read: string[] = []
  for await (const line of readLines(given(), 100)) read.push(line)
  expect(read).toEqual(lines)
})
