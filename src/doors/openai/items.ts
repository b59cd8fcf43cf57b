/**
 * Items of OpenAI's API. Each message of a turn is one, by an id that says where it is in a log:
 *
 *     msg_SESSION_t12_0  the first message that the agent added in turn t12
 *     msg_SESSION_i12_0  the first message of the input of turn t12
 *     msg_SESSION_n3_0   the first of the items that a client added with the note at 3
 *
 * An item of a session that the caller may not see, or that is closed, does not exist.
 */
import {
  asHoldfastError,
  HoldfastError,
  invalid,
  type ErrorCode,
  type Holdfast,
  type SessionHandle,
} from '../../core/index.ts'
import { oneOf } from '../../schema/contract.ts'
import { Type } from '../../schema/typebox.ts'
import { turnOutcome } from '../../wire/answer-text.ts'
import { messagesIn, type ChatMessage } from './messages.ts'
import { deletedTurns, eventsOf, notesOf } from './notes.ts'

export type Item = ChatMessage & {
  readonly id: string
  /** The turn was cut short within it. */
  readonly isPartial?: boolean
  /** It is not there any more, but a page may still begin after it. */
  readonly isDeleted?: boolean
}

/** Of an answer, of an input, or added by a client. */
type ItemKind = 't' | 'i' | 'n'

const ITEM = /^msg_([\w.:~-]+)_([tin])([1-9]\d{0,14})_(\d{1,6})$/
const ITEMS_MAX = 100
const ITEMS = 20
/** What is said of a session or a turn that is not there. */
const ABSENT: readonly ErrorCode[] = ['session_unknown', 'session_erased', 'turn_unknown']

export const PAGE_FIELDS = {
  after: Type.String({ description: "As OpenAI's." }),
  limit: Type.Integer({ minimum: 1, maximum: ITEMS_MAX, description: "As OpenAI's." }),
  order: oneOf(['asc', 'desc'], { description: "As OpenAI's." }),
}

type PageOptions = {
  readonly after?: string
  readonly limit?: number
  readonly order?: 'asc' | 'desc'
}

export function itemId(session: string, kind: ItemKind, seq: number, index: number): string {
  return `msg_${session}_${kind}${seq}_${index}`
}

/** The session that an item is in, by its id; null if this is no id of an item. */
export function sessionOfItem(id: string): string | null {
  return ITEM.exec(id)?.[1] ?? null
}

export function itemUnknown(id: string, field?: string): HoldfastError {
  const details = field === undefined ? {} : { field }
  return new HoldfastError('turn_unknown', `there is no item ${id}`, details)
}

/** Reads items by their ids for one request: of each turn once, however many of it are named. */
export class ItemReader {
  readonly #holdfast: Holdfast
  /** By their session and their turn, or the session alone for those that a client added. */
  readonly #items = new Map<string, Promise<ReadonlyMap<string, Item>>>()
  readonly #deleted = new Map<string, Promise<ReadonlySet<string>>>()

  constructor(holdfast: Holdfast) {
    this.#holdfast = holdfast
  }

  /** One item, wherever it is; null if there is none for this caller. */
  async read(id: string): Promise<Item | null> {
    const [, session, kind, seq] = ITEM.exec(id) ?? []
    if (session === undefined) return null
    const turn = kind === 'n' ? null : `t${seq}`
    const place = `${session} ${turn}`
    const items = this.#items.get(place) ?? this.#readPlace(session, turn)
    this.#items.set(place, items)
    return (await items).get(id) ?? null
  }

  async #readPlace(id: string, turn: string | null): Promise<ReadonlyMap<string, Item>> {
    const found = new Map<string, Item>()
    try {
      const session = this.#holdfast.session(id)
      const { row } = await session.read(0, 0)
      if (row?.state !== 'open' || Number(turn?.slice(1) ?? 0) > row.seq) return found
      if (turn !== null && (await this.#deletedIn(session)).has(turn)) return found
      const items = turn === null ? addedItems(session) : saidItems(session, turn)
      for await (const item of items) if (item.isDeleted !== true) found.set(item.id, item)
    } catch (error) {
      if (!ABSENT.includes(asHoldfastError(error).code)) throw error
    }
    return found
  }

  #deletedIn(session: SessionHandle): Promise<ReadonlySet<string>> {
    const deleted = this.#deleted.get(session.id) ?? deletedTurns(session, 0)
    this.#deleted.set(session.id, deleted)
    return deleted
  }
}

/** What a turn was given, after as many items of its input. */
export function inputItems(
  session: string,
  turn: string,
  messages: readonly ChatMessage[],
  before = 0,
): readonly Item[] {
  const seq = Number(turn.slice(1))
  return messages.map((message, index) => {
    return { ...message, id: itemId(session, 'i', seq, before + index) }
  })
}

/** What was said in all turns of a session, in their order, or in one of them. */
export async function* saidItems(session: SessionHandle, only?: string): AsyncGenerator<Item> {
  let [inputs, answers] = [0, 0]
  const after = only === undefined ? 0 : Number(only.slice(1)) - 1
  for await (const event of eventsOf(session, after)) {
    if (!('turn' in event) || (only !== undefined && event.turn !== only)) continue
    if (event.type === 'turn.started') [inputs, answers] = [0, 0]
    if (event.type === 'turn.started' || event.type === 'turn.steered') {
      const messages = messagesIn(event.input)
      yield* inputItems(session.id, event.turn, messages, inputs)
      inputs += messages.length
    }
    if (event.type === 'message.added') {
      const id = itemId(session.id, 't', Number(event.turn.slice(1)), answers)
      answers += 1
      yield { id, role: 'assistant', content: event.text, isPartial: event.partial === true }
    }
    if (only !== undefined && turnOutcome(event) !== null) return
  }
}

/** The items that clients have added to a conversation, by the session that has its facts. */
export async function* addedItems(facts: SessionHandle): AsyncGenerator<Item> {
  const deleted = new Set<string>()
  for await (const { data } of notesOf(facts, 'openai.item_deleted')) deleted.add(data.item)
  for await (const { seq, data } of notesOf(facts, 'openai.items')) {
    yield* noted(facts.id, seq, data.items).map((item) => {
      return { ...item, isDeleted: deleted.has(item.id) }
    })
  }
}

/** Those that are still there, as messages. */
export async function presentItems(facts: SessionHandle): Promise<readonly ChatMessage[]> {
  const messages: ChatMessage[] = []
  for await (const { role, content, isDeleted: isGone } of addedItems(facts)) {
    if (isGone !== true) messages.push({ role, content })
  }
  return messages
}

/** Items that were added with the note at `seq`. */
export function noted(
  session: string,
  seq: number,
  messages: readonly ChatMessage[],
): readonly Item[] {
  return messages.map((message, index) => ({ ...message, id: itemId(session, 'n', seq, index) }))
}

export function itemView({ id, role, content, isPartial = false }: Item) {
  const part =
    role === 'assistant' ? textPart(content) : { type: 'input_text' as const, text: content }
  return { id, type: 'message', status: itemStatus(isPartial), role, content: [part] }
}

export function itemStatus(isPartial: boolean): string {
  return isPartial ? 'incomplete' : 'completed'
}

export function textPart(text: string) {
  return { type: 'output_text', text, annotations: [], logprobs: [] }
}

/** One page of items, which come the oldest first and are shown the newest first. */
export async function pageOf(
  items: AsyncIterable<Item> | Iterable<Item>,
  { after, limit = ITEMS, order = 'desc' }: PageOptions,
) {
  const isAscending = order === 'asc'
  const page: Item[] = []
  let isFound = after === undefined
  for await (const item of items) {
    if (item.id === after) isFound = true
    if (item.id === after && !isAscending) break
    if ((isAscending && !isFound) || item.id === after || item.isDeleted === true) continue
    page.push(item)
    // One more than the limit says that there are more.
    if (page.length > limit && isAscending) break
    if (page.length > limit + 1) page.shift()
  }
  if (!isFound) throw invalid('after', 'must be the id of an item of this list')
  return listView(isAscending ? page : page.toReversed(), limit)
}

export function listView(items: readonly Item[], limit = items.length) {
  const data = items.slice(0, limit).map(itemView)
  const [first_id = null, last_id = null] = [data[0]?.id, data.at(-1)?.id]
  return { object: 'list', data, first_id, last_id, has_more: items.length > limit }
}
