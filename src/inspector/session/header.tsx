/** What a session is: its name, state and settings, and what can be done with it. */
import { useState } from 'preact/hooks'
import type { SessionView } from '../../wire/views.ts'
import { duration, fullTime } from '../shared/moment.ts'
import { Ago, CopyButton, Labels, SessionName, Status, Tag } from '../shared/parts.tsx'
import { href } from '../shared/router.ts'
import { shownName } from '../shared/shown-text.ts'
import { SessionActions } from './actions.tsx'
import { ConnectionBadge } from './badge.tsx'
import type { SessionModel } from './session-model.ts'
import { SettingTags } from './settings.tsx'

export function SessionHeader({ model }: { readonly model: SessionModel }) {
  const info = model.info.value
  const [isOpen, setOpen] = useState(false)
  return (
    <header class="session-head">
      <div class="session-title">
        {model.access.link === null ? (
          <a class="back" href={href(['sessions'])} aria-label="← Sessions">
            <span aria-hidden="true">←</span>
            <span class="back-words">Sessions</span>
          </a>
        ) : null}
        <h1>
          <SessionName id={model.id} name={info?.key ?? null} />
        </h1>
        <Status status={statusOf(model)} />
        <ConnectionBadge model={model} />
        <span class="spring" />
        <SessionActions model={model} />
      </div>
      {info === null ? null : (
        <div class="facts">
          <Tag title="Its agent">{shownName(info.agent)}</Tag>
          <SettingTags settings={info.settings} />
          <Labels labels={info.labels ?? {}} />
          <Usage info={info} />
          <span class="muted small">
            active <Ago at={info.updatedAt} />
          </span>
          <button
            type="button"
            class="button plain small"
            aria-expanded={isOpen}
            onClick={() => setOpen(!isOpen)}
          >
            {isOpen ? 'Less' : 'More'}
          </button>
        </div>
      )}
      {info === null || !isOpen ? null : <Details info={info} />}
    </header>
  )
}

function statusOf(model: SessionModel): string {
  const state = model.state.value
  const info = model.info.value
  if (info?.state === 'closed' || (state.name === 'ended' && state.code === 'session_closed')) {
    return 'closed'
  }
  if (model.asks.value.length > 0) return 'waiting'
  if (model.running.value !== null) return 'running'
  if (model.queue.value.length > 0) return 'queued'
  const last = model.log.items.value.findLast(({ type }) => type === 'turn')
  return last?.type === 'turn' && last.turn.view.value.state === 'failed' ? 'failed' : 'idle'
}

function Usage({ info: { usage } }: { readonly info: SessionView }) {
  if (usage === undefined) return null
  const { inputTokens, outputTokens, cachedTokens, costUsd } = usage
  const tokens = inputTokens + outputTokens
  if (tokens === 0 && costUsd === 0) return null
  const words = [
    `${inputTokens.toLocaleString()} input tokens, ${cachedTokens.toLocaleString()} of them cached`,
    `${outputTokens.toLocaleString()} output tokens`,
  ]
  return (
    <span class="muted small" title={words.join('; ')}>
      {tokens.toLocaleString()} tokens{costUsd === 0 ? '' : `, $${costUsd.toFixed(2)}`}
    </span>
  )
}

/** What is looked up now and then. */
function Details({ info }: { readonly info: SessionView }) {
  const { id, reconnect, exclusive, graceMs, ttlMs, createdAt, principal, turns, seq } = info
  const settings = Object.entries(info.settings ?? {})
  const rows: readonly (readonly [string, string])[] = [
    ['Reconnect policy', reconnect + (exclusive ? ', exclusive: one client drives' : '')],
    ['Grace time', reconnect === 'none' ? 'none' : duration(graceMs)],
    ['Closes when idle for', ttlMs === null ? 'never' : duration(ttlMs)],
    ['Created', fullTime(createdAt)],
    ['Owner', principal],
    ['Turns', `${turns} started`],
    ['Log', `${seq} events`],
    ...settings.map(
      ([name, value]) =>
        [`Setting ${name}`, typeof value === 'string' ? value : JSON.stringify(value)] as const,
    ),
  ]
  return (
    <dl class="details">
      <dt>Id</dt>
      <dd>
        <code>{id}</code>{' '}
        <CopyButton text={id} label="Copy the id">
          Copy
        </CopyButton>
      </dd>
      {rows.map(([name, value]) => (
        <div class="detail-row" key={name}>
          <dt>{shownName(name)}</dt>
          <dd>{shownName(value)}</dd>
        </div>
      ))}
    </dl>
  )
}
