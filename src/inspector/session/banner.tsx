/** Why this page is not connected, in a sentence, and what its reader can do. */
import { useEffect, useState } from 'preact/hooks'
import type { SessionView } from '../../wire/views.ts'
import { go, sessionHref } from '../shared/router.ts'
import { api } from '../shared/server.ts'
import { Button } from '../shared/parts.tsx'
import { labelOf, remedyOf, sentenceOf, type Ended, type Remedy } from './ending.ts'
import type { SessionModel } from './session-model.ts'

/** A lost connection that is back sooner than this is not shown. */
const QUIET_MS = 2_000

export function Banner({ model }: { readonly model: SessionModel }) {
  const state = model.state.value
  const lostAt = model.lostAt.value
  const [isLong, setLong] = useState(false)
  useEffect(() => {
    setLong(false)
    if (lostAt === null) return
    const timer = setTimeout(() => setLong(true), lostAt + QUIET_MS - Date.now())
    return () => clearTimeout(timer)
  }, [lostAt])
  if (state.name === 'ended') return <Ending model={model} ended={state} />
  if (lostAt === null || !isLong) return null
  return (
    <div class="banner" role="alert" data-tone="warn">
      <p>The connection is lost. What you send now is delivered when it is back.</p>
    </div>
  )
}

function Ending({ model, ended }: { readonly model: SessionModel; readonly ended: Ended }) {
  const [problem, setProblem] = useState('')
  const fail = (error: Error): void => setProblem(error.message)
  const remedies: Readonly<Record<Remedy, () => void>> = {
    start_new: () => void startNew(model.info.peek()).catch(fail),
    take_over: () => model.takeOver(),
    reload: () => location.reload(),
    token: () => void api.renewToken(api.token).then(() => model.watch()),
  }
  const remedy = remedyOf(ended)
  return (
    <div class="banner" role="alert" data-tone="bad" data-code={ended.code}>
      <p>{sentenceOf(ended)}</p>
      {problem === '' ? null : <span class="problem">{problem}</span>}
      <div class="buttons">
        <Button kind="primary" data-remedy={remedy} onClick={remedies[remedy]}>
          {labelOf(remedy, ended.code)}
        </Button>
        {ended.code === 'in_use' ? (
          <Button data-remedy="watch" onClick={() => model.watch()}>
            Watch only
          </Button>
        ) : null}
      </div>
    </div>
  )
}

/** Creates a session with the same options; the key is free again. */
async function startNew(info: Partial<SessionView> | null): Promise<void> {
  const { key, agent, reconnect = 'reopen', exclusive = false, graceMs } = info ?? {}
  const created = await api.create({ key: key ?? undefined, agent, reconnect, exclusive, graceMs })
  go(sessionHref(created.id))
}
