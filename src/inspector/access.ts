/** The token that this server asks for, if it does: typed once, kept as long as the tab. */
import { element, field } from './element.ts'

const KEPT = 'holdfast-inspector:token'

export class Access {
  #token: string | null = recall()
  #asking: Promise<void> | null = null

  get token(): string | null {
    return this.#token
  }

  /** Resolves when there is another token than the one that was refused. */
  ask(refused: string | null): Promise<void> {
    if (this.#token !== refused) return Promise.resolve()
    this.#asking ??= askPerson(refused !== null).then((token) => {
      this.#token = token
      this.#asking = null
      keep(token)
    })
    return this.#asking
  }
}

function askPerson(wasWrong: boolean): Promise<string> {
  const input = element('input', {
    type: 'password',
    name: 'token',
    autocomplete: 'off',
    required: true,
  })
  const words = wasWrong
    ? 'The server does not accept this token.'
    : 'This server asks for a token. It is kept until you close the tab.'
  const form = element(
    'form',
    { class: 'form', method: 'dialog' },
    element('h2', { id: 'token-title' }, 'Token'),
    element('p', { class: wasWrong ? 'problem' : 'muted' }, words),
    field('Token', input),
    element('div', { class: 'buttons' }, element('button', { class: 'primary' }, 'Go on')),
  )
  const dialog = element('dialog', { 'aria-labelledby': 'token-title' }, form)
  document.body.append(dialog)
  dialog.showModal()
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      const token = input.value.trim()
      // There is nothing behind it that would work without one.
      if (token === '') return dialog.showModal()
      dialog.remove()
      resolve(token)
    })
  })
}

function recall(): string | null {
  try {
    return sessionStorage.getItem(KEPT)
  } catch {
    // A page that may not remember asks again.
    return null
  }
}

function keep(token: string): void {
  try {
    sessionStorage.setItem(KEPT, token)
  } catch {
    // A page that may not remember asks again after a reload.
  }
}
