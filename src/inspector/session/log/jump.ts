/** Scrolls to the event that the address names, and reads the log back to it. */
import { useEffect, useRef } from 'preact/hooks'
import type { SessionEvent } from '../../../client/index.ts'
import { address } from '../../shared/router.ts'
import type { ListHandle } from '../../shared/virtual-list.tsx'
import type { SessionModel } from '../session-model.ts'

export function useJump(
  model: SessionModel,
  events: readonly SessionEvent[],
  handle: { readonly current: ListHandle | null },
): void {
  const wanted = Number(address.value.query['event'] ?? 0)
  const shown = useRef(0)
  const from = model.log.from.value
  const isReading = model.isReading.value
  useEffect(() => {
    if (wanted === 0) shown.current = 0
    if (wanted === 0 || shown.current === wanted || isReading) return
    const index = events.findIndex(({ seq }) => seq >= wanted)
    const isKnown = wanted > from
    if (!isKnown && from > 0) return void model.readEarlier()
    shown.current = wanted
    if (index !== -1) handle.current?.scrollToIndex(index, 'auto')
  }, [wanted, events, from, isReading])
}
