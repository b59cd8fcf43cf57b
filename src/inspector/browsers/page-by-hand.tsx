/** A page that a person uses by hand: its live picture, which takes the mouse and the keyboard. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { Button, Problem } from '../shared/parts.tsx'
import { shownName, shownText } from '../shared/shown-text.ts'
import type { BrowserPage } from './browser-list.ts'
import { keyCommand, mouseCommand, wheelCommand } from './input-events.ts'
import { PageConnection } from './page-connection.ts'

type PageByHandProps = {
  readonly session: string
  readonly page: BrowserPage
  readonly onDone: () => void
}

export function PageByHand({ session, page, onDone }: PageByHandProps) {
  const connection = useMemo(() => new PageConnection(session, page.id), [session, page.id])
  useEffect(() => () => connection.stop(), [connection])
  const isOver = connection.state.value === 'over'
  const problem = connection.problem.value
  return (
    <div class="by-hand" data-state={connection.state.value}>
      <Address connection={connection} page={page} onDone={onDone} />
      {problem === '' ? null : <Problem>{shownText(problem)}</Problem>}
      <PageDialogBar connection={connection} />
      {isOver ? null : <Screen connection={connection} page={page} />}
      {isOver ? null : <Typing connection={connection} />}
    </div>
  )
}

type Connected = { readonly connection: PageConnection }

function Address({
  connection,
  page,
  onDone,
}: Connected & { readonly page: BrowserPage; readonly onDone: () => void }) {
  const [typed, setTyped] = useState<string | null>(null)
  const isLive = connection.state.value === 'live'
  return (
    <form
      class="by-hand-bar"
      onSubmit={(event) => {
        event.preventDefault()
        if (typed !== null && typed.trim() !== '') void connection.goTo(typed.trim())
        setTyped(null)
      }}
    >
      <Button disabled={!isLive} onClick={() => void connection.goBack()}>
        Back
      </Button>
      <Button disabled={!isLive} onClick={() => connection.tell('Page.reload', {})}>
        Reload
      </Button>
      <input
        class="mono"
        aria-label="Address of the page"
        autocomplete="off"
        spellcheck={false}
        disabled={!isLive}
        value={typed ?? shownName(page.url)}
        onInput={(event) => setTyped(event.currentTarget.value)}
      />
      <Button kind="primary" onClick={onDone}>
        Done
      </Button>
    </form>
  )
}

/** A page stands still while it shows a dialog, which no picture shows. */
function PageDialogBar({ connection }: Connected) {
  const dialog = connection.dialog.value
  if (dialog === null) return null
  const answer = (accept: boolean): void => {
    connection.tell('Page.handleJavaScriptDialog', { accept })
  }
  return (
    <div class="page-dialog" role="alert">
      <p>The page says: {shownText(dialog.message)}</p>
      <div class="buttons">
        <Button kind="primary" onClick={() => answer(true)}>
          OK
        </Button>
        {dialog.type === 'alert' ? null : <Button onClick={() => answer(false)}>Cancel</Button>}
      </div>
    </div>
  )
}

function Screen({ connection, page }: Connected & { readonly page: BrowserPage }) {
  const screen = useRef<HTMLDivElement>(null)
  const frame = connection.frame.value
  const name = shownName(page.title || page.url)
  useInput(screen, connection)
  return (
    <div
      ref={screen}
      class="picture screen"
      role="application"
      tabIndex={0}
      aria-label={`The page ${name}. Keys go to it; Escape leaves it.`}
    >
      {frame === null ? (
        <p class="muted">Waiting for the page…</p>
      ) : (
        <img src={frame.address} alt="" draggable={false} />
      )}
    </div>
  )
}

/** The wheel has to be listened to by hand: the page would scroll. */
function useInput(
  screen: { readonly current: HTMLDivElement | null },
  connection: PageConnection,
): void {
  useEffect(() => {
    const { current } = screen
    if (current === null) return
    const abort = new AbortController()
    const { signal } = abort
    current.addEventListener('wheel', (event) => onWheel(event, connection), {
      signal,
      passive: false,
    })
    for (const type of ['pointerdown', 'pointerup', 'pointermove'] as const) {
      current.addEventListener(type, (event) => onPointer(type, event, connection), { signal })
    }
    for (const type of ['keydown', 'keyup'] as const) {
      current.addEventListener(type, (event) => onKey(event, connection), { signal })
    }
    current.addEventListener('paste', (event) => onPaste(event, connection), { signal })
    current.addEventListener('contextmenu', (event) => event.preventDefault(), { signal })
    return () => abort.abort()
  }, [connection])
}

function sizesOf({ currentTarget }: Event, connection: PageConnection) {
  const image = (currentTarget as HTMLElement).querySelector('img')
  const frame = connection.frame.peek()
  if (image === null || frame === null) return null
  return [image.getBoundingClientRect(), frame] as const
}

function onWheel(event: WheelEvent, connection: PageConnection): void {
  const sizes = sizesOf(event, connection)
  if (sizes === null) return
  event.preventDefault()
  connection.tell('Input.dispatchMouseEvent', wheelCommand(event, sizes))
}

function onPointer(
  type: 'pointerdown' | 'pointerup' | 'pointermove',
  event: PointerEvent,
  connection: PageConnection,
): void {
  const sizes = sizesOf(event, connection)
  if (sizes === null) return
  const screen = event.currentTarget as HTMLElement
  if (type === 'pointerdown') {
    screen.focus()
    screen.setPointerCapture(event.pointerId)
    event.preventDefault()
  }
  // Only events of the mouse count clicks in their `detail`.
  const command = mouseCommand(type, event, clicksOf(type, event), sizes)
  connection.tell('Input.dispatchMouseEvent', command)
}

const DOUBLE_CLICK_MS = 500
const DOUBLE_CLICK_PX = 6
let last = { at: 0, x: 0, y: 0, count: 0 }

function clicksOf(type: string, { timeStamp, clientX, clientY }: PointerEvent): number {
  if (type !== 'pointerdown') return last.count
  const isNear = Math.hypot(clientX - last.x, clientY - last.y) < DOUBLE_CLICK_PX
  const isNext = isNear && timeStamp - last.at < DOUBLE_CLICK_MS
  last = { at: timeStamp, x: clientX, y: clientY, count: isNext ? last.count + 1 : 1 }
  return last.count
}

function onKey(event: KeyboardEvent, connection: PageConnection): void {
  event.stopPropagation()
  if (event.key === 'Escape') {
    if (event.type === 'keydown') (event.currentTarget as HTMLElement).blur()
    return
  }
  // Pasting is an event of its own: the browser behind has another clipboard.
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'v') return
  const command = keyCommand(event)
  if (command === null) return
  event.preventDefault()
  connection.tell('Input.dispatchKeyEvent', command)
}

function onPaste(event: ClipboardEvent, connection: PageConnection): void {
  const text = event.clipboardData?.getData('text/plain') ?? ''
  event.preventDefault()
  if (text !== '') connection.tell('Input.insertText', { text })
}

const ESCAPE = { key: 'Escape', code: 'Escape', windowsVirtualKeyCode: 27 }

/** For phones, which have no keys, and for what keys cannot write. */
function Typing({ connection }: Connected) {
  const [text, setText] = useState('')
  const press = (key: object): void => {
    connection.tell('Input.dispatchKeyEvent', { type: 'rawKeyDown', ...key })
    connection.tell('Input.dispatchKeyEvent', { type: 'keyUp', ...key })
  }
  return (
    <form
      class="by-hand-bar"
      onSubmit={(event) => {
        event.preventDefault()
        connection.tell('Input.insertText', { text })
        setText('')
      }}
    >
      <input
        aria-label="Text for the page"
        placeholder="Text for the page, where its cursor is"
        autocomplete="off"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <Button type="submit" disabled={text === ''}>
        Insert
      </Button>
      <Button onClick={() => press(ESCAPE)}>Send Escape</Button>
    </form>
  )
}
