/** Each guard of the protocol where it alone stands between a fault and a wrong; and without it. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { PostgresServer } from '../support/postgres.ts'
import { PLOTS, playPlot } from './plots.ts'
import type { Bug } from './world.ts'

describe.runIf(process.env['DATABASE_URL'] === undefined)('two nodes', () => {
  let shared: PostgresServer

  beforeAll(async () => {
    shared = await PostgresServer.start()
  })
  afterAll(() => shared.remove())

  for (const [name, plot] of Object.entries(PLOTS)) {
    const bugs = Object.entries(plot.without) as [Bug, RegExp][]
    // At once: most of their time they wait for a lease to end.
    it(`${name}: ${plot.claim}`, async () => {
      const [right, ...wrong] = await Promise.all([
        playPlot(plot, 'none', shared),
        ...bugs.map(([bug]) => playPlot(plot, bug, shared)),
      ])
      expect(right).toEqual([])
      const found = wrong.map((problems) => problems.join('\n'))
      bugs.forEach(([bug, expected], index) => expect(found[index], bug).toMatch(expected))
    }, 240_000)
  }
})
