/**
 * What this door records beside the turns of a session: items that a client adds to a conversation
 * and takes away again, and responses that were deleted. A log is never rewritten, so a deletion
 * is a note too, and readers leave out what it names.
 */
import type { SessionEvent, SessionHandle } from '../../core/index.ts'
import type { ChatMessage } from './messages.ts'

type DoorNote =
  | { readonly kind: 'openai.items'; readonly data: { readonly items: readonly ChatMessage[] } }
  | { readonly kind: 'openai.item_deleted'; readonly data: { readonly item: string } }
  | { readonly kind: 'openai.response_deleted'; readonly data: { readonly turn: string } }

type NoteKind = DoorNote['kind']
type NoteData<Kind extends NoteKind> = Extract<DoorNote, { kind: Kind }>['data']

const PAGE = 256
/** Events are written with their type first. */
const NOTED = '{"type":"session.noted"'

/** Records that a client has added these items; returns the note's position. */
export function noteItems(facts: SessionHandle, items: readonly ChatMessage[]): Promise<number> {
  return facts.note({ kind: 'openai.items', data: { items } } satisfies DoorNote, 'turn.run')
}

export async function noteItemDeleted(facts: SessionHandle, item: string): Promise<void> {
  const note: DoorNote = { kind: 'openai.item_deleted', data: { item } }
  await facts.note(note, 'turn.cancel')
}

export async function noteResponseDeleted(session: SessionHandle, turn: string): Promise<void> {
  const note: DoorNote = { kind: 'openai.response_deleted', data: { turn } }
  await session.note(note, 'session.close')
}

/** The notes of one kind after a position, in their order. */
export async function* notesOf<Kind extends NoteKind>(
  session: SessionHandle,
  kind: Kind,
  after = 0,
): AsyncGenerator<{ readonly seq: number; readonly data: NoteData<Kind> }> {
  for await (const { seq, body } of storedEvents(session, after)) {
    if (!body.startsWith(NOTED)) continue
    const event = JSON.parse(body) as SessionEvent
    if (event.type !== 'session.noted' || event.kind !== kind) continue
    yield { seq, data: event.data as NoteData<Kind> }
  }
}

/** The turns whose responses were deleted after a position. */
export async function deletedTurns(
  session: SessionHandle,
  after: number,
): Promise<ReadonlySet<string>> {
  const turns = new Set<string>()
  const notes = notesOf(session, 'openai.response_deleted', after)
  for await (const { data } of notes) turns.add(data.turn)
  return turns
}

/** Whether the response of this turn was deleted: the note comes after the turn. */
export async function isDeleted(session: SessionHandle, turn: string): Promise<boolean> {
  return (await deletedTurns(session, Number(turn.slice(1)))).has(turn)
}

/** The events of a log after a position, up to its present end. */
export async function* eventsOf(
  session: SessionHandle,
  after: number,
): AsyncGenerator<SessionEvent> {
  for await (const { body } of storedEvents(session, after)) yield JSON.parse(body) as SessionEvent
}

async function* storedEvents(session: SessionHandle, after: number) {
  let position = after
  for (;;) {
    const { row, events } = await session.read(position, PAGE)
    yield* events
    position = events.at(-1)?.seq ?? row?.seq ?? position
    if (position >= (row?.seq ?? 0)) return
  }
}
