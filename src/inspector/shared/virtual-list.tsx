/**
 * A list of which only the visible part is in the document. Its items may have any height and may
 * change it. `anchor: 'end'` is for what grows at its end: it opens there, stays there while it was
 * there, and what is added before the visible part does not move it.
 */
import { elementScroll, observeElementOffset, observeElementRect } from '@tanstack/virtual-core'
import { Virtualizer, type VirtualizerOptions } from '@tanstack/virtual-core'
import type { ComponentChildren } from 'preact'
import { useEffect, useLayoutEffect, useMemo, useReducer, useRef } from 'preact/hooks'

export type ListHandle = {
  readonly scrollToIndex: (index: number, align?: 'start' | 'center' | 'end' | 'auto') => void
  readonly scrollToEnd: () => void
  readonly isAtEnd: () => boolean
}

type VirtualListProps<Item> = {
  readonly items: readonly Item[]
  readonly keyOf: (item: Item) => string | number
  readonly estimate: number
  readonly render: (item: Item, index: number) => ComponentChildren
  readonly anchor?: 'start' | 'end'
  /** Called when the visible part comes near the first or the last item. */
  readonly onNearStart?: () => void
  readonly onNearEnd?: () => void
  /** Called when a reader scrolls. */
  readonly onScrolled?: (isAtStart: boolean, isAtEnd: boolean) => void
  readonly handle?: { current: ListHandle | null }
  /** Before the first and behind the last item, inside of what is scrolled. */
  readonly before?: ComponentChildren
  readonly after?: ComponentChildren
  readonly class?: string
  readonly role?: 'list' | 'log' | 'rowgroup'
  readonly label: string
}

type Scroller = Virtualizer<HTMLDivElement, HTMLElement>

/** How many items from either end count as near. */
const NEAR_ITEMS = 8
/** The distance that still counts as the end. */
const NEAR_PX = 60

export function VirtualList<Item>(props: VirtualListProps<Item>) {
  const { items, keyOf, render, anchor = 'start', role = 'list' } = props
  const box = useRef<HTMLDivElement>(null)
  const scroller = useScroller(props, box)
  const shown = scroller.getVirtualItems()
  const [first, last] = [shown[0]?.index ?? 0, shown.at(-1)?.index ?? 0]
  const { length } = items
  const wanted = useRef({ first: -1, last: -1, length: -1 })
  useEffect(() => {
    const before = wanted.current
    if (before.first === first && before.last === last && before.length === length) return
    wanted.current = { first, last, length }
    if (first < NEAR_ITEMS) props.onNearStart?.()
    if (last >= length - NEAR_ITEMS) props.onNearEnd?.()
  })
  return (
    <div
      ref={box}
      class={`virtual ${props.class ?? ''}`}
      role={role}
      aria-label={props.label}
      tabIndex={0}
      data-anchor={anchor}
      onScroll={({ currentTarget: { scrollTop } }) =>
        props.onScrolled?.(scrollTop < NEAR_PX, scroller.isAtEnd(NEAR_PX))
      }
    >
      {props.before}
      <div class="virtual-space" style={{ height: `${scroller.getTotalSize()}px` }}>
        {shown.map(({ index, key, start }) => {
          const item = items[index]
          if (item === undefined) return null
          const style = { transform: `translateY(${start}px)` }
          return (
            <div
              key={keyOf(item)}
              data-index={index}
              class="virtual-item"
              role={role === 'list' ? 'listitem' : undefined}
              ref={scroller.measureElement}
              style={style}
              data-key={String(key)}
            >
              {render(item, index)}
            </div>
          )
        })}
      </div>
      {props.after}
    </div>
  )
}

function useScroller<Item>(
  { items, keyOf, estimate, anchor = 'start', handle }: VirtualListProps<Item>,
  box: { readonly current: HTMLDivElement | null },
): Scroller {
  const [, redraw] = useReducer<number, void>((count) => count + 1, 0)
  const options: VirtualizerOptions<HTMLDivElement, HTMLElement> = {
    count: items.length,
    getScrollElement: () => box.current,
    estimateSize: () => estimate,
    getItemKey: (index) => {
      const item = items[index]
      return item === undefined ? index : keyOf(item)
    },
    scrollToFn: elementScroll,
    observeElementRect,
    observeElementOffset,
    onChange: () => redraw(),
    overscan: 6,
    anchorTo: anchor,
    followOnAppend: anchor === 'end',
    scrollEndThreshold: NEAR_PX,
  }
  const scroller = useMemo(() => new Virtualizer(options), [])
  scroller.setOptions(options)
  useLayoutEffect(() => scroller._didMount(), [scroller])
  useLayoutEffect(() => scroller._willUpdate())
  const staysAtEnd = useRef(anchor === 'end')
  const isOpened = useRef(false)
  useLayoutEffect(() => {
    if (isOpened.current || items.length === 0 || anchor !== 'end') return
    isOpened.current = true
    scroller.scrollToEnd()
  })
  useStayingAtEnd(scroller, box, staysAtEnd)
  useLayoutEffect(() => {
    if (handle === undefined) return
    handle.current = {
      scrollToIndex: (index, align = 'auto') => {
        staysAtEnd.current = false
        scroller.scrollToIndex(index, { align })
      },
      scrollToEnd: () => {
        staysAtEnd.current = anchor === 'end'
        scroller.scrollToEnd()
      },
      isAtEnd: () => scroller.isAtEnd(NEAR_PX),
    }
    return () => {
      handle.current = null
    }
  }, [handle, scroller])
  return scroller
}

/** A list that gets lower or higher, because of what is below it, still shows its end. */
function useStayingAtEnd(
  scroller: Scroller,
  box: { readonly current: HTMLDivElement | null },
  staysAtEnd: { current: boolean },
): void {
  useLayoutEffect(() => {
    const { current } = box
    // A list that is not to stay there at first never does.
    if (current === null || !staysAtEnd.current) return
    const remember = (): void => {
      staysAtEnd.current = current.scrollHeight - current.scrollTop - current.clientHeight < NEAR_PX
    }
    const observer = new ResizeObserver(() => {
      if (staysAtEnd.current) scroller.scrollToEnd()
    })
    observer.observe(current)
    current.addEventListener('scroll', remember, { passive: true })
    return () => {
      observer.disconnect()
      current.removeEventListener('scroll', remember)
    }
  }, [scroller])
}
