import { describe, expect, it } from 'vitest'
import { FeedItem } from '../core/index.ts'
import { encodeItems, encodeNotice, parsePosition } from './server-sent-events.ts'

const start = { seq: 0, delta: 0 }

describe('server-sent events', () => {
  it('carry the position after them: the seq, and the deltas of the turn so far', () => {
    const done = { type: 'turn.done', turn: 't2', seq: 4, at: 0 } as const
    const delta = { type: 'delta', turn: 't2', n: 1, text: 'a\nb' } as const
    expect([...encodeItems([new FeedItem(2, delta), new FeedItem(4, done)], start)]).toEqual([
      'event: delta\nid: 2.1\ndata: {"type":"delta","turn":"t2","n":1,"text":"a\\nb"}\n\n' +
        'event: turn.done\nid: 4.1\ndata: {"type":"turn.done","turn":"t2","seq":4,"at":0}\n\n',
    ])
  })

  it('are never put together to more than a reader should be made to hold', () => {
    const delta = { type: 'delta', turn: 't2', n: 1, text: 'x'.repeat(200_000) } as const
    const texts = [
      ...encodeItems(
        Array.from({ length: 6 }, () => new FeedItem(2, delta)),
        start,
      ),
    ]
    expect(texts.map(({ length }) => Math.round(length / 1_000))).toEqual([400, 400, 400])
  })

  it('say something about the stream itself without moving its position', () => {
    expect(encodeNotice('ending', { code: 'draining' })).toBe(
      'event: ending\ndata: {"code":"draining"}\n\n',
    )
  })

  it.each([
    ['0', { seq: 0, delta: 0 }],
    ['12', { seq: 12, delta: 0 }],
    ['12.3', { seq: 12, delta: 3 }],
  ])('are resumed after %s', (text, position) => {
    expect(parsePosition('after', text)).toEqual(position)
  })

  it.each(['', '-1', '1.', '.1', '1.2.3', '1e3', ' 1', '9'.repeat(16)])(
    'are not resumed after %j',
    (text) => {
      expect(() => parsePosition('after', text)).toThrow('after must be SEQ or SEQ.N')
    },
  )
})
