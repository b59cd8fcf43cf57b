/** Shows the part of the log that the address names, and scrolls there. */
import { useEffect, useRef } from 'preact/hooks'
import type { ListHandle } from '../shared/virtual-list.tsx'
import type { SessionModel } from './session-model.ts'

/** `seq`: the position of what is wanted, or 0; `find`: its place in the list, or -1. */
export function useJump(
  model: SessionModel,
  handle: { readonly current: ListHandle | null },
  { seq, find }: { readonly seq: number; readonly find: () => number },
): void {
  const done = useRef(0)
  const { history } = model
  const isReading = history.isReading.value
  const shown = history.shown.value
  useEffect(() => {
    if (seq === 0) done.current = 0
    if (seq === 0 || done.current === seq || isReading) return
    if (!shown.has(seq) && history.hasEarlier) return void history.show(seq)
    done.current = seq
    const index = find()
    if (index !== -1) handle.current?.scrollToIndex(index, 'start')
  }, [seq, shown, isReading])
}
