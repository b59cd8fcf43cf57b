/** `npm run fuzz`: what clients may say, at random, until the time is up. Prints what breaks a property. */
import { parseArgs } from 'node:util'
import fc from 'fast-check'
import { acpFrames, playAcp } from './acp-frames.ts'
import { messages, readsSoundly } from './client-frames.ts'
import { play, steps } from './connection.ts'
import { bytes, cuts, FrameTarget, readsAlike, rightFrames } from './copilot.ts'

/** Frames that each of the two doors gets, however short the time is. */
const FRAMES_MIN = 100_000

const HELP = `npm run fuzz -- [--seconds N] [--seed N]
Random messages to the reader, random lives of connections, random frames of ACP clients, and random bytes
and frames to the Copilot door, a fifth of the time each; 100,000 frames for either door at least.`

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    seed: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
})

if (values.help) {
  console.log(HELP)
} else {
  const seed = values.seed === undefined ? Date.now() % 2 ** 31 : Number(values.seed)
  const interruptAfterTimeLimit = (Number(values.seconds) * 1_000) / 5
  const limits = { seed, numRuns: Number.MAX_SAFE_INTEGER, interruptAfterTimeLimit }
  console.log(`seed ${seed}`)
  const reading = fc.check(fc.property(messages, readsSoundly), limits)
  report('messages read', reading)
  const sound = fc.asyncProperty(steps, async (script) => {
    const problems = await play(script)
    if (problems.length > 0) throw new Error(problems.join('\n'))
  })
  report('lives of connections', await fc.check(sound, limits))
  await playAcpFrames(limits)
  report('bytes for the Copilot door', fc.check(fc.property(bytes, cuts, readsAlike), limits))
  await playFrames(limits)
}

type Limits = Record<'seed' | 'numRuns' | 'interruptAfterTimeLimit', number>

async function playAcpFrames(limits: Limits): Promise<void> {
  let frames = 0
  const answering = fc.asyncProperty(acpFrames, fc.boolean(), async (script, isHttp) => {
    frames += script.length
    const problems = await playAcp(script, isHttp)
    if (problems.length > 0) throw new Error(problems.join('\n'))
  })
  do {
    const answered = await fc.check(answering, { ...limits, seed: limits.seed + frames })
    report('connections of ACP clients, over WebSockets and HTTP', answered)
    if (answered.failed && answered.counterexample !== null) break
  } while (frames < FRAMES_MIN)
  console.log(`${frames.toLocaleString('en')} frames of ACP clients`)
}

async function playFrames(limits: Limits): Promise<void> {
  const target = await FrameTarget.open()
  const taken = fc.asyncProperty(rightFrames, fc.boolean(), async (texts, isConnected) => {
    const problems = await target.play(texts, isConnected)
    if (problems.length > 0) throw new Error(problems.join('\n'))
  })
  do {
    const details = await fc.check(taken, { ...limits, seed: limits.seed + target.frames })
    report(`connections of the Copilot door`, details)
    if (details.failed && details.counterexample !== null) break
  } while (target.frames < FRAMES_MIN)
  console.log(`${target.frames.toLocaleString('en')} frames for the Copilot door`)
  await target.close()
}

function report<Args>(what: string, details: fc.RunDetails<Args>): void {
  console.log(`${details.numRuns.toLocaleString('en')} ${what}`)
  // To be interrupted is how it ends.
  if (details.counterexample === null) return
  process.exitCode = 1
  console.log(fc.defaultReportMessage(details), details.errorInstance)
}
