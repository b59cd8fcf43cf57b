/** The short form of `npm run attack`: each attack for moments, on a real server of its own. */
import { describe, expect, it } from 'vitest'
import { attack } from './attack.ts'
import { ATTACKS } from './attacks.ts'

const SHORT = { ms: 1_000, fuzzed: 150, seed: 20_261_118 } as const
/** A server with few descriptors has tests of its own. */
const SHORT_ATTACKS = ATTACKS.filter(({ name }) => name !== 'descriptors')

describe('the server lives within its memory, serves good clients and tells what it refused', () => {
  it.each(SHORT_ATTACKS)('under the attack: $name', async (one) => {
    expect((await attack(one, SHORT)).problems).toEqual([])
  })
})
