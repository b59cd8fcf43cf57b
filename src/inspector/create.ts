/** The form for a new session. */
import type { SessionView } from '../wire/views.ts'
import { ApiError, type Api, type NewSession } from './api.ts'
import { choice, element, field } from './element.ts'

const POLICIES = [
  ['reopen', 'reopen: it lives until it is closed'],
  ['resume', 'resume: may be taken up again, in the middle of a turn too'],
  ['early', 'early: may be taken up again until work starts'],
  ['none', 'none: a lost connection ends it'],
] as const

/** `created` gets the session, new or found by its key. */
export function createForm(api: Api, created: (session: SessionView) => void): HTMLElement {
  const key = element('input', { name: 'key', autocomplete: 'off', placeholder: 'none' })
  const agent = element('input', { name: 'agent', autocomplete: 'off', placeholder: 'the first' })
  agent.setAttribute('list', 'agents')
  const agents = ['echo', 'slow', 'ask'].map((value) => element('option', { value }))
  const reconnect = choice('reconnect', POLICIES)
  const grace = element('input', { name: 'grace', type: 'number', min: 0, step: 'any' })
  grace.placeholder = 'by policy'
  const exclusive = element('input', { name: 'exclusive', type: 'checkbox' })
  const problem = element('p', { class: 'problem', role: 'alert' })
  const options = (): NewSession => ({
    reconnect: reconnect.value,
    exclusive: exclusive.checked,
    ...(key.value === '' ? {} : { key: key.value }),
    ...(agent.value === '' ? {} : { agent: agent.value }),
    ...(grace.value === '' ? {} : { graceMs: Math.round(Number(grace.value) * 1000) }),
  })
  const submit = (event: Event): void => {
    event.preventDefault()
    problem.textContent = ''
    api.create(options()).then(created, (error: unknown) => {
      problem.textContent = error instanceof ApiError ? error.message : String(error)
    })
  }
  const form = element(
    'form',
    { class: 'form', onsubmit: submit },
    field('Key: your own name for it', key),
    field('Agent', agent),
    field('When a connection is lost', reconnect),
    field('Seconds a lost page may take to come back', grace),
    element(
      'label',
      { class: 'check' },
      exclusive,
      element('span', {}, 'Exclusive: one drives, the others watch'),
    ),
    problem,
    element('div', { class: 'buttons' }, element('button', { class: 'primary' }, 'Create')),
    element('datalist', { id: 'agents' }, ...agents),
  )
  return element('div', { class: 'page' }, element('h1', {}, 'New session'), form)
}
