import { describe, expect, it } from 'vitest'
import fc from 'fast-check'
import type { Attachment } from './attachments.ts'
import { Crowd, positionOf } from './crowd.ts'

function attachment(id: string, epoch = 1): Attachment {
  const fixed = {
    answers: [],
    tokens: [],
    retired: null,
    graceUntil: null,
    answersUntil: null,
  } as const
  return { id, role: 'driver', state: 'live', epoch, ...fixed }
}

describe('a crowd', () => {
  it('is found and changed like a plain list, and what others have seen stays as it is', () => {
    const change = fc.record({
      type: fc.constantFrom('put', 'open', 'end', 'nextStep', 'look'),
      at: fc.nat(),
    })
    fc.assert(
      fc.property(fc.array(change, { maxLength: 120 }), fc.nat(40), (changes, size) => {
        let plain = Array.from({ length: size }, (_, n) => attachment(`a${n}`))
        let attachments: readonly Attachment[] = plain
        let crowd = new Crowd()
        let opened = size
        const shown: { readonly list: readonly Attachment[]; readonly plain: Attachment[] }[] = []
        for (const { type, at } of changes) {
          const index = plain.length === 0 ? 0 : at % plain.length
          const known = plain[index]
          if (type === 'nextStep') {
            shown.push({ list: attachments, plain })
            crowd = new Crowd()
          } else if (type === 'open') {
            const next = attachment(`a${(opened += 1)}`)
            attachments = crowd.put(attachments, attachments.length, next)
            plain = [...plain, next]
          } else if (known !== undefined && type === 'put') {
            const next = attachment(known.id, known.epoch + 1)
            attachments = crowd.put(attachments, positionOf(attachments, known.id), next)
            plain = plain.with(index, next)
          } else if (known !== undefined && type === 'end') {
            attachments = crowd.without(attachments, positionOf(attachments, known.id))
            plain = plain.toSpliced(index, 1)
          }
          for (const { id } of plain) {
            expect(positionOf(attachments, id)).toBe(plain.findIndex((one) => one.id === id))
          }
          expect(positionOf(attachments, 'nobody')).toBe(-1)
          expect(attachments).toEqual(plain)
        }
        for (const { list, plain: then } of shown) {
          expect(list).toEqual(then)
          for (const [index, { id }] of then.entries()) expect(positionOf(list, id)).toBe(index)
        }
      }),
      { numRuns: 60 },
    )
  })
  it('that came in one step is found without looking at all of it', () => {
    let looks = 0
    const watched = (id: string): Attachment => ({
      ...attachment(id),
      get id() {
        looks += 1
        return id
      },
    })
    const first = Array.from({ length: 20 }, (_, n) => watched(`a${n}`))
    expect(positionOf(first, 'a7')).toBe(7)
    const crowd = new Crowd()
    let attachments: readonly Attachment[] = first
    for (let n = 20; n < 220; n += 1) {
      attachments = crowd.put(attachments, attachments.length, watched(`a${n}`))
    }
    looks = 0
    for (let n = 0; n < 220; n += 1) expect(positionOf(attachments, `a${n}`)).toBe(n)
    expect(looks).toBe(220)
  })
})
