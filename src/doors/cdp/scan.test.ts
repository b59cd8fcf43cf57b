import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { CDP_LIMITS } from './limits.ts'
import { readCommand, scan } from './command.ts'

/** What `JSON.parse` makes of it; null: it is no command with these fields alone. */
function parsed(text: string): Record<string, any> | null {
  try {
    const value = JSON.parse(text) as Record<string, any>
    const isKnown = Object.keys(value).every((key) => FIELDS.has(key))
    return isKnown ? value : null
  } catch {
    return null
  }
}

const FIELDS = new Set(['id', 'method', 'params', 'sessionId'])

/** How often a name comes at the top, counted by a reader that sees every one of them. */
function topNames(text: string): string[] {
  const names: string[] = []
  const at = (key: string, value: unknown): unknown => (names.push(key), value)
  JSON.parse(text, at)
  return names
}

/** Invariant 1: whatever is found is what every reader of JSON finds. */
function agrees(text: string): void {
  const found = scan(Buffer.from(text))
  if (found === null) return
  const value = parsed(text)
  expect(value, text).not.toBeNull()
  const { id, method, sessionId, params } = value ?? {}
  expect(found).toMatchObject({ id, method, sessionId })
  if (found.unfit !== null) return
  const pasted =
    found.params === null ? undefined : (JSON.parse(found.params.toString()) as unknown)
  expect(pasted).toEqual(params)
}

const gap = fc.constantFrom('', ' ', '\n', '\t\r ')
const json = fc.json({ maxDepth: 5 }).map((value) => `{"v":${value}}`)
const field = fc.oneof(
  fc.integer({ min: -2_147_483_648, max: 2_147_483_647 }).map((id) => `"id":${id}`),
  fc.stringMatching(/^[A-Za-z.]{1,20}$/).map((method) => `"method":"${method}"`),
  fc.stringMatching(/^[A-F0-9]{32}$/).map((id) => `"sessionId":"${id}"`),
  json.map((params) => `"params":${params}`),
)
const message = fc
  .tuple(fc.array(field, { minLength: 1, maxLength: 5 }), gap)
  .map(([fields, space]) => `${space}{${space}${fields.join(`${space},${space}`)}${space}}${space}`)

/** Bytes that could turn one message into another. */
const splinter = fc.constantFrom(
  ...['"', '\\', '{', '}', '[', ']', ',', ':', '/*', '*/', '//', '\\"', '\\u0022', '\0', '\u0001'],
  ...['0', '-', '.', 'e', '1e3', 'null', 'true', '\uFEFF', '\u2028', '"id":2,', '"method":"B"'],
)

describe('a message that is only looked through', () => {
  it('is what JSON.parse makes of it, or is left to JSON.parse', () => {
    fc.assert(fc.property(message, agrees), { numRuns: 2_000 })
  })

  it('is so too when it is broken anywhere', () => {
    const broken = fc
      .tuple(message, fc.array(fc.tuple(fc.nat(), fc.nat(3), splinter), { maxLength: 3 }))
      .map(([text, breaks]) =>
        breaks.reduce((whole, [place, cut, piece]) => {
          const at = place % (whole.length + 1)
          return whole.slice(0, at) + piece + whole.slice(at + cut)
        }, text),
      )
    fc.assert(fc.property(broken, agrees), { numRuns: 20_000 })
  })

  it.each([
    ['as Puppeteer says it', '{"method":"A.b","params":{"x":[1,-2.5e+3,null]},"id":7}'],
    ['as Playwright says it', '{"id":7,"method":"A.b","params":{"x":"\\u00e9ü"},"sessionId":"C"}'],
    ['with space', ' { "id" : 7 ,\n"method" : "A.b" , "params" : { } } '],
    ['without params', '{"id":-1,"method":"A.b"}'],
  ])('is one %s', (_, text) => {
    expect(scan(Buffer.from(text))).not.toBeNull()
    agrees(text)
  })

  it('may have long texts, with anything special in them at any place', () => {
    const special = fc.constantFrom(
      '"',
      '\\',
      '\n',
      '\u001f',
      '\\n',
      '\\u00e9',
      'é',
      '\u2028',
      '😀',
    )
    const long = fc.tuple(fc.nat(300), special, fc.nat(300), fc.nat(8))
    fc.assert(
      fc.property(long, ([before, piece, after, shift]) => {
        const text = `${'x'.repeat(before)}${piece}${'y'.repeat(after)}`
        const whole = `${' '.repeat(shift)}{"id":1,"method":"A.b","params":{"t":"${text}"}}`
        agrees(whole)
        expect(scan(Buffer.from(whole)) === null).toBe(parsed(whole) === null)
        const cut = Buffer.from(`${'z'.repeat(shift)}${whole}`).subarray(shift)
        expect(scan(cut) === null).toBe(parsed(whole) === null)
      }),
      { numRuns: 3_000 },
    )
  })

  it('may end anywhere', () => {
    const whole =
      '{"id":7,"method":"A.b","params":{"x":[true,null,-1.5e+3,"\\u00e9"]},"sessionId":"C"}'
    for (let end = 0; end < whole.length; end += 1) {
      expect(scan(Buffer.from(whole.slice(0, end)))).toBeNull()
    }
  })

  it.each([
    ['a name twice', '{"id":1,"method":"A.b","method":"C.d"}'],
    ['params twice', '{"id":1,"method":"A.b","params":{},"params":{"x":1}}'],
    ['a name with an escape', '{"id":1,"m\\u0065thod":"A.b"}'],
    ['a method with an escape', '{"id":1,"method":"A\\u002eb"}'],
    ['another name', '{"id":1,"method":"A.b","extra":1}'],
    ['a comment', '{"id":1,"method":"A.b"/*"*/,"params":{}}'],
    ['a comma too many', '{"id":1,"method":"A.b",}'],
    ['an id that is no integer', '{"id":1.0,"method":"A.b"}'],
    ['an id that is too large', '{"id":2147483648,"method":"A.b"}'],
    ['an id with a zero before it', '{"id":01,"method":"A.b"}'],
    ['an id that is only a sign', '{"id":-,"method":"A.b"}'],
    ['minus nothing', '{"id":-0,"method":"A.b"}'],
    ['a session that is no text', '{"id":1,"method":"A.b","sessionId":null}'],
    ['params that are a list', '{"id":1,"method":"A.b","params":[]}'],
    ['something after it', '{"id":1,"method":"A.b"}{}'],
    ['a text with a line break', '{"id":1,"method":"A.b","params":{"x":"\n"}}'],
    ['an unknown escape', '{"id":1,"method":"A.b","params":{"x":"\\q"}}'],
    ['half an escape', '{"id":1,"method":"A.b","params":{"x":"\\u12"}}'],
    ['a number that is none', '{"id":1,"method":"A.b","params":{"x":01}}'],
    ['an end that is missing', '{"id":1,"method":"A.b","params":{"x":"y'],
    ['half a word', '{"id":1,"method":"A.b","params":{"x":tr'],
    ['nothing at all', ''],
  ])('is not one with %s', (_, text) => {
    expect(scan(Buffer.from(text))).toBeNull()
  })

  /** Seen of Chromium 156: it takes those that are fit, and answers the others without an id. */
  it.each([
    ['lists as deep as may be', `${'['.repeat(299)}${']'.repeat(299)}`, null],
    ['lists that are deeper', `${'['.repeat(300)}${']'.repeat(300)}`, 'stack limit exceeded'],
    ['something in the deepest', `${'['.repeat(299)}1${']'.repeat(299)}`, 'stack limit exceeded'],
    ['objects as deep as may be', `${'{"a":'.repeat(298)}{}${'}'.repeat(298)}`, null],
    ['objects deeper', `${'{"a":'.repeat(299)}"]"${'}'.repeat(299)}`, 'stack limit exceeded'],
    ['depth and a list', `[${'['.repeat(9e4)}"]",{}${']'.repeat(9e4)},2]`, 'stack limit exceeded'],
    ['the largest number', '1.7976931348623157e308', null],
    ['a number that is larger', '1.7976931348623159e308', 'invalid number'],
    ['a number that is smaller', '-1e999', 'invalid number'],
    ['next to nothing', '[1e-999,0e999]', null],
    ['many digits', '9'.repeat(308), null],
    ['more digits', '9'.repeat(309), 'invalid number'],
    ['many digits after the point', `0.${'0'.repeat(400)}1`, null],
  ])('is told to be unfit or not with %s, wherever the rest stands', (_, value, unfit) => {
    const rest = '"id":7,"method":"A.b","sessionId":"C"'
    for (const text of [`{${rest},"params":{"x":${value}}}`, `{"params":{"x":${value}},${rest}}`]) {
      expect(scan(Buffer.from(text))).toMatchObject({ id: 7, sessionId: 'C', unfit })
      // Also when it is taken apart.
      const odd = readCommand(Buffer.from(text.replace('"A.b"', '"A\\u002eb"')), CDP_LIMITS)
      const message = unfit === null ? undefined : `JSON: ${unfit}`
      expect('error' in odd ? odd : {}).toEqual(
        message === undefined ? {} : { id: 7, sessionId: 'C', error: { code: -32700, message } },
      )
    }
  })

  it('counts the values in it', () => {
    const text = '{"id":1,"method":"A.b","params":{"x":[1,{"y":null},[]],"z":"t"}}'
    expect(scan(Buffer.from(text))?.values).toBe(7)
  })

  it('is read by a parser that counts the names, which shows that none came twice', () => {
    fc.assert(
      fc.property(message, (text) => {
        if (scan(Buffer.from(text)) === null) return
        const top = topNames(text).filter((name) => FIELDS.has(name))
        expect(new Set(top).size).toBe(top.length)
        expect((text.match(/"(id|method|params|sessionId)"\s*:/g) ?? []).length).toBe(top.length)
      }),
      { numRuns: 500 },
    )
  })
})
