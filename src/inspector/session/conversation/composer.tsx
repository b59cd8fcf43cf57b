/** The box for a turn, how it is sent if another one runs, and what stops the running one. */
import { useLayoutEffect, useRef } from 'preact/hooks'
import { Button, Problem, Select } from '../../shared/parts.tsx'
import { sessionHref } from '../../shared/router.ts'
import { useDraft } from '../../shared/memory.ts'
import type { SessionModel } from '../session-model.ts'

const BUSY = [
  ['queue', 'queue it'],
  ['steer', 'add it to that turn'],
  ['interrupt', 'stop that turn'],
  ['collect', 'join what waits'],
  ['reject', 'give up'],
] as const

type Busy = (typeof BUSY)[number][0]

export function Composer({
  model,
  sent,
}: {
  readonly model: SessionModel
  readonly sent: () => void
}) {
  const text = model.outbox.text
  const busy = useDraft('busy')
  const box = useGrowing(text.value)
  if (model.isBrowser.value) return <BrowserNote session={model.id} />
  const isOpen = model.isOpen.value && model.may('talk')
  const send = (): void => {
    const value = text.peek()
    if (value.trim() === '' || !isOpen) return
    text.value = ''
    model.send(value, (busy.peek() || 'queue') as Busy)
    sent()
  }
  return (
    <form
      class="send"
      onSubmit={(event) => {
        event.preventDefault()
        send()
      }}
    >
      {model.problem.value === '' ? null : <Problem>{model.problem.value}</Problem>}
      <textarea
        ref={box}
        name="text"
        rows={2}
        aria-label="What to say"
        placeholder={placeholder(model, isOpen)}
        disabled={!isOpen}
        value={text.value}
        onInput={(event) => (text.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return
          event.preventDefault()
          send()
        }}
      />
      <div class="row">
        <label class="busy">
          If a turn runs:{' '}
          <Select
            name="busy"
            options={BUSY}
            value={busy.value || 'queue'}
            disabled={!isOpen}
            onChange={(value) => (busy.value = value)}
          />
        </label>
        <QueueLink model={model} />
        <span class="buttons">
          <StopButton model={model} isOpen={isOpen} />
          <Button kind="primary" type="submit" disabled={!isOpen}>
            Send
          </Button>
        </span>
      </div>
    </form>
  )
}

function placeholder(model: SessionModel, isOpen: boolean): string {
  if (isOpen) return 'Say something. Return sends, Shift and Return begins a new line.'
  if (!model.isOpen.value) return 'This page is not connected to the session.'
  return model.state.value.name === 'live' ? 'You may watch this session only.' : 'Connecting…'
}

/** As high as its text, within bounds. */
function useGrowing(text: string) {
  const box = useRef<HTMLTextAreaElement>(null)
  useLayoutEffect(() => {
    const { current } = box
    if (current === null) return
    current.style.height = 'auto'
    current.style.height = `${Math.min(current.scrollHeight + 2, window.innerHeight * 0.4)}px`
  }, [text])
  return box
}

function StopButton({ model, isOpen }: { readonly model: SessionModel; readonly isOpen: boolean }) {
  const running = model.running.value
  if (running === null || !isOpen) return null
  const isStopping = model.stopping.value === running
  return (
    <Button kind="danger" class="cancel" disabled={isStopping} onClick={() => model.stop()}>
      {isStopping ? 'Stopping…' : 'Stop the turn'}
    </Button>
  )
}

function QueueLink({ model }: { readonly model: SessionModel }) {
  const { length } = model.queue.value
  if (length === 0) return null
  return (
    <a class="queue-link" href={sessionHref(model.id, 'queue')}>
      {length} {length === 1 ? 'waits' : 'wait'} for a turn
    </a>
  )
}

function BrowserNote({ session }: { readonly session: string }) {
  return (
    <p class="browser-note muted">
      This is a browser session: clients drive it over CDP, and it has no conversation. See{' '}
      <a href={sessionHref(session, 'browser')}>its pages</a>.
    </p>
  )
}
