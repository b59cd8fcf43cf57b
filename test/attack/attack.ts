/** One attack on a fresh server, with good clients beside it, and what is to be said against the server. */
import { Bystanders } from './bystander.ts'
import { Target } from './target.ts'
import type { Attack, Size } from './attacks.ts'

export type Outcome = {
  readonly peakMb: number
  /** How the good clients were served. */
  readonly rounds: number
  readonly slowestMs: number
  readonly problems: readonly string[]
}

/**
 * Good clients must be served at least so often: a short attack is repeated until they were, and
 * until the server had something to tell.
 */
const ROUNDS_MIN = 4
const REPEATS_MAX = 20

export async function attack(
  { run, told, memoryMbMax, ...options }: Attack,
  size: Size,
): Promise<Outcome> {
  const target = await Target.start(options)
  try {
    const bystanders = await Bystanders.start(target)
    const seen: string[] = []
    const isEnough = (): boolean =>
      bystanders.rounds >= ROUNDS_MIN && told.every((pattern) => pattern.test(target.said))
    for (let n = 0; n === 0 || (!isEnough() && n < REPEATS_MAX); n += 1) {
      seen.push(...(await run(target, { ...size, seed: size.seed + n })))
    }
    const served = await bystanders.end()
    const { peakMb } = target
    const health = await target.call('GET', '/ready')
    const exit = await target.stop()
    const problems = [...seen, ...served.problems]
    if (served.rounds < ROUNDS_MIN) problems.push(`good clients had only ${served.rounds} rounds`)
    if (peakMb > memoryMbMax) problems.push(`it took ${peakMb} MB, more than ${memoryMbMax}`)
    if (health.status !== 200) problems.push(`it is not ready: ${health.status}`)
    if (exit !== 0) problems.push(`it ended with ${exit}: ${target.said.slice(-2_000)}`)
    for (const pattern of told) {
      if (!pattern.test(target.said)) problems.push(`it did not tell: ${pattern}`)
    }
    return { peakMb, rounds: served.rounds, slowestMs: served.slowestMs, problems }
  } finally {
    await target.remove()
  }
}
