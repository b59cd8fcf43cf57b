/**
 * Plots: for each guard of the protocol the very moment in which it alone stands between a fault and
 * a wrong. With the guard nothing goes wrong; without it the checker must object, every time.
 */
import { Agent } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import { PostgresServer } from '../support/postgres.ts'
import { check } from './check.ts'
import { historyOf } from './history.ts'
import { KEY, Stage } from './stage.ts'
import { World, type Bug } from './world.ts'

export type Plot = {
  readonly claim: string
  /** A function of the node (the default), or a program that it starts. */
  readonly agent?: 'ticking' | 'program'
  /** What the checker says when one of these guards is taken away. */
  readonly without: Partial<Record<Bug, RegExp>>
  readonly play: (stage: Stage) => Promise<void>
}

/**
 * A process that a busy machine does not let run learns of anything too late. When to the moment a
 * node lets go is in `doubt.test.ts`, where time is virtual.
 */
const LATE_TICKS_MAX = 4

export const PLOTS: Readonly<Record<string, Plot>> = {
  'late append': {
    claim: 'an append that arrives after another node has claimed the session is refused',
    without: { 'no-fence': /stale append/, 'no-epoch': /stale append/ },
    play: async (stage) => {
      stage.one.toDatabase.cut('late')
      const late = stage.turn(stage.one, 'late 1')
      await stage.claimed(2)
      stage.one.toDatabase.heal()
      await late
      await stage.isWell()
      await stage.turn(stage.other, 'after 1')
    },
  },

  'cut off at work': {
    claim: 'a node that is cut off from the database has stopped its agent before another begins',
    without: { 'no-lease': /went on for \d+ ticks after the next had begun/ },
    play: cutOffAtWork,
  },

  'cut off, its program at work': {
    claim: 'a node that is cut off from the database has ended its program before another begins',
    agent: 'program',
    without: { 'no-lease': /went on for \d+ ticks after the next had begun/ },
    play: cutOffAtWork,
  },

  'cut off and asked': {
    claim: 'a node that is cut off from the database shows nobody a session as it once was',
    without: { 'no-lease': /was shown at \d+ when it was past/ },
    play: async (stage) => {
      stage.one.toDatabase.cut('silence')
      await stage.claimed(2)
      await stage.turn(stage.other, 'after 1')
      stage.look(await stage.show(stage.other), await stage.show(stage.one))
      stage.one.toDatabase.heal()
    },
  },

  'frozen at work': {
    claim: 'a node that was frozen past its lease goes on with nothing when it wakes up',
    without: { 'no-lease': /went on for \d+ ticks after the next had begun/ },
    play: async (stage) => {
      await stage.submit(stage.one, 'long 8000')
      await stage.submit(stage.one, 'next 2000')
      await stage.begun(2)
      stage.one.process.pause()
      await stage.begun(3)
      stage.one.process.resume()
      await setTimeout(500)
    },
  },

  'frozen and asked': {
    claim: 'a node that was frozen past its lease shows nobody a session as it once was',
    without: { 'no-lease': /was shown at \d+ when it was past/ },
    play: async (stage) => {
      // On a connection that is open: what comes over a new one is read after the node's timers.
      const agent = new Agent({ keepAlive: true, maxSockets: 1 })
      try {
        await stage.show(stage.one, agent)
        stage.one.process.pause()
        await stage.claimed(2)
        await stage.turn(stage.other, 'after 1')
        const known = await stage.show(stage.other)
        const shown = stage.show(stage.one, agent)
        await setTimeout(100)
        stage.one.process.resume()
        stage.look(known, await shown)
      } finally {
        agent.destroy()
      }
    },
  },

  'owner lives': {
    claim: 'a node leaves a session alone as long as the lease of its owner has not ended',
    without: { steal: /went on for \d+ ticks after the next had begun|started while/ },
    play: async (stage) => {
      await stage.submit(stage.one, 'long 2000')
      await stage.begun(2)
      await stage.turn(stage.other, 'other 1000')
    },
  },

  'owner lost in a forwarded turn': {
    claim: 'a request that the lost owner may have carried out is not passed on again',
    without: { 'no-doubt': /forwarded \d+ ran 2 times/ },
    play: async (stage) => {
      const forwarded = stage.turn(stage.other, 'forwarded 1000')
      await stage.begun(2)
      await stage.one.process.kill()
      await forwarded
    },
  },
}

async function cutOffAtWork(stage: Stage): Promise<void> {
  await stage.submit(stage.one, 'long 8000')
  await stage.submit(stage.one, 'next 1000')
  await stage.begun(2)
  stage.one.toDatabase.cut('silence')
  await stage.begun(3)
  await setTimeout(500)
  stage.one.toDatabase.heal()
}

/** What the checker has against the plot with this guard taken away. */
export async function playPlot(
  plot: Plot,
  bug: Bug,
  shared: PostgresServer,
): Promise<readonly string[]> {
  const world = await World.create({ seed: 1, bug, nodes: 2, shared })
  try {
    const stage = new Stage(world, plot.agent ?? 'ticking')
    await stage.begin()
    await plot.play(stage)
    await stage.isWell()
    const { sent, looks } = stage
    const lateTicksMax = LATE_TICKS_MAX
    return check(await historyOf(world, { keys: [KEY], sent, looks, lateTicksMax }))
  } finally {
    await world.close()
  }
}

/** Every plot, with and without its guards or this one; whether all came out as they should. */
export async function playAll(bug: Bug, tell: (line: string) => void): Promise<boolean> {
  const shared = await PostgresServer.start()
  let isRight = true
  try {
    for (const [name, plot] of Object.entries(PLOTS)) {
      const planted = Object.keys(plot.without) as Bug[]
      const all: Bug[] =
        bug === 'none' ? ['none', ...planted] : planted.filter((one) => one === bug)
      for (const one of all) {
        const problems = await playPlot(plot, one, shared)
        const isAsExpected = isExpected(plot, one, problems)
        isRight &&= isAsExpected
        const verdict = isAsExpected ? 'as it should be' : 'WRONG'
        tell(`${name} (${one}): ${verdict}${problems.map((line) => `\n  ${line}`).join('')}`)
      }
    }
    return isRight
  } finally {
    await shared.remove()
  }
}

function isExpected({ without }: Plot, bug: Bug, problems: readonly string[]): boolean {
  const expected = without[bug]
  if (expected === undefined) return problems.length === 0
  return problems.some((problem) => expected.test(problem))
}
