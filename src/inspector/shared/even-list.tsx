/**
 * A list of rows that all have the same height, of which only the visible ones are in the document:
 * what it does for each frame does not depend on how many there are. Rows that come or go above the
 * visible ones do not move those.
 */
import type { ComponentChildren } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import type { ListHandle } from './virtual-list.tsx'

type EvenListProps<Item> = {
  readonly items: readonly Item[]
  readonly keyOf: (item: Item) => string
  /** Of each row, in pixels. */
  readonly height: number
  readonly render: (item: Item) => ComponentChildren
  readonly onNearEnd: () => void
  readonly onScrolled: (isAtStart: boolean) => void
  readonly handle: { current: ListHandle | null }
  readonly class?: string
  readonly label: string
}

/** Rows before and behind the visible ones: a flick of the wheel shows no gap. */
const MORE_ROWS = 12
/** Rows from the end that count as near: at a page's speed of scrolling. */
const NEAR_ROWS = 150
/** So far away a row is looked for that was visible. */
const SEEK_ROWS = 2_000

export function EvenList<Item>(props: EvenListProps<Item>) {
  const { items, keyOf, height, render, handle } = props
  const box = useRef<HTMLDivElement>(null)
  const [view, setView] = useState({ top: 0, height: 800 })
  const measure = (): void => {
    const { scrollTop, clientHeight } = box.current!
    setView({ top: scrollTop, height: clientHeight })
  }
  useAnchor(box, items, keyOf, height)
  useLayoutEffect(() => {
    const observer = new ResizeObserver(measure)
    observer.observe(box.current!)
    return () => observer.disconnect()
  }, [])
  const first = Math.max(0, Math.floor(view.top / height) - MORE_ROWS)
  const end = Math.min(items.length, Math.ceil((view.top + view.height) / height) + MORE_ROWS)
  const isNearEnd = end >= items.length - NEAR_ROWS
  useEffect(() => {
    if (isNearEnd) props.onNearEnd()
  }, [isNearEnd, items.length])
  useLayoutEffect(() => {
    const scrollTo = (top: number): void => box.current?.scrollTo({ top })
    handle.current = {
      scrollToIndex: (index, align = 'auto') => {
        const { scrollTop = 0, clientHeight = 0 } = box.current ?? {}
        const isAbove = align === 'start' || index * height < scrollTop
        if (isAbove) scrollTo(index * height)
        else if ((index + 1) * height > scrollTop + clientHeight) {
          scrollTo((index + 1) * height - clientHeight)
        }
      },
      scrollToEnd: () => scrollTo(items.length * height),
      isAtEnd: () => end >= items.length,
    }
    return () => {
      handle.current = null
    }
  })
  return (
    <div
      ref={box}
      class={`virtual ${props.class ?? ''}`}
      role="list"
      aria-label={props.label}
      tabIndex={0}
      onScroll={({ currentTarget: { scrollTop } }) => {
        measure()
        props.onScrolled(scrollTop < height)
      }}
    >
      <div class="virtual-space" style={{ height: `${items.length * height}px` }}>
        {items.slice(first, end).map((item, index) => (
          <div
            key={keyOf(item)}
            class="virtual-item"
            role="listitem"
            aria-setsize={items.length}
            aria-posinset={first + index + 1}
            style={{
              height: `${height}px`,
              transform: `translateY(${(first + index) * height}px)`,
            }}
          >
            {render(item)}
          </div>
        ))}
      </div>
    </div>
  )
}

/** Keeps the first visible row where it is when rows above it come or go. */
function useAnchor<Item>(
  box: { readonly current: HTMLDivElement | null },
  items: readonly Item[],
  keyOf: (item: Item) => string,
  height: number,
): void {
  const before = useRef(items)
  useLayoutEffect(() => {
    const { current } = box
    const old = before.current
    before.current = items
    if (current === null || old === items || current.scrollTop < height) return
    const index = Math.floor(current.scrollTop / height)
    const anchor = old[index]
    if (anchor === undefined) return
    const key = keyOf(anchor)
    const from = Math.max(0, index - SEEK_ROWS)
    const found = items.slice(from, index + SEEK_ROWS).findIndex((item) => keyOf(item) === key)
    if (found >= 0 && from + found !== index) current.scrollTop += (from + found - index) * height
  }, [items])
}
