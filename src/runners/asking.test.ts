import { expect, it } from 'vitest'
import type { Question } from '../core/index.ts'
import { askForm } from './asking.ts'

const oneOf = [
  { const: 'Red', title: 'Red' },
  { const: 'Blue', title: 'Blue' },
]
const colour = { type: 'string', title: 'Colour', oneOf }
const fruits = { type: 'array', title: 'Fruits', items: { anyOf: oneOf } }
const own = { type: 'string', title: 'Other' }

/** What is asked for a form, and what comes of these answers to it. */
async function filled(properties: object, answers: readonly unknown[], required: string[] = []) {
  const asked: Question[] = []
  const result = await askForm(
    async (question) => {
      asked.push(question)
      const answer = answers[asked.length - 1]
      return answer === undefined
        ? { outcome: 'timed_out' }
        : { outcome: 'answered', answer, by: null }
    },
    'Which?',
    { type: 'object', properties, required },
  )
  return { asked: asked.map(({ question, accepts }) => [question, accepts]), result }
}

it('asks once for a choice and the own words beside it', async () => {
  const properties = { a: colour, a_custom: own, b: fruits, b_custom: own }
  const asked = [
    ['Which?\nColour', ['text']],
    ['Which?\nFruits', ['several', 'text']],
  ]
  expect(await filled(properties, ['Red', ['Red', 'Blue']])).toEqual({
    asked,
    result: { action: 'accept', content: { a: 'Red', b: ['Red', 'Blue'] } },
  })
  expect(await filled(properties, [{ text: 'green' }, { text: 'plums' }])).toEqual({
    asked,
    result: { action: 'accept', content: { a_custom: 'green', b_custom: 'plums' } },
  })
  expect((await filled(properties, [])).result).toEqual({ action: 'cancel' })
})

it('asks for each field that stands by itself', async () => {
  const alone = { name: own, name_custom: own }
  const { asked, result } = await filled(alone, ['one', { text: 'two' }])
  expect(asked.map(([question]) => question)).toEqual(['Which?\nOther', 'Which?\nOther'])
  expect(result).toEqual({ action: 'accept', content: { name: 'one', name_custom: 'two' } })
  const needed = { a: colour, a_custom: own }
  expect((await filled(needed, ['Red', 'words'], ['a_custom'])).asked).toHaveLength(2)
  expect((await filled(needed, ['Red'], ['a_custom'])).result).toEqual({ action: 'cancel' })
})
