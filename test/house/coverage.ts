/**
 * Loaded before a server (`node --import`): says to its parent, whenever that asks, which scripts had
 * a function called since it asked last.
 */
import { Session } from 'node:inspector'

type Coverage = {
  readonly result: readonly {
    readonly url: string
    readonly functions: readonly { readonly ranges: readonly { readonly count: number }[] }[]
  }[]
}

const session = new Session()
session.connect()
session.post('Profiler.enable')
session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })

process.on('message', () => {
  // Counts start anew with every look at them.
  session.post('Profiler.takePreciseCoverage', (error: Error | null, coverage?: Coverage) => {
    if (error !== null) throw error
    const called = (coverage?.result ?? []).filter(({ functions }) =>
      functions.some(({ ranges }) => ranges.some(({ count }) => count > 0)),
    )
    process.send?.(called.map(({ url }) => url))
  })
})
// A parent that does not ask must not keep the server alive.
process.channel?.unref()
