/** Why a turn or a request waits, in words. */
import { duration } from '../../shared/moment.ts'
import type { QueueEntry } from '../session-model.ts'

export type QueueReasons = {
  readonly running: string | null
  readonly runsForMs: number | null
  /** What the running turn asks, if it waits for an answer. */
  readonly question: string | null
  readonly now: number
}

export function whyItWaits(row: QueueEntry, reasons: QueueReasons): string {
  const { position, state, busy, since } = row
  const waited =
    since === null ? '' : ` It has waited for ${duration(Math.max(0, reasons.now - since))}.`
  const ahead =
    position === 1
      ? whyFirst(reasons, busy === 'interrupt')
      : `${position - 1} ${position === 2 ? 'is' : 'are'} before it. ${whyFirst(reasons, false)}`
  const admitted =
    state === 'waiting' ? ' It is not admitted yet: its caller may still be refused.' : ''
  return `${ahead}${waited}${admitted}`
}

function whyFirst({ running, runsForMs, question }: QueueReasons, isInterrupting: boolean): string {
  if (running === null) return 'No turn runs: the server is about to start the next one.'
  if (isInterrupting) return `It stops turn ${running}, which has to end first.`
  const time = runsForMs === null ? '' : ` for ${duration(Math.max(0, runsForMs))}`
  if (question !== null) {
    const asks = `turn ${running} waits for an answer to “${question}”.`
    return `A session runs one turn at a time, and ${asks}`
  }
  return `A session runs one turn at a time, and turn ${running} has been running${time}.`
}
