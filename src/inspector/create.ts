/** The form for a new session. */
import type { SessionView } from '../wire/views.ts'
import type { Api, NewSession } from './api.ts'
import { selectField, element, field, form, setText } from './element.ts'

const POLICIES = [
  ['reopen', 'reopen: the session stays open until it is closed'],
  ['resume', 'resume: a page may come back, also during a turn'],
  ['early', 'early: a page may come back until the first turn starts'],
  ['none', 'none: a lost connection ends the session'],
] as const

/** Calls `created` with the session, which is new or was found by its key. */
export function createForm(api: Api, created: (session: SessionView) => void): HTMLElement {
  const key = element('input', { name: 'key', autocomplete: 'off', placeholder: 'none' })
  const agent = element('input', {
    name: 'agent',
    autocomplete: 'off',
    placeholder: 'the first',
    list: 'agents',
  })
  const agents = ['echo', 'slow', 'ask'].map((value) => element('option', { value }))
  const reconnect = selectField('reconnect', POLICIES)
  const grace = element('input', {
    name: 'grace',
    type: 'number',
    min: 0,
    step: 'any',
    placeholder: 'by policy',
  })
  const exclusive = element('input', { name: 'exclusive', type: 'checkbox' })
  const problem = element('p', { class: 'problem', role: 'alert' })
  const options = (): NewSession => ({
    reconnect: reconnect.value,
    exclusive: exclusive.checked,
    ...(key.value === '' ? {} : { key: key.value }),
    ...(agent.value === '' ? {} : { agent: agent.value }),
    ...(grace.value === '' ? {} : { graceMs: Math.round(Number(grace.value) * 1000) }),
  })
  const submit = (): void => {
    setText(problem, '')
    api.create(options()).then(created, (error: Error) => setText(problem, error.message))
  }
  const fields = form(
    submit,
    { class: 'form' },
    field('Key: your own name for it', key),
    field('Agent', agent),
    field('When a connection is lost', reconnect),
    field('Seconds within which a lost page may come back', grace),
    element(
      'label',
      { class: 'check' },
      exclusive,
      element('span', {}, 'Exclusive: one client drives, the others watch'),
    ),
    problem,
    element('div', { class: 'buttons' }, element('button', { class: 'primary' }, 'Create')),
    element('datalist', { id: 'agents' }, ...agents),
  )
  return element('div', { class: 'page' }, element('h1', {}, 'New session'), fields)
}
