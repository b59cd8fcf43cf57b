/** Somebody who found an old resume token and tries it, and stays if let in. */
import type { History } from '../history.ts'
import { Process } from '../process.ts'
import type { Random } from '../random.ts'
import type { Timeline } from '../timeline.ts'
import { foldLog } from '../facts.ts'
import type { SessionEvent } from '../../../src/core/events.ts'
import type { Network } from './network.ts'

export type ThiefOptions = {
  readonly timeline: Timeline
  readonly random: Random
  readonly history: History
  readonly network: Network
}

/** What was written so long ago the server knows. */
const KNOWN_MS = 4_000

/** Tries a token that was replaced, and whose replacement its client has confirmed. */
export function steal(name: string, options: ThiefOptions): void {
  const { network, random, timeline, history } = options
  const process = new Process(name, timeline, random)
  const at = process.clock.now() - KNOWN_MS
  const old = network.tokens.filter((known) => isRetired(known, history, at))
  if (old.length === 0) return
  const { session, attachment, token } = random.pick(old.slice(-4))
  const socket = network.open(name, process)
  const resume = { attachment, token }
  const hello = { type: 'hello', v: 1, session, auth: { resume }, take: random.chance(0.5) }
  socket.addEventListener('open', () => socket.send(JSON.stringify(hello)))
  timeline.after(20_000, () => socket.close())
}

function isRetired(
  known: { readonly session: string; readonly attachment: string; readonly token: string },
  { logs }: History,
  at: number,
): boolean {
  const stored = logs.get(known.session)?.events ?? []
  const events = stored
    .map(({ body }) => JSON.parse(body) as SessionEvent)
    .filter((event) => event.at < at)
  const { last } = foldLog(known.session, events)
  const isOld = events.some((event) => 'token' in event && event.token?.includes(known.token))
  const held = last?.attachments.find(({ id }) => id === known.attachment)
  const isGood = held?.tokens.some((digest) => digest.includes(known.token))
  return isOld && isGood === false
}
