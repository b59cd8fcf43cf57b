import { describe, expect, it } from 'vitest'
import { DeltaPieces } from './delta-pieces.ts'

/** The pieces of a text that comes in these parts. */
function piecesOf(...parts: readonly string[]): readonly string[] {
  const pieces = new DeltaPieces()
  return [...parts.flatMap((part) => pieces.add(part)), ...pieces.end()]
}

const TEXTS = [
  'Hello, world! How are you?\n\nFine.',
  'internationalisation',
  'Привет, мир: für Ängste',
  '日本語のテキスト。',
  'a 👩‍👩‍👧 b 👋👋',
  'lone \ud83d and \udc4b',
  '',
  '        ',
]

describe('the pieces of a text', () => {
  it('end behind what is no part of a word, and are never long', () => {
    expect(piecesOf('Hello, world: internationalisation')).toEqual([
      ...['Hello,', ' ', 'world:', ' ', 'internat', 'ionalisa', 'tion'],
    ])
    expect(piecesOf('日本 👋')).toEqual(['日', '本', ' ', '👋'])
  })

  it.each(TEXTS)('are the same however it comes: %j', (text) => {
    const whole = piecesOf(text)
    expect(whole.join('')).toBe(text)
    expect(piecesOf(...text.split(''))).toEqual(whole)
    for (let at = 0; at <= text.length; at += 1) {
      expect(piecesOf(text.slice(0, at), text.slice(at))).toEqual(whole)
    }
  })

  it('are told as soon as they are known: only an unfinished word is kept back', () => {
    const pieces = new DeltaPieces()
    expect(pieces.add('Let me see. I th')).toEqual(['Let ', 'me ', 'see.', ' ', 'I '])
    expect(pieces.add('ink')).toEqual([])
    expect(pieces.end()).toEqual(['think'])
  })
})
