import { describe, expect, it } from 'vitest'
import { detailLines } from './ask-detail.ts'
import { durationText, paintFor, PLAIN, printableLines, type Paint } from './output.ts'

const MARKS: Paint = { added: (line) => `<${line}>`, removed: (line) => `[${line}]` }

describe('what an ask is about', () => {
  it('is shown as lines: the command, where, why, the files', () => {
    const detail = {
      tool: 'Bash',
      kind: 'execute',
      command: 'make\nmake test',
      cwd: '/src',
    } as const
    expect(detailLines({ ...detail, reason: 'to see', paths: ['a', 'b'] }, PLAIN)).toEqual([
      ...['tool     Bash (execute)', 'command', '  make', '  make test', 'in       /src'],
      ...['reason   to see', 'files', '  a', '  b'],
    ])
  })

  it('shows of a file what changes, with a few lines around it', () => {
    const before = ['1', '2', '3', '4', '5', 'old', '7', '8', '9', '10', '11', ''].join('\n')
    const diff = [{ path: 'notes.md', before, after: before.replace('old', 'new\nnewer') }]
    expect(detailLines({ diff }, MARKS)).toEqual([
      ...['diff notes.md', '  @@ line 6 @@', '   3', '   4', '   5'],
      ...['  [-old]', '  <+new>', '  <+newer>', '   7', '   8', '   9'],
    ])
  })

  it.each([
    ['a new file', { before: null, after: 'a\nb\n' }, ['  <+a>', '  <+b>']],
    ['a file of which lines go', { before: 'a\nb\nb\n', after: 'a\nb\n' }, ['  [-b]']],
    ['a unified diff', { unified: '@@ -1 +1 @@\n-a\n+b\n c' }, ['  [-a]', '  <+b>']],
  ])('marks the lines of %s', (_, diff, expected) => {
    const lines = detailLines({ diff: [{ path: 'x', ...diff }] }, MARKS)
    expect(lines.filter((line) => /[<[]/.test(line))).toEqual(expected)
  })

  it('shows the arguments where nothing else tells them, and what was left out', () => {
    const input = { city: 'Bern' }
    expect(detailLines({ tool: 'weather', input }, PLAIN)).toEqual([
      ...['tool     weather', 'input', '  {', '    "city": "Bern"', '  }'],
    ])
    const lines = detailLines({ command: 'x', input, truncated: true }, PLAIN)
    expect(lines).toEqual(['command  x', expect.stringContaining('shortened')])
  })

  it('cannot control the terminal, turn its text around or hide a part of it', () => {
    const evil = 'rm \u001b[2Jx\u0007 \u202Ecod.exe\u2066 \u200Ba\u2028b \u009b1m\rok'
    const fields = { tool: evil, command: evil, cwd: evil, url: evil, plan: evil, reason: evil }
    const diff = [
      { path: evil, before: evil, after: `${evil}!` },
      { path: evil, unified: `+${evil}` },
    ]
    const shown = [
      ...detailLines({ ...fields, diff }, PLAIN),
      ...detailLines({ paths: [evil], input: { [evil]: evil } }, PLAIN),
    ]
    expect(shown.join('')).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u)
    expect(shown.length).toBeGreaterThan(8)
  })
})

describe('the text of an agent at a terminal', () => {
  it.each([
    ['a\r\nb\tc\n', 'a\nb\tc\n'],
    ['\u001b]0;title\u0007', '\uFFFD]0;title\uFFFD'],
    ['\u202Eevil\u202C \u2067x\u2069', '\uFFFDevil\uFFFD \uFFFDx\uFFFD'],
    ['👩\u200D💻 ❤\uFE0F می\u200Cخواهم', '👩\u200D💻 ❤\uFE0F می\u200Cخواهم'],
    ['pass\u200Dword \u200Bx\u00ADy', 'pass\uFFFDword \uFFFDx\uFFFDy'],
    ['\u3164\u{E0041}\u{E0101}\u034F1\uFE0F', '\uFFFD\uFFFD\uFFFD\uFFFD1\uFFFD'],
    ['progress\rdone', 'progress\uFFFDdone'],
  ])('is printed without what controls it: %j', (text, expected) => {
    expect(printableLines(text)).toBe(expected)
  })

  it('has colours at a terminal only', () => {
    expect(paintFor({ isTTY: false })).toBe(PLAIN)
    expect(paintFor({})).toBe(PLAIN)
  })
})

it.each([
  [-5, '0 s'],
  [1_200, '2 s'],
  [125_000, '2 min 5 s'],
  [3_720_000, '1 h 2 min'],
])('shows %i ms as %s', (ms, text) => {
  expect(durationText(ms)).toBe(text)
})
