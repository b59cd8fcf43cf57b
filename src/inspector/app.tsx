/** The frame around all views: where one is, what else there is, and the dialog for a token. */
import { useEffect, useRef, useState } from 'preact/hooks'
import { recall } from './shared/memory.ts'
import { Dialog } from './shared/dialog.tsx'
import { followAsks, feedProblem, inbox, inboxProblem } from './shared/feeds.ts'
import { followMe, may } from './shared/me.ts'
import { Button, Field } from './shared/parts.tsx'
import { address, href } from './shared/router.ts'
import { pageTitle } from './shared/title.ts'
import { tokenPrompt } from './shared/server.ts'
import { followAttention } from './frame/attention.ts'
import { Help } from './frame/help.tsx'
import { focusView, followKeys } from './frame/keyboard.ts'
import { overlay } from './frame/overlays.ts'
import { Palette } from './frame/palette.tsx'
import { TABS } from './session/session.tsx'
import { VIEWS, viewOf, type View } from './views.tsx'

export function App() {
  const { path } = address.value
  const view = viewOf(path)
  const main = useRef<HTMLElement>(null)
  const isLinked = path[0] === 'session' && recall(`link:${path[1] ?? ''}`) !== null
  const isGuest = isLinked || path[0] === 'ask'
  useEffect(() => followAsks(!isGuest), [isGuest])
  useEffect(() => (isGuest ? undefined : followMe()), [isGuest])
  useEffect(followAttention, [])
  useEffect(followKeys, [])
  const place = path.slice(0, 2).join('/')
  const first = useRef(place)
  useEffect(() => {
    if (view.title !== null) pageTitle.value = view.title
    // The first view has the focus of the page itself.
    if (first.current !== place && main.current !== null) focusView(main.current)
    first.current = ''
  }, [place])
  const Shown = view.component
  return (
    <>
      <button type="button" class="skip" onClick={() => main.current?.focus()}>
        Skip to the content
      </button>
      <Sidebar current={view} isGuest={isGuest} />
      <main id="view" class="main" tabIndex={-1} ref={main} data-view={view.name}>
        <Shown key={view.name === 'session' ? place : view.name} path={path} />
      </main>
      <TokenDialog />
      {tokenPrompt.value === null ? <Overlay isGuest={isGuest} /> : null}
    </>
  )
}

/** Guests with a link have their session and nothing else. */
function Overlay({ isGuest }: { readonly isGuest: boolean }) {
  const shown = overlay.value
  const close = (): void => {
    if (overlay.peek() === shown) overlay.value = null
  }
  if (shown === 'help') return <Help onClose={close} />
  if (shown !== 'palette' || isGuest) return null
  const views = VIEWS.flatMap(({ name, label }) => (label === null ? [] : [{ name, label }]))
  return <Palette views={views} tabs={TABS} onClose={close} />
}

function Sidebar({ current, isGuest }: { readonly current: View; readonly isGuest: boolean }) {
  const problem = feedProblem.value ?? inboxProblem.value
  const asks = inbox.value.length
  return (
    <header class="sidebar">
      <a class="name" href={href([''])}>
        <svg viewBox="0 0 16 16" aria-hidden="true">
          <path d="M4 2v12M12 2v12M4 8h8" />
        </svg>
        Holdfast
      </a>
      {isGuest ? null : <SearchButton />}
      {isGuest ? null : (
        <nav aria-label="Views">
          {VIEWS.filter(isInNavigation).map((view) => (
            <a
              key={view.name}
              href={href([view.name === 'home' ? '' : view.name])}
              data-page={view.name}
              aria-current={view === current || view.name === current.parent ? 'page' : undefined}
            >
              <svg viewBox="0 0 16 16" aria-hidden="true">
                <path d={view.icon} />
              </svg>
              <span>{view.label}</span>
              {view.name === 'home' && asks > 0 ? (
                <span class="count" title={`${asks} asks wait for an answer`}>
                  {asks}
                </span>
              ) : null}
            </a>
          ))}
        </nav>
      )}
      <p class="server" role="status">
        {problem}
      </p>
    </header>
  )
}

const isInNavigation = ({ label, scope }: View): boolean =>
  label !== null && (scope === undefined || may(scope) !== false)

function SearchButton() {
  return (
    <button
      type="button"
      class="search-button"
      aria-keyshortcuts="Control+K"
      onClick={() => (overlay.value = 'palette')}
    >
      <svg viewBox="0 0 16 16" aria-hidden="true">
        <path d="M11.5 7a4.5 4.5 0 1 1-9 0 4.5 4.5 0 0 1 9 0M10.5 10.5l3 3" />
      </svg>
      <span>Go to…</span>
      <kbd aria-hidden="true">Ctrl K</kbd>
    </button>
  )
}

function TokenDialog() {
  const [token, setToken] = useState('')
  const prompt = tokenPrompt.value
  if (prompt === null) return null
  const enter = (): void => {
    const value = token.trim()
    if (value === '') return
    setToken('')
    prompt.enter(value)
  }
  return (
    <Dialog title="Token" canClose={false} onClose={() => undefined}>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault()
          enter()
        }}
      >
        {prompt.wasWrong ? (
          <p class="problem">The server does not accept this token.</p>
        ) : (
          <p class="muted">This server requires a token. It is kept until you close the tab.</p>
        )}
        <Field name="Token">
          <input
            type="password"
            name="token"
            autocomplete="off"
            required
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </Field>
        <div class="buttons">
          <Button kind="primary" type="submit">
            Go on
          </Button>
        </div>
      </form>
    </Dialog>
  )
}
