/** A box to go anywhere: views, sessions by what they are called, and actions. */
import { useEffect, useId, useReducer, useRef, useState } from 'preact/hooks'
import type { SessionRowView } from '../../wire/views.ts'
import { Dialog } from '../shared/dialog.tsx'
import { address, go, href, sessionHref } from '../shared/router.ts'
import { api } from '../shared/server.ts'
import { shownName } from '../shared/shown-text.ts'
import { canNotify, isNotifying, setNotifying } from './attention.ts'
import { overlay } from './overlays.ts'

type Command = {
  readonly id: string
  readonly kind: 'View' | 'Action' | 'Tab' | 'Session'
  readonly label: string
  readonly note?: string
  readonly run: () => void
}

export type PaletteView = { readonly name: string; readonly label: string }

type PaletteProps = {
  readonly views: readonly PaletteView[]
  /** Of the session that is open. */
  readonly tabs: readonly PaletteView[]
  readonly onClose: () => void
}

export function Palette({ views, tabs, onClose }: PaletteProps) {
  const [text, setText] = useState('')
  // A ref: a fast typist presses the next key before the last one is shown.
  const at = useRef(0)
  const [, redraw] = useReducer<number, void>((count) => count + 1, 0)
  const found = useSessions(text.trim())
  const fixed = [...viewsOf(views), ...tabsOf(tabs), ...actions()]
  const commandsFor = (written: string): readonly Command[] => {
    const wanted = written.trim().toLowerCase()
    return [
      ...found.filter((row) => hasText(row, wanted)).map(sessionCommand),
      ...fixed.filter(({ label }) => label.toLowerCase().includes(wanted)),
    ]
  }
  const commands = commandsFor(text)
  const current = Math.min(at.current, commands.length - 1)
  const list = useId()
  const run = (command: Command | undefined): void => {
    if (command === undefined) return
    onClose()
    command.run()
  }
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    const listed = commandsFor((event.currentTarget as HTMLInputElement).value)
    if (step !== undefined) {
      at.current = (at.current + step + listed.length) % Math.max(1, listed.length)
      redraw()
      event.preventDefault()
    } else if (event.key === 'Enter') {
      event.preventDefault()
      run(listed[at.current])
    }
  }
  return (
    <Dialog title="Go to a view or session, or do something" isBare onClose={onClose}>
      <input
        class="palette-box"
        role="combobox"
        aria-label="View, session or action"
        aria-expanded="true"
        aria-controls={list}
        aria-activedescendant={commands.length === 0 ? undefined : `${list}-${current}`}
        autocomplete="off"
        spellcheck={false}
        placeholder="View, session or action"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value)
          at.current = 0
        }}
        onKeyDown={onKeyDown}
      />
      <Options id={list} commands={commands} current={current} onChoose={run} />
    </Dialog>
  )
}

type OptionsProps = {
  readonly id: string
  readonly commands: readonly Command[]
  readonly current: number
  readonly onChoose: (command: Command) => void
}

function Options({ id, commands, current, onChoose }: OptionsProps) {
  const list = useRef<HTMLUListElement>(null)
  useEffect(() => {
    list.current?.children[current]?.scrollIntoView({ block: 'nearest' })
  }, [current])
  return (
    <>
      <ul class="palette" role="listbox" id={id} aria-label="What there is" ref={list}>
        {commands.map((command, index) => (
          <li
            key={command.id}
            id={`${id}-${index}`}
            role="option"
            aria-selected={index === current}
            onClick={() => onChoose(command)}
          >
            <span class="one-line">
              <bdi>{command.label}</bdi>
            </span>
            <span class="muted small">{command.note ?? command.kind}</span>
          </li>
        ))}
      </ul>
      {commands.length === 0 ? <p class="muted palette-none">Nothing is called so.</p> : null}
    </>
  )
}

function viewsOf(views: readonly PaletteView[]): readonly Command[] {
  return views.map(({ name, label }) => ({
    id: `view ${name}`,
    kind: 'View',
    label,
    run: () => go(href([name === 'home' ? '' : name])),
  }))
}

function tabsOf(tabs: readonly PaletteView[]): readonly Command[] {
  const [view, id = ''] = address.value.path
  if (view !== 'session') return []
  return tabs.map(({ name, label }) => ({
    id: `tab ${name}`,
    kind: 'Tab',
    label,
    note: 'Tab of this session',
    run: () => go(sessionHref(id, name)),
  }))
}

function actions(): readonly Command[] {
  const action = (label: string, run: () => void): Command => ({
    ...{ id: `action ${label}`, kind: 'Action', label, run },
  })
  const notify = isNotifying.value ? 'Turn notifications off' : 'Notify me of asks'
  return [
    action('New session', () => go(href(['new']))),
    ...(canNotify ? [action(notify, () => void setNotifying(!isNotifying.value))] : []),
    action('Show the keys', () => (overlay.value = 'help')),
  ]
}

function sessionCommand({ id, key, agent, status }: SessionRowView): Command {
  return {
    ...{ id: `session ${id}`, kind: 'Session', label: shownName(key ?? id) },
    note: `${shownName(agent)}, ${status}`,
    run: () => go(sessionHref(id)),
  }
}

const SHOWN = 8
const TYPING_MS = 120

/** All whose key has the text, and of the latest those whose id, agent or labels have it. */
function useSessions(text: string): readonly SessionRowView[] {
  const [found, setFound] = useState<readonly SessionRowView[]>([])
  const [latest, setLatest] = useState<readonly SessionRowView[]>([])
  useEffect(() => {
    const query = { sort: 'activity', limit: '200' }
    // The frame says that the server cannot be reached.
    api.sessions(query).then(({ sessions }) => setLatest(sessions), ignored)
  }, [])
  useEffect(() => {
    if (text === '') return setFound([])
    let isWanted = true
    const timer = setTimeout(() => {
      const query = { q: text, sort: 'activity', limit: String(SHOWN) }
      // As above.
      api.sessions(query).then(({ sessions }) => isWanted && setFound(sessions), ignored)
    }, TYPING_MS)
    return () => {
      isWanted = false
      clearTimeout(timer)
    }
  }, [text])
  if (text === '') return []
  const all = [...found, ...latest.filter((row) => hasText(row, text))]
  return [...new Map(all.map((row) => [row.id, row])).values()].slice(0, SHOWN)
}

const ignored = (_error: unknown): undefined => undefined

function hasText({ key, id, agent, labels }: SessionRowView, text: string): boolean {
  const words = [key ?? '', id, agent, ...Object.entries(labels).flat()].join(' ').toLowerCase()
  return words.includes(text.toLowerCase())
}
