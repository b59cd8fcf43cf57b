/** A link to one session, for somebody without a token: made here, shown once. */
import type { Api } from './api.ts'
import { choice, element, field } from './element.ts'

const RIGHTS = [
  ['watch', 'look on'],
  ['talk', 'talk'],
  ['talk,answer', 'talk and answer questions'],
] as const

const HOUR_MS = 3_600_000
const LIVES = [
  [String(HOUR_MS), 'one hour'],
  [String(24 * HOUR_MS), 'one day'],
  [String(7 * 24 * HOUR_MS), 'one week'],
] as const

export function shareDialog(api: Api, session: string): void {
  const rights = choice('rights', RIGHTS)
  const life = choice('life', LIVES)
  const url = element('input', { readonly: true, 'aria-label': 'The link', hidden: true })
  url.addEventListener('focus', () => url.select())
  const problem = element('p', { class: 'problem', role: 'alert' })
  const make = element('button', { class: 'primary', type: 'button' }, 'Make a link')
  const dialog = element(
    'dialog',
    { 'aria-labelledby': 'share-title' },
    element(
      'form',
      { class: 'form', method: 'dialog' },
      element('h2', { id: 'share-title' }, 'Share this session'),
      element('p', { class: 'muted' }, 'Whoever has the link gets in. It is shown only now.'),
      field('Who has it may', rights),
      field('It is good for', life),
      url,
      problem,
      element('div', { class: 'buttons' }, make, element('button', {}, 'Done')),
    ),
  )
  make.addEventListener('click', () => {
    api.link(session, rights.value.split(','), Number(life.value)).then(
      (made) => {
        url.value = made
        url.hidden = false
        url.focus()
      },
      (error: Error) => {
        problem.textContent = error.message
      },
    )
  })
  dialog.addEventListener('close', () => dialog.remove())
  document.body.append(dialog)
  dialog.showModal()
}
