/** The invariants of a world with sockets: those of every world, and I6 to I11 as the wire shows. */
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
import { gatherWire } from './facts.ts'

export function checkWire(history: History): readonly Violation[] {
  const facts = gatherWire(history)
  return [
    ...checkStore(facts),
    ...checkLogs(facts),
    ...checkRuns(facts),
    ...checkAsks(facts),
    ...checkAttachments(facts),
    ...checkRest(facts),
    ...checkPlaces(facts),
    ...checkReplies(facts),
    ...checkStreams(facts),
    ...checkAsksOfPages(facts),
    ...checkEnds(facts),
  ]
}
