/** The history of a session, as `session.getMessages` returns it. */
import type { SessionEvent } from '../../core/index.ts'
import { EventTranslator, type CopilotEvent } from './events.ts'
import type { CopilotLimits } from './limits.ts'
import type { NamedSession } from './sessions.ts'

const PAGE = 256

/** The lasting events of its log, oldest first; only the newest if there are too many. */
export async function readHistory(
  { session, name }: NamedSession,
  { historyEventsMax, historyCharsMax }: CopilotLimits,
): Promise<readonly CopilotEvent[]> {
  const translator = new EventTranslator(session.id, name, null)
  const kept: { readonly event: CopilotEvent; readonly chars: number }[] = []
  let chars = 0
  let first = 0
  for (let after = 0, end = 1; after < end;) {
    const { row, events, position } = await session.read(after, PAGE)
    for (const { body } of events) {
      for (const event of translator.take(JSON.parse(body) as SessionEvent)) {
        if (event.ephemeral === true) continue
        kept.push({ event, chars: body.length })
        chars += body.length
      }
    }
    while (kept.length - first > historyEventsMax || chars > historyCharsMax) {
      chars -= kept[first]?.chars ?? 0
      first += 1
    }
    // What was left behind is not kept until the end.
    if (first > PAGE) kept.splice(0, first)
    if (first > PAGE) first = 0
    end = position === after ? after : (row?.seq ?? 0)
    after = position
  }
  return kept.slice(first).map(({ event }) => event)
}
