/** The token for this server, if it requires one: entered once, kept as long as the tab. */
import { element, field, showDialog } from './element.ts'
import { recall, remember } from './tab-storage.ts'

export class Access {
  #token: string | null = recall('token')
  #prompt: Promise<void> | null = null

  get token(): string | null {
    return this.#token
  }

  /** Resolves when there is another token than the refused one. */
  ask(refused: string | null): Promise<void> {
    if (this.#token !== refused) return Promise.resolve()
    this.#prompt ??= promptForToken(refused !== null).then((token) => {
      this.#token = token
      this.#prompt = null
      remember('token', token)
    })
    return this.#prompt
  }
}

function promptForToken(wasWrong: boolean): Promise<string> {
  const input = element('input', {
    type: 'password',
    name: 'token',
    autocomplete: 'off',
    required: true,
  })
  const words = wasWrong
    ? 'The server does not accept this token.'
    : 'This server requires a token. It is kept until you close the tab.'
  const dialog = showDialog(
    'Token',
    element('p', { class: wasWrong ? 'problem' : 'muted' }, words),
    field('Token', input),
    element('div', { class: 'buttons' }, element('button', { class: 'primary' }, 'Go on')),
  )
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      const token = input.value.trim()
      // Nothing on the page works without a token.
      if (token === '') return dialog.showModal()
      dialog.remove()
      resolve(token)
    })
  })
}
