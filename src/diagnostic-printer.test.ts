import { describe, expect, it } from 'vitest'
import type { Diagnostic, DiagnosticLevel, Facts } from './core/index.ts'
import { DiagnosticPrinter, type LineFormat } from './diagnostic-printer.ts'

/** A printer whose lines and time are the test's. */
function printer(options: { format?: LineFormat; level?: DiagnosticLevel } = {}) {
  const lines: string[] = []
  let now = Date.UTC(2026, 10, 18)
  const timers = new Set<{ readonly at: number; readonly run: () => void }>()
  const clock = {
    now: () => now,
    monotonic: () => now,
    after(ms: number, run: () => void) {
      const timer = { at: now + ms, run }
      timers.add(timer)
      return () => timers.delete(timer)
    },
  }
  const pass = (ms: number): void => {
    now += ms
    for (const timer of [...timers].filter(({ at }) => at <= now)) {
      timers.delete(timer)
      timer.run()
    }
  }
  const write = (line: string): void => void lines.push(line)
  const { print, close } = bound(new DiagnosticPrinter({ write, clock, ...options }))
  return { lines, print, pass, close, timers }
}

function bound(made: DiagnosticPrinter) {
  return { print: made.print, close: () => made.close() }
}

function diagnostic(message: string, facts: Facts = {}, rest: Partial<Diagnostic> = {}) {
  return { code: 'sweep_failed', level: 'warn', message, facts, ...rest } as const
}

/** What a client may send to forge a line, move the cursor or reverse the text. */
const HOSTILE = [
  'a\n2026-11-18T00:00:00.000Z error store_failed: forged',
  'a\r\nb',
  '\u001B[2J\u001B]0;title\u0007',
  '\u009B31m',
  'a\u2028b\u2029c\u0085d',
  '\u202Egnp.exe',
  'a\uFEFF\u200B\u{E0041}b',
  '\uD800 alone \uDC00',
  'quote " and \\ and \u0000',
  'x'.repeat(100_000),
  '\u0000'.repeat(100_000),
  '😀'.repeat(10_000),
] as const

describe('a line', () => {
  it('tells time, level, code, message and facts to people', () => {
    const { print, lines } = printer()
    print(diagnostic('the sweep failed', { session: 's1', ms: 12, error: 'no such table', x: '' }))
    expect(lines).toEqual([
      '2026-11-18T00:00:00.000Z warn  sweep_failed: the sweep failed' +
        ' session=s1 ms=12 error="no such table" x=""\n',
    ])
  })

  it('tells the same to programs as one object', () => {
    const { print, lines } = printer({ format: 'json' })
    print(diagnostic('the sweep failed', { session: 's1', ms: 12, left: null }))
    expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual([
      {
        time: '2026-11-18T00:00:00.000Z',
        level: 'warn',
        code: 'sweep_failed',
        message: 'the sweep failed',
        session: 's1',
        ms: 12,
        left: null,
      },
    ])
  })

  it('is not changed by a fact that has the name of one of its own fields', () => {
    const { print, lines } = printer({ format: 'json' })
    print(diagnostic('true', { level: 'info', message: 'forged', code: 'stopped', time: 'never' }))
    expect(JSON.parse(lines[0] ?? '')).toEqual({
      time: '2026-11-18T00:00:00.000Z',
      level: 'warn',
      code: 'sweep_failed',
      message: 'true',
      fact_time: 'never',
      fact_level: 'info',
      fact_code: 'stopped',
      fact_message: 'forged',
    })
  })

  it.each(['text', 'json'] as const)('as %s is one bounded line of safe characters', (format) => {
    for (const value of HOSTILE) {
      const { print, lines } = printer({ format })
      print(diagnostic(value, Object.fromEntries(HOSTILE.map((_, n) => [`f${n}`, value]))))
      expect(lines).toHaveLength(1)
      const line = (lines[0] ?? '').replace(/\n$/, '')
      expect(line).not.toMatch(/[\p{C}\p{Zl}\p{Zp}]/u)
      expect(line.length).toBeLessThan(6_000)
      if (format === 'json') expect(JSON.parse(line)).toMatchObject({ code: 'sweep_failed' })
    }
  })

  it('gives a program what was sent, character for character, up to the bound', () => {
    const { print, lines } = printer({ format: 'json' })
    const values = HOSTILE.filter((value) => value.length < 100)
    print(diagnostic('', Object.fromEntries(values.map((value, n) => [`f${n}`, value]))))
    const { time: _, level, code, message, ...facts } = JSON.parse(lines[0] ?? '') as Facts
    expect({ level, code, message }).toEqual({ level: 'warn', code: 'sweep_failed', message: '' })
    expect(Object.values(facts)).toEqual(values)
  })

  it('is printed from its level on', () => {
    const { print, lines } = printer({ level: 'warn' })
    for (const level of ['debug', 'info', 'warn', 'error'] as const) {
      print(diagnostic(level, {}, { level }))
    }
    expect(lines.map((line) => line.split(' ')[1])).toEqual(['warn', 'error'])
  })
})

describe('repetition', () => {
  const refused = (origin: string, reason = 'origin'): Diagnostic =>
    diagnostic('refused', { reason, origin })

  it('is counted: the first is printed at once, the others as one line with their number', () => {
    const { print, lines, pass } = printer({ format: 'json' })
    for (let n = 0; n < 1_235; n += 1) print(refused('http://a'))
    expect(lines).toHaveLength(1)
    pass(10_000)
    expect(lines).toHaveLength(2)
    expect(JSON.parse(lines[1] ?? '')).toMatchObject({
      message: 'and 1,234 more like this within 10 s: refused',
      reason: 'origin',
      origin: 'http://a',
      count: 1_234,
    })
  })

  it('prints a few distinct lines of one reason, and the number of all others', () => {
    const { print, lines, pass } = printer({ format: 'json' })
    for (let n = 0; n < 10_000; n += 1) print(refused(`http://${n}`))
    expect(lines).toHaveLength(10)
    pass(10_000)
    expect(lines).toHaveLength(11)
    const last = JSON.parse(lines[10] ?? '') as Facts
    expect(last).toMatchObject({ code: 'sweep_failed', reason: 'origin', count: 9_990 })
    expect(last).not.toHaveProperty('origin')
  })

  it('of one reason hides no other reason and no other code', () => {
    const { print, lines } = printer()
    for (let n = 0; n < 100; n += 1) print(refused(`http://${n}`))
    print(refused('http://a', 'token'))
    print(diagnostic('stopped', {}, { code: 'stopped' }))
    expect(lines).toHaveLength(12)
  })

  it('prints a line again at once when it had been quiet', () => {
    const { print, lines, pass, timers } = printer()
    print(refused('http://a'))
    pass(10_000)
    print(refused('http://a'))
    expect(lines).toHaveLength(2)
    pass(10_000)
    expect(lines).toHaveLength(2)
    for (let n = 0; n < 6; n += 1) pass(10_000)
    expect([lines.length, timers.size]).toEqual([2, 0])
  })

  it.each([3, 1])('that never ends fills no disk, with %i new values every 10 s', (values) => {
    const { print, lines, pass } = printer()
    for (let second = 0; second < 24 * 3_600; second += 10) {
      for (let n = 0; n < values; n += 1) print(refused(`http://${second}.${n}`))
      print(refused('http://a'))
      pass(10_000)
    }
    expect(lines.length).toBeLessThan(3_200)
    expect(lines.join('').length).toBeLessThan(500_000)
  })

  it('keeps no more reasons apart than it has room for', () => {
    const { print, lines, timers } = printer()
    for (let n = 0; n < 10_000; n += 1) print(refused('http://a', `reason ${n}`))
    expect(lines.length).toBeLessThan(300)
    expect(timers.size).toBeLessThan(300)
  })

  it('is told when the printer is closed', () => {
    const { print, lines, close, timers } = printer()
    for (let n = 0; n < 3; n += 1) print(refused('http://a'))
    close()
    expect(lines[1]).toContain('and 2 more like this')
    expect(timers.size).toBe(0)
  })
})
