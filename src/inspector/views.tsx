/** All views, by the first part of the address. A new view is a folder and a line here. */
import type { ComponentType } from 'preact'
import { AskLinkView } from './ask-link/ask-link.tsx'
import { Browsers } from './browsers/browsers.tsx'
import { Home } from './home/home.tsx'
import { NewSession } from './new-session/new-session.tsx'
import { Nodes } from './nodes/nodes.tsx'
import { ReloadTest } from './reload-test/reload-test.tsx'
import { openSession } from './session/open-sessions.ts'
import { SessionView } from './session/session.tsx'
import { Sessions } from './sessions/sessions.tsx'

export type ViewProps = { readonly path: readonly string[] }

export type View = {
  /** The first part of the address. */
  readonly name: string
  /** In the navigation; null: it is not there. */
  readonly label: string | null
  /** Of the page; null: the view sets it. */
  readonly title: string | null
  /** In a box of 16 by 16. */
  readonly icon?: string
  /** The view in the navigation to which it belongs. */
  readonly parent?: string
  /** What a token must allow, so that the view is in the navigation. */
  readonly scope?: string
  readonly component: ComponentType<ViewProps>
}

const HOME: View = {
  name: 'home',
  label: 'Home',
  title: 'Home',
  icon: 'M2.5 7.5 8 3l5.5 4.5V13h-4V9.5h-3V13h-4z',
  component: Home,
}

export const VIEWS: readonly View[] = [
  HOME,
  {
    name: 'sessions',
    label: 'Sessions',
    title: 'Sessions',
    icon: 'M2.5 4h11M2.5 8h11M2.5 12h11',
    component: Sessions,
  },
  {
    name: 'browsers',
    label: 'Browsers',
    title: 'Browsers',
    icon: 'M2 3h12v10H2zM2 6h12M4 4.5h.01M6 4.5h.01',
    component: Browsers,
  },
  {
    name: 'nodes',
    label: 'Nodes',
    title: 'Nodes',
    scope: 'admin',
    icon: 'M3 2.5h10v4H3zM3 9.5h10v4H3zM5.5 4.5h.01M5.5 11.5h.01',
    component: Nodes,
  },
  {
    name: 'reload-test',
    label: 'Reload test',
    title: 'Reload test',
    icon: 'M13 8a5 5 0 1 1-1.6-3.7M13 2.5V5h-2.5',
    component: ReloadTest,
  },
  { name: 'ask', label: null, title: 'A question', component: AskLinkView },
  { name: 'new', label: null, title: 'New session', parent: 'sessions', component: NewSession },
  {
    name: 'session',
    label: null,
    title: null,
    parent: 'sessions',
    component: ({ path }) => <SessionView model={openSession(path[1] ?? '')} />,
  },
]

/** An address that leads nowhere leads Home. */
export function viewOf([name, id]: readonly string[]): View {
  if (name === 'session' && (id === undefined || id === '')) return HOME
  return VIEWS.find((view) => view.name === name) ?? HOME
}
