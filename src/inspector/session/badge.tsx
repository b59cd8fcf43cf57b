/** The state of the connection: live, reconnecting with the remaining time, or why it ended. */
import { duration, now } from '../shared/moment.ts'
import type { SessionModel } from './session-model.ts'

const RADIUS = 7
const CIRCUMFERENCE = 2 * Math.PI * RADIUS

const ENDS: Readonly<Record<string, string>> = {
  session_unknown: 'Unknown session',
  session_closed: 'Closed',
  session_erased: 'Erased',
  in_use: 'In use elsewhere',
  superseded: 'Open elsewhere',
  unreachable: 'Unreachable',
}

export function ConnectionBadge({ model }: { readonly model: SessionModel }) {
  const state = model.state.value
  if (state.name === 'reconnecting') {
    const leftMs = Math.max(0, state.giveUpAt - Math.max(now.value, Date.now()))
    const part = Math.min(1, leftMs / Math.max(1, model.info.value?.graceMs ?? 1))
    const seconds = Math.ceil(leftMs / 1000)
    const left = seconds < 120 ? `${seconds} s` : duration(leftMs)
    return (
      <p class="badge" data-state="reconnecting">
        <svg viewBox="0 0 18 18" aria-hidden="true">
          <circle class="track" cx="9" cy="9" r={RADIUS} />
          <circle
            class="rest"
            cx="9"
            cy="9"
            r={RADIUS}
            stroke-dasharray={`${part * CIRCUMFERENCE} ${CIRCUMFERENCE}`}
          />
        </svg>
        <span>Reconnecting… {left} left</span>
      </p>
    )
  }
  return (
    <p class="badge" data-state={state.name}>
      <span class="dot" aria-hidden="true" />
      <span>{wordsOf(model)}</span>
    </p>
  )
}

function wordsOf(model: SessionModel): string {
  const state = model.state.value
  if (state.name === 'connecting') return 'Connecting…'
  if (state.name === 'ended') return ENDS[state.code] ?? 'Not connected'
  return model.isWatcher.value ? 'Live, watching' : 'Live'
}
