/** What a client may say, at random, for seconds; `npm run fuzz` does the same for longer. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { acpFrames, playAcp } from './acp-frames.ts'
import { endings, frames, hellos, messages, readsAll, readsSoundly } from './client-frames.ts'
import { play, steps } from './connection.ts'
import {
  bytes,
  cuts,
  FrameTarget,
  readsAlike,
  readsMessage,
  readsRight,
  rightFrames,
} from './copilot.ts'

describe('a message of a client', () => {
  it('is refused as bad_request or has its shape, whatever it is', () => {
    fc.assert(fc.property(messages, readsSoundly), { numRuns: 1_000 })
  })

  it('is read as what it says if it is right', () => {
    const right = fc.array(fc.oneof(hellos, frames, endings), { minLength: 1, maxLength: 4 })
    fc.assert(fc.property(right, readsAll), { numRuns: 300 })
  })
})

describe('a connection', () => {
  it('is welcomed at most once and hears nothing after its end, whatever is said', async () => {
    const sound = fc.asyncProperty(steps, async (script) => {
      expect(await play(script)).toEqual([])
    })
    await fc.assert(sound, { numRuns: 150 })
  })
})

describe('a connection of an ACP client', () => {
  it('answers each request once, and goes on, whatever is said', async () => {
    const sound = fc.asyncProperty(acpFrames, fc.boolean(), async (script, isHttp) => {
      expect(await playAcp(script, isHttp)).toEqual([])
    })
    await fc.assert(sound, { numRuns: 60 })
  })
})

describe('the framing of the Copilot door', () => {
  it('reads right frames as they were written, however they are divided', () => {
    fc.assert(fc.property(rightFrames, cuts, readsRight), { numRuns: 500 })
  })

  it('makes the same of all other bytes, however they are divided', () => {
    fc.assert(fc.property(bytes, cuts, readsAlike), { numRuns: 1_000 })
  })

  it('refuses a message that is none as the protocol says', () => {
    const texts = fc.oneof(
      fc.string(),
      fc.json(),
      rightFrames.map((all) => all[0] ?? ''),
    )
    fc.assert(fc.property(texts, readsMessage), { numRuns: 500 })
  })
})

describe('a connection of the Copilot door', () => {
  it('answers each request once, and never with an internal error, or is ended', async () => {
    const target = await FrameTarget.open()
    const sound = fc.asyncProperty(rightFrames, fc.boolean(), async (texts, isConnected) => {
      expect(await target.play(texts, isConnected)).toEqual([])
    })
    try {
      await fc.assert(sound, { numRuns: 300 })
    } finally {
      await target.close()
    }
  })
})
