/** How a hand moves a timeline: by wheel, by dragging, by two fingers, and by keys. */
import { useEffect, useRef } from 'preact/hooks'

export type RangeMover = {
  /** `part`: where in the width, from 0 to 1, time stays where it is. */
  readonly zoom: (factor: number, part?: number) => void
  /** By so many parts of the width. */
  readonly move: (part: number) => void
  readonly fit: () => void
}

/** A pointer that moves further drags, and does not click. */
const CLICK_PX = 4
const KEY_ZOOM = 1.5
const KEY_MOVE = 0.2

export function useGestures(
  box: { readonly current: HTMLElement | null },
  mover: RangeMover,
): void {
  const latest = useRef(mover)
  latest.current = mover
  useEffect(() => {
    const { current } = box
    if (current === null) return
    const hand = new Hand(current, () => latest.current)
    return () => hand.stop()
  }, [])
}

class Hand {
  readonly #box: HTMLElement
  readonly #mover: () => RangeMover
  readonly #pointers = new Map<number, number>()
  readonly #stop = new AbortController()
  #begunAt = 0
  #isDragging = false

  constructor(box: HTMLElement, mover: () => RangeMover) {
    this.#box = box
    this.#mover = mover
    const { signal } = this.#stop
    // Not passive: the wheel zooms, and does not scroll the page.
    box.addEventListener('wheel', this.#wheel, { signal, passive: false })
    box.addEventListener('pointerdown', this.#down, { signal })
    box.addEventListener('pointermove', this.#drag, { signal })
    box.addEventListener('pointerup', this.#up, { signal })
    box.addEventListener('pointercancel', this.#up, { signal })
    box.addEventListener('click', this.#click, { signal, capture: true })
    box.addEventListener('dragstart', (event) => event.preventDefault(), { signal })
  }

  stop(): void {
    this.#stop.abort()
  }

  #part(x: number): number {
    const { left, width } = this.#box.getBoundingClientRect()
    return (x - left) / Math.max(1, width)
  }

  readonly #wheel = (event: WheelEvent): void => {
    event.preventDefault()
    const { deltaX, deltaY, shiftKey, clientX, deltaMode } = event
    const unit = deltaMode === 0 ? 1 : 40
    const isSideways = shiftKey || Math.abs(deltaX) > Math.abs(deltaY)
    const way = (isSideways && deltaX !== 0 ? deltaX : deltaY) * unit
    if (isSideways) this.#mover().move(way / Math.max(1, this.#box.clientWidth))
    else this.#mover().zoom(Math.exp(Math.max(-100, Math.min(100, way)) / 300), this.#part(clientX))
  }

  readonly #down = (event: PointerEvent): void => {
    if (event.button !== 0) return
    if (this.#pointers.size === 0) {
      this.#begunAt = event.clientX
      this.#isDragging = false
    }
    this.#pointers.set(event.pointerId, event.clientX)
  }

  readonly #drag = (event: PointerEvent): void => {
    const { pointerId, clientX } = event
    const before = this.#pointers.get(pointerId)
    if (before === undefined) return
    if (!this.#isDragging && Math.abs(clientX - this.#begunAt) < CLICK_PX) return
    if (!this.#isDragging) this.#box.setPointerCapture(pointerId)
    this.#isDragging = true
    const other = [...this.#pointers].find(([id]) => id !== pointerId)?.[1]
    this.#pointers.set(pointerId, clientX)
    if (other === undefined) {
      return this.#mover().move((before - clientX) / Math.max(1, this.#box.clientWidth))
    }
    const [was, is] = [Math.abs(before - other), Math.abs(clientX - other)]
    if (was > 1 && is > 1) this.#mover().zoom(was / is, this.#part((clientX + other) / 2))
  }

  readonly #up = ({ pointerId }: PointerEvent): void => {
    this.#pointers.delete(pointerId)
  }

  readonly #click = (event: MouseEvent): void => {
    if (!this.#isDragging) return
    this.#isDragging = false
    event.preventDefault()
    event.stopPropagation()
  }
}

/** Of the keys that move a timeline; true if the key is one of them. */
export function movedByKey({ key, ctrlKey, metaKey, altKey }: KeyboardEvent, mover: RangeMover) {
  if (ctrlKey || metaKey || altKey) return false
  const actions: Readonly<Record<string, () => void>> = {
    '+': () => mover.zoom(1 / KEY_ZOOM),
    '=': () => mover.zoom(1 / KEY_ZOOM),
    '-': () => mover.zoom(KEY_ZOOM),
    '0': () => mover.fit(),
    ArrowLeft: () => mover.move(-KEY_MOVE),
    ArrowRight: () => mover.move(KEY_MOVE),
  }
  const action = actions[key]
  action?.()
  return action !== undefined
}
