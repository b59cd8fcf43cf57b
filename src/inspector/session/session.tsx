/** The page of one session: what it is, its tabs, and its controls. */
import type { ComponentType } from 'preact'
import { useEffect } from 'preact/hooks'
import { BrowserSession } from '../browsers/browser-session.tsx'
import { now } from '../shared/moment.ts'
import { address, go, sessionHref } from '../shared/router.ts'
import { shownName } from '../shared/shown-text.ts'
import { pageTitle } from '../shared/title.ts'
import { Attachments } from './attachments/attachments.tsx'
import { Banner } from './banner.tsx'
import { Conversation } from './conversation/conversation.tsx'
import { SessionHeader } from './header.tsx'
import { Log } from './log/log.tsx'
import { Queue } from './queue/queue.tsx'
import type { SessionModel } from './session-model.ts'
import { Timeline } from './timeline/timeline.tsx'

type SessionTab = {
  readonly name: string
  readonly label: string
  readonly view: ComponentType<{ readonly model: SessionModel }>
  /** The number behind the label; 0 is not shown. */
  readonly count?: (model: SessionModel) => number
  /** By default always. */
  readonly isThere?: (model: SessionModel) => boolean
}

/** A new tab is a component in a folder of its own, and a line here. */
export const TABS: readonly SessionTab[] = [
  {
    name: 'browser',
    label: 'Browser',
    view: ({ model }) => (
      <div class="panel-body">
        <BrowserSession session={model.id} />
      </div>
    ),
    isThere: (model) => model.isBrowser.value && model.access.link === null,
  },
  {
    name: 'conversation',
    label: 'Conversation',
    view: Conversation,
    count: (model) => model.asks.value.length,
  },
  { name: 'timeline', label: 'Timeline', view: Timeline },
  {
    name: 'queue',
    label: 'Queue',
    view: Queue,
    count: (model) => model.queue.value.length,
    // Guests with a link cannot read it.
    isThere: ({ access }) => access.link === null,
  },
  { name: 'log', label: 'Log', view: Log },
  {
    name: 'attachments',
    label: 'Attachments',
    view: Attachments,
    count: (model) => model.info.value?.attachments.length ?? 0,
    // Nor does it show them who else is there.
    isThere: ({ access }) => access.link === null,
  },
]

export function SessionView({ model }: { readonly model: SessionModel }) {
  const [, , wanted] = address.value.path
  const tabs = TABS.filter(({ isThere }) => isThere?.(model) ?? true)
  const tab = tabs.find(({ name }) => name === wanted) ?? tabs[0]
  const title = model.info.value?.key ?? model.id
  useEffect(() => {
    pageTitle.value = shownName(title)
  }, [title])
  useQueueRefresh(model)
  if (tab === undefined) return null
  const View = tab.view
  return (
    <section
      class="session"
      data-id={model.id}
      data-state={model.state.value.name}
      data-tab={tab.name}
    >
      <SessionHeader model={model} />
      <TabList tabs={tabs} current={tab} model={model} />
      <Banner model={model} />
      <div
        class="panel"
        role="tabpanel"
        id={`panel-${tab.name}`}
        aria-labelledby={`tab-${tab.name}`}
        data-tab={tab.name}
      >
        <h2 class="seen-only-by-readers">{tab.label}</h2>
        <View key={`${model.id} ${tab.name}`} model={model} />
      </div>
    </section>
  )
}

/** Waiting requests are not in the log, so the queue is read again while a turn runs. */
function useQueueRefresh(model: SessionModel): void {
  const at = now.value
  const isBusy = model.running.value !== null || model.queue.value.length > 0
  useEffect(() => {
    if (isBusy && model.state.peek().name === 'live') void model.refresh()
  }, [at, isBusy, model])
}

type TabListProps = {
  readonly tabs: readonly SessionTab[]
  readonly current: SessionTab
  readonly model: SessionModel
}

function TabList({ tabs, current, model }: TabListProps) {
  // On a phone not all of them have room.
  useEffect(() => {
    document.getElementById(`tab-${current.name}`)?.scrollIntoView({ block: 'nearest' })
  }, [current.name])
  const choose = (tab: SessionTab): void =>
    go(sessionHref(model.id, tab === tabs[0] ? undefined : tab.name))
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
    if (step === undefined) return
    const next = tabs.at((tabs.indexOf(current) + step) % tabs.length)
    if (next === undefined) return
    choose(next)
    document.getElementById(`tab-${next.name}`)?.focus()
  }
  return (
    <div class="tabs" role="tablist" aria-label="Parts of the session" onKeyDown={onKeyDown}>
      {tabs.map((tab) => {
        const { name, label, count } = tab
        const number = count?.(model) ?? 0
        return (
          <button
            key={name}
            type="button"
            role="tab"
            id={`tab-${name}`}
            data-tab={name}
            aria-selected={tab === current}
            aria-controls={tab === current ? `panel-${name}` : undefined}
            tabIndex={tab === current ? 0 : -1}
            onClick={() => choose(tab)}
          >
            {label}
            {number === 0 ? null : <span class="count">{number}</span>}
          </button>
        )
      })}
    </div>
  )
}
