import { expect, it } from 'vitest'
import { redact } from './text.ts'

it.each([
  ['API_KEY', 'sk-123456789', 'the key sk-123456789', 'the key [API_KEY]'],
  ['DATABASE', 'pg://a:p%40ss@host', 'p%40ss or p@ss', '[DATABASE] or [DATABASE]'],
  ['PROXY', 'http://a:100%@host', 'the password 100%', 'the password [PROXY]'],
  ['PLAIN', 'sk-123456789', 'sk-123456789', 'sk-123456789'],
])('the value of %s, %s, is removed from a text if it is a secret', (name, value, text, shown) => {
  expect(redact(text, { [name]: value })).toBe(shown)
})
