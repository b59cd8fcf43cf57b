/** What can be done with one turn: copy, retry, fork from it, look at its events. */
import { useState } from 'preact/hooks'
import type { Input } from '../../../client/index.ts'
import { sessionPath } from '../../../wire/views.ts'
import { CopyButton, Button } from '../../shared/parts.tsx'
import { go, sessionHref } from '../../shared/router.ts'
import { api } from '../../shared/server.ts'
import type { SessionModel } from '../session-model.ts'
import type { TurnView } from './turn-view.ts'

export function TurnActions({
  view,
  model,
}: {
  readonly view: TurnView
  readonly model: SessionModel
}) {
  const { id, input, state, entries } = view
  const answer = entries.flatMap((entry) => (entry.type === 'message' ? [entry.text] : []))
  const hasFailed = ['failed', 'interrupted', 'cancelled', 'expired'].includes(state)
  const isGuest = model.access.link !== null
  const mayRetry = hasFailed && input !== null && model.may('talk') && model.isOpen.value
  return (
    <div class="turn-actions">
      {mayRetry ? <RetryButton model={model} input={input} /> : null}
      {answer.length === 0 ? null : (
        <CopyButton text={answer.join('\n\n')} label="Copy the answer">
          Copy
        </CopyButton>
      )}
      {input === null || isGuest ? null : (
        <CopyButton text={() => curlLine(model.id, input)} label="Copy this turn as curl">
          curl
        </CopyButton>
      )}
      {isGuest || state !== 'done' || !model.may('talk') ? null : (
        <ForkButton model={model} turn={id} />
      )}
      {isGuest ? null : (
        <a class="button plain" href={sessionHref(model.id, 'log', { turn: id })}>
          Events
        </a>
      )}
    </div>
  )
}

/** Sends the same input again, as a turn of its own. */
function RetryButton({ model, input }: { readonly model: SessionModel; readonly input: Input }) {
  return (
    <Button kind="plain" onClick={() => model.retry(input)}>
      Retry
    </Button>
  )
}

function ForkButton({ model, turn }: { readonly model: SessionModel; readonly turn: string }) {
  const [isBusy, setBusy] = useState(false)
  const fork = (): void => {
    setBusy(true)
    api
      .fork(model.id, turn)
      .then(({ id }) => go(sessionHref(id)))
      .catch((error: Error) => {
        model.problem.value = `Not forked: ${error.message}`
      })
      .finally(() => setBusy(false))
  }
  return (
    <Button
      kind="plain"
      disabled={isBusy}
      onClick={fork}
      title="A new session that continues from the end of this turn"
    >
      Fork
    </Button>
  )
}

/** A command that sends the same turn; with parts that were stored with the session. */
export function curlLine(session: string, input: Input): string {
  const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`
  const token = api.token === null ? '' : ' -H "authorization: Bearer $HOLDFAST_TOKEN"'
  const url = quoted(`${api.url}${sessionPath(session)}/turns`)
  const body = quoted(JSON.stringify({ input }))
  return `curl -s ${url} -H 'content-type: application/json'${token} -d ${body}`
}
