/** A turn: what was asked, what the agent did and said, and how it ended. */
import type { ComponentChildren } from 'preact'
import { memo } from 'preact/compat'
import { useState } from 'preact/hooks'
import { useClipped } from '../../shared/clipped.tsx'
import { Markdown } from '../../shared/markdown.tsx'
import { clockTime, duration, fullTime, now, plural } from '../../shared/moment.ts'
import { Button, Status } from '../../shared/parts.tsx'
import { shownName, shownText } from '../../shared/shown-text.ts'
import { Value } from '../../shared/code-block.tsx'
import type { TurnModel } from '../log-window.ts'
import type { SessionModel } from '../session-model.ts'
import { Blobs } from './blobs.tsx'
import { ToolCard } from './tool-card.tsx'
import { TurnActions } from './turn-actions.tsx'
import { outcomeText, type TurnEntry, type TurnView } from './turn-view.ts'

/** So many steps of a turn are in the document: an agent may have made thousands. */
const STEPS_SHOWN = 100
/** More of what was asked is shown on request. */
const QUESTION_CHARS_MAX = 20_000

type TurnProps = { readonly turn: TurnModel; readonly model: SessionModel }

/** Drawn again only if the turn changes: the list around it changes often. */
export const Turn = memo(function Turn({ turn, model }: TurnProps) {
  const view = turn.view.value
  const { id, state, entries } = view
  const isRunning = state === 'running' && model.running.value === id
  return (
    <article class="turn" data-turn={id} data-state={state} aria-label={`Turn ${id}`}>
      <h3 class="seen-only-by-readers">Turn {id}</h3>
      <Entries entries={entries} view={view} model={model} />
      {isRunning ? <LiveAnswer view={view} model={model} /> : null}
      <footer class="turn-foot">
        <TurnState view={view} />
        <TurnFacts view={view} />
        <TurnActions view={view} model={model} />
      </footer>
    </article>
  )
})

type EntriesProps = {
  readonly entries: readonly TurnEntry[]
  readonly view: TurnView
  readonly model: SessionModel
}

/** What was asked, and the last steps; more of them on request. */
function Entries({ entries, view, model }: EntriesProps) {
  const [count, setCount] = useState(STEPS_SHOWN)
  const hidden = Math.max(0, entries.length - 1 - count)
  const shown = (from: number, to: number) =>
    entries
      .slice(from, to)
      .map((entry, index) => <Entry key={from + index} entry={entry} view={view} model={model} />)
  return (
    <>
      {shown(0, 1)}
      {hidden === 0 ? null : (
        <Button kind="plain" class="more-steps" onClick={() => setCount(count + STEPS_SHOWN)}>
          {plural(hidden, 'earlier step')}: show more
        </Button>
      )}
      {shown(1 + hidden, entries.length)}
    </>
  )
}

/** What is being said: alone, so that each part of it changes nothing else. */
function LiveAnswer({ view, model }: { readonly view: TurnView; readonly model: SessionModel }) {
  const live = model.live.value?.turn === view.id ? model.live.value.text : null
  return (
    <>
      {live === null ? null : (
        <div class="bubble assistant" data-live="">
          <Markdown text={live} isGrowing />
        </div>
      )}
      <Working view={view} model={model} isSilent={live === null} />
    </>
  )
}

function Entry({
  entry,
  view,
  model,
}: {
  readonly entry: TurnEntry
  readonly view: TurnView
  readonly model: SessionModel
}) {
  switch (entry.type) {
    case 'input':
      return <Question entry={entry} model={model} />
    case 'message':
      return (
        <div class="bubble assistant" data-partial={entry.isPartial ? '' : undefined}>
          <Markdown text={entry.text} />
        </div>
      )
    case 'tool':
      return <ToolCard {...entry} isRunning={view.state === 'running'} />
    case 'thought':
      return (
        <details class="thought">
          <summary>Reasoning</summary>
          <Markdown text={entry.text} />
        </details>
      )
    case 'plan':
      return <Plan entries={entry.entries} />
    case 'ask':
      return (
        <p class="note asked">
          <span class="note-kind">Asked</span> {shownText(entry.opened.question)}
          {entry.settled === null ? null : (
            <span class="asked-outcome"> → {shownText(outcomeText(entry.settled))}</span>
          )}
        </p>
      )
    case 'content':
      return (
        <details class="note">
          <summary>Other content</summary>
          <Value value={entry.data} label="Content" />
        </details>
      )
    case 'note':
      return <p class="note">{shownText(entry.text)}</p>
  }
}

const HOW = {
  asked: null,
  joined: 'joined',
  steering: 'added while it runs, not taken yet',
  steered: 'added while it ran',
} as const

type InputEntry = Extract<TurnEntry, { type: 'input' }>

function Question({ entry, model }: { readonly entry: InputEntry; readonly model: SessionModel }) {
  const { how, text, parts, at, by } = entry
  const [beginning, more] = useClipped(text, QUESTION_CHARS_MAX)
  return (
    <div class="question" data-how={how}>
      <div class="bubble user" dir="auto">
        {shownText(beginning)}
        {more}
        <Blobs parts={parts} access={model.access} />
      </div>
      <p class="question-facts">
        {by === null || by === 'local' ? null : <span>{shownName(by)}</span>}
        {HOW[how] === null ? null : <span>{HOW[how]}</span>}
        <time title={fullTime(at)}>{clockTime(at)}</time>
      </p>
    </div>
  )
}

function Plan({ entries }: { readonly entries: readonly { content: string; status: string }[] }) {
  return (
    <section class="plan" aria-label="Plan">
      <h4>Plan</h4>
      <ol>
        {entries.map(({ content, status }, index) => (
          <li key={index} data-status={status}>
            <span class="plan-mark" aria-hidden="true" />
            <span>{shownText(content)}</span>
            <span class="seen-only-by-readers"> ({shownName(status)})</span>
          </li>
        ))}
      </ol>
    </section>
  )
}

/** A turn that says nothing still runs: its time shows it. */
function Working({
  view,
  model,
  isSilent,
}: {
  readonly view: TurnView
  readonly model: SessionModel
  readonly isSilent: boolean
}) {
  if (model.state.value.name === 'ended') return null
  const since = view.startedAt ?? now.value
  const asks = model.asks.value.length
  const isStopping = model.stopping.value === view.id
  const words = isStopping ? 'Stopping…' : asks > 0 ? 'Waits for an answer' : 'Working'
  return (
    <p class="working" data-silent={isSilent ? '' : undefined}>
      <span class="pulse" aria-hidden="true" />
      {words} <span class="muted">{duration(Math.max(0, now.value - since))}</span>
    </p>
  )
}

function TurnState({ view }: { readonly view: TurnView }): ComponentChildren {
  const { state, why } = view
  if (state === 'done' || state === 'running') return null
  if (state === 'queued') {
    return (
      <p class="state">
        <Status status="queued">waits for its turn</Status>
      </p>
    )
  }
  return (
    <p class="state">
      <Status status={state}>{shownText(why)}</Status>
    </p>
  )
}

function TurnFacts({ view: { queuedAt, startedAt, endedAt, usage } }: { view: TurnView }) {
  const facts: string[] = []
  if (startedAt !== null && endedAt !== null) facts.push(duration(endedAt - startedAt))
  if (queuedAt !== null && startedAt !== null && startedAt - queuedAt >= 100) {
    facts.push(`waited ${duration(startedAt - queuedAt)}`)
  }
  if (usage !== null) {
    const tokens = usage.inputTokens + usage.outputTokens
    if (tokens > 0) facts.push(`${tokens.toLocaleString()} tokens`)
    if (usage.costUsd > 0) facts.push(`$${usage.costUsd.toFixed(usage.costUsd < 0.1 ? 4 : 2)}`)
  }
  if (facts.length === 0) return null
  return <p class="turn-facts">{facts.join(' · ')}</p>
}
