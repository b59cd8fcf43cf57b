/** The forms for a new session, and for a link to one. */
import type { SessionView } from '../wire/views.ts'
import type { Api, NewSession } from './api.ts'
import {
  button,
  buttons,
  element,
  field,
  form,
  problemText,
  selectField,
  setText,
  showDialog,
} from './element.ts'

const POLICIES = [
  ['reopen', 'reopen: the session stays open until it is closed'],
  ['resume', 'resume: a page may come back, also during a turn'],
  ['early', 'early: a page may come back until the first turn starts'],
  ['none', 'none: a lost connection ends the session'],
] as const

/** Calls `created` with the session, which is new or was found by its key. */
export function createForm(api: Api, created: (session: SessionView) => void): HTMLElement {
  const off = { autocomplete: 'off' }
  const key = element('input', { name: 'key', ...off, placeholder: 'none' })
  const agent = element('input', {
    name: 'agent',
    ...off,
    placeholder: 'the first',
    list: 'agents',
  })
  const agents = ['echo', 'slow', 'ask'].map((value) => element('option', { value }))
  const reconnect = selectField('reconnect', POLICIES)
  const seconds = { type: 'number', min: 0, step: 'any', placeholder: 'by policy' }
  const grace = element('input', { name: 'grace', ...seconds })
  const exclusive = element('input', { name: 'exclusive', type: 'checkbox' })
  const exclusiveLabel = element('span', 'Exclusive: one client drives, the others watch')
  const problem = problemText()
  const submit = (): void => {
    setText(problem, '')
    const options = {
      reconnect: reconnect.value as NewSession['reconnect'],
      exclusive: exclusive.checked,
      key: key.value || undefined,
      agent: agent.value || undefined,
      graceMs: grace.value === '' ? undefined : Math.round(Number(grace.value) * 1000),
    }
    api.create(options).then(created, (error: Error) => setText(problem, error.message))
  }
  const fields = form(
    submit,
    { class: 'form' },
    field('Key: your own name for it', key),
    field('Agent', agent),
    field('When a connection is lost', reconnect),
    field('Seconds within which a lost page may come back', grace),
    element('label.check', exclusive, exclusiveLabel),
    problem,
    buttons(element('button.primary', 'Create')),
    element('datalist', { id: 'agents' }, ...agents),
  )
  return element('div.page', element('h1', 'New session'), fields)
}

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

/** The link is for a person without a token. */
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
