/** The conversation: its turns from the end backwards, what is on its way, asks, and the box. */
import { useRef, useState } from 'preact/hooks'
import { AskCard } from '../../asks/ask-card.tsx'
import { Markdown } from '../../shared/markdown.tsx'
import { clockTime } from '../../shared/moment.ts'
import { Button, Empty } from '../../shared/parts.tsx'
import { address, sessionHref, setQuery } from '../../shared/router.ts'
import { shownText } from '../../shared/shown-text.ts'
import { VirtualList, type ListHandle } from '../../shared/virtual-list.tsx'
import type { ConversationItem } from '../log-window.ts'
import type { OutgoingMessage } from '../outbox.ts'
import { useJump } from '../jump.ts'
import type { SessionModel } from '../session-model.ts'
import { Composer } from './composer.tsx'
import { Turn } from './turn.tsx'

type Item =
  | ConversationItem
  | { readonly type: 'sending'; readonly key: string; readonly message: OutgoingMessage }

const TURN_HEIGHT = 160

export function Conversation({ model }: { readonly model: SessionModel }) {
  const handle = useRef<ListHandle | null>(null)
  const [isAtEnd, setAtEnd] = useState(true)
  const { history } = model
  const window = history.shown.value
  const items: readonly Item[] = [
    ...window.items.value,
    ...model.outbox.sending.value.map((message) => ({
      ...{ type: 'sending' as const, key: `sending ${message.id}`, message },
    })),
  ]
  const wanted = address.value.query['turn'] ?? ''
  useJump(model, handle, {
    // A turn's id has the position of its first event.
    seq: Number(wanted.slice(1)) || 0,
    find: () => items.findIndex(({ key }) => key === wanted),
  })
  const isEmpty = items.length === 0
  const isPast = history.isPast.value
  const toEnd = (): void => {
    setQuery({ turn: undefined }, { replace: true })
    history.showEnd()
    handle.current?.scrollToEnd()
  }
  return (
    <div class="conversation-view">
      {isEmpty && window.from.value === 0 && !history.isReading.value ? (
        <div class="conversation-empty">
          <Empty>No messages yet.</Empty>
        </div>
      ) : null}
      <VirtualList<Item>
        key={window.id}
        items={items}
        keyOf={(item) => item.key}
        estimate={TURN_HEIGHT}
        anchor="end"
        role="log"
        label="Conversation"
        class="conversation"
        handle={handle}
        onNearStart={() => void history.readEarlier()}
        onNearEnd={() => void history.readLater()}
        onScrolled={(_isAtStart, isEnd) => setAtEnd(isEnd)}
        before={
          history.hasEarlier ? (
            <p class="reading muted">Reading what was said before…</p>
          ) : undefined
        }
        render={(item) => <ItemView item={item} model={model} />}
      />
      <div class="foot">
        {(isAtEnd && !isPast) || isEmpty ? null : (
          <Button class="to-end" onClick={toEnd}>
            ↓ To the end
          </Button>
        )}
        <OpenAsks model={model} />
        <Composer model={model} sent={toEnd} />
      </div>
    </div>
  )
}

function ItemView({ item, model }: { readonly item: Item; readonly model: SessionModel }) {
  switch (item.type) {
    case 'turn':
      return <Turn turn={item.turn} model={model} />
    case 'note':
      return <p class="note session-note">{shownText(item.text)}</p>
    case 'sending':
      return (
        <article class="turn" data-state="sending">
          <div class="question">
            <div class="bubble user" dir="auto">
              {shownText(item.message.text)}
            </div>
            <p class="question-facts state">
              {isWaiting(model) ? 'waits for its turn' : 'is being sent'}
            </p>
          </div>
        </article>
      )
    case 'earlier':
      return <EarlierMessages item={item} />
  }
}

/** Whether the server holds back requests until the running turn has ended. */
const isWaiting = ({ state, queue }: SessionModel): boolean =>
  state.value.name === 'live' && queue.value.some((entry) => entry.state === 'waiting')

/** What was said before this session began, in the one that it was forked from. */
function EarlierMessages({ item }: { readonly item: Extract<Item, { type: 'earlier' }> }) {
  const { messages, omitted, session } = item
  return (
    <section class="earlier-messages" aria-label="Before this session">
      <p class="note">
        {session === null ? 'Continues an earlier conversation' : 'Forked from '}
        {session === null ? null : <a href={sessionHref(session)}>another session</a>}
        {omitted > 0 ? `; ${omitted} older messages are left out` : ''}
      </p>
      {messages.map(({ role, text, at }, index) => (
        <div key={index} class={role === 'user' ? 'question' : undefined}>
          <div class={`bubble ${role}`} dir="auto">
            {role === 'user' ? shownText(text) : <Markdown text={text} />}
          </div>
          <p class="question-facts">{clockTime(at)}</p>
        </div>
      ))}
    </section>
  )
}

function OpenAsks({ model }: { readonly model: SessionModel }) {
  const asks = model.asks.value
  if (asks.length === 0 || !model.isOpen.value) return null
  return (
    <div class="asks" aria-live="polite">
      {asks.map((ask) => (
        <AskCard
          key={ask.id}
          ask={ask}
          session={model.id}
          answer={(value) => model.answer(ask.id, value)}
          mayAnswer={model.may('answer') || model.state.value.name !== 'live'}
          mayEdit={model.may('edit')}
        />
      ))}
    </div>
  )
}
