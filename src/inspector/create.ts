/** The form for a new session. */
import type { SessionView } from '../wire/views.ts'
import type { Api } from './api.ts'
import { buttons, element, field, form, problemText, selectField, setText } from './element.ts'

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
      reconnect: reconnect.value,
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
