/** The invariants of a world with sockets: those of every world, and I6 to I11 as the wire shows. */
import { checkAnswerers } from '../check-answerers.ts'
import { checkAsks, checkAttachments } from '../check-life.ts'
import { checkLogs, checkStore } from '../check-log.ts'
import { checkRuns } from '../check-turns.ts'
import { checkRest, type Violation } from '../checker.ts'
import type { History } from '../history.ts'
import { checkAsksOfPages } from './check-asks.ts'
import { checkEnds } from './check-ends.ts'
import { checkPlaces } from './check-places.ts'
import { checkReplies } from './check-replies.ts'
import { checkStreams } from './check-streams.ts'
import { gatherWire, type WireFacts } from './facts.ts'

export function checkWire(history: History): readonly Violation[] {
  const facts = gatherWire(history)
  return [
    ...checkStore(facts),
    ...checkLogs(facts),
    ...checkRuns(facts),
    ...checkAsks(facts),
    ...checkAnswerers(facts, watchersOf(facts)),
    ...checkAttachments(facts),
    ...checkRest(facts),
    ...checkPlaces(facts),
    ...checkReplies(facts),
    ...checkStreams(facts),
    ...checkAsksOfPages(facts),
    ...checkEnds(facts),
  ]
}

/** The places of pages that only look on. */
function watchersOf({ pages }: WireFacts): ReadonlySet<string> {
  const watching = pages.filter(({ begun }) => begun.role === 'watcher')
  const welcomes = watching.flatMap(({ links }) => links.map(({ welcome }) => welcome))
  return new Set(welcomes.flatMap((welcome) => welcome?.frame.attachment ?? []))
}
