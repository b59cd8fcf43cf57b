/** Moving a turn that waits among the others of the same person: by buttons, or by dragging it. */
import { useState } from 'preact/hooks'
import { api } from '../../shared/server.ts'
import { Button } from '../../shared/parts.tsx'
import type { QueueEntry, SessionModel } from '../session-model.ts'

export type Mover = {
  /** The turns that may be moved, in order. */
  readonly own: readonly string[]
  readonly dragged: string | null
  readonly drag: (turn: string | null) => void
  /** To the place of another one of them. */
  readonly moveTo: (turn: string, place: number) => void
  /** What was done, in words. */
  readonly said: string
}

export function useMover(
  model: SessionModel,
  rows: readonly QueueEntry[],
  fail: (problem: string) => void,
): Mover {
  const own = rows.flatMap((row) => (row.state === 'queued' && row.mayMove ? [row.turn] : []))
  const [dragged, drag] = useState<string | null>(null)
  const [said, setSaid] = useState('')
  const move = async (turn: string, place: number): Promise<void> => {
    const others = own.filter((other) => other !== turn)
    fail('')
    try {
      model.queue.value = await api.move(model.id, turn, others[place] ?? null)
      setSaid(`Turn ${turn} is number ${place + 1} of yours.`)
    } catch (error) {
      fail(`Not moved: ${(error as Error).message}`)
      await model.refresh()
    }
  }
  const moveTo = (turn: string, place: number): void => {
    const isThere = own.indexOf(turn) === place || place < 0 || place >= own.length
    if (!isThere) void move(turn, place).then(() => focusAgain(turn))
  }
  return { own, dragged, drag, moveTo, said }
}

/** A row that has moved in the document has lost the focus. */
function focusAgain(turn: string): void {
  if (document.activeElement !== document.body) return
  const row = document.querySelector(`.queue [data-id="${CSS.escape(turn)}"]`)
  row?.querySelector<HTMLElement>('button:not([disabled])')?.focus()
}

export function MoveButtons({ turn, mover }: { readonly turn: string; readonly mover: Mover }) {
  const place = mover.own.indexOf(turn)
  return (
    <span class="move-buttons">
      <Button
        label={`Move ${turn} up`}
        disabled={place === 0}
        onClick={() => mover.moveTo(turn, place - 1)}
      >
        ↑
      </Button>
      <Button
        label={`Move ${turn} down`}
        disabled={place === mover.own.length - 1}
        onClick={() => mover.moveTo(turn, place + 1)}
      >
        ↓
      </Button>
    </span>
  )
}

/** What lets a row be dragged onto another one that may be moved. */
export function dragProps(turn: string | null, { own, dragged, drag, moveTo }: Mover) {
  if (turn === null || own.length < 2) return {}
  return {
    draggable: true,
    'data-dragged': dragged === turn ? '' : undefined,
    onDragStart: (event: DragEvent) => {
      event.dataTransfer?.setData('text/plain', turn)
      drag(turn)
    },
    onDragEnd: () => drag(null),
    onDragOver: (event: DragEvent) => {
      if (dragged !== null) event.preventDefault()
    },
    onDrop: (event: DragEvent) => {
      event.preventDefault()
      if (dragged !== null) moveTo(dragged, own.indexOf(turn))
      drag(null)
    },
  }
}
