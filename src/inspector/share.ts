/** The dialog that creates a link to a session, for a person without a token. */
import type { Api } from './api.ts'
import {
  button,
  buttons,
  element,
  field,
  problemText,
  selectField,
  setText,
  showDialog,
} from './element.ts'

const RIGHTS = [
  ['watch', 'watch'],
  ['talk', 'talk'],
  ['talk,answer', 'talk and answer questions'],
] as const

const HOUR_MS = 3_600_000
const LIFETIMES = [
  [String(HOUR_MS), 'one hour'],
  [String(24 * HOUR_MS), 'one day'],
  [String(7 * 24 * HOUR_MS), 'one week'],
] as const

export function shareDialog(api: Api, session: string): void {
  const rights = selectField('rights', RIGHTS)
  const life = selectField('life', LIFETIMES)
  const url = element('input', { readonly: true, 'aria-label': 'The link', hidden: true })
  url.addEventListener('focus', () => url.select())
  const problem = problemText()
  const create = async (): Promise<void> => {
    try {
      url.value = await api.link(session, rights.value.split(','), Number(life.value))
      url.hidden = false
      url.focus()
    } catch (error) {
      setText(problem, (error as Error).message)
    }
  }
  const dialog = showDialog(
    'Share this session',
    element('p.muted', 'Everybody with the link gets in. It is shown only now.'),
    field('Its bearer may', rights),
    field('It is valid for', life),
    url,
    problem,
    buttons(
      button('Make a link', () => void create(), { class: 'primary' }),
      element('button', 'Done'),
    ),
  )
  dialog.addEventListener('close', () => dialog.remove())
}
