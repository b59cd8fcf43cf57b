/** Creates elements. Text is always text: nothing in a session can become markup. */

export type ElementChild = Node | string | null

export type Attributes = Readonly<
  Record<string, string | number | boolean | null | ((event: Event) => void)>
>

/** An attribute of null or false is left out, a function is a listener: `{ onclick: … }`. */
export function element<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: readonly ElementChild[]
): HTMLElementTagNameMap[Tag] {
  return complete(document.createElement(tag), attributes, children)
}

export function svgElement<Tag extends keyof SVGElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: readonly ElementChild[]
): SVGElementTagNameMap[Tag] {
  const created = document.createElementNS('http://www.w3.org/2000/svg', tag)
  return complete(created, attributes, children)
}

function complete<Created extends Element>(
  created: Created,
  attributes: Attributes,
  children: readonly ElementChild[],
): Created {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) continue
    if (typeof value === 'function') created.addEventListener(name.slice(2), value)
    else created.setAttribute(name, value === true ? '' : String(value))
  }
  fill(created, ...children)
  return created
}

/** Sets the text if it differs, so that screen readers do not announce it again. */
export function setText(target: Element, text: string): void {
  if (target.textContent !== text) target.textContent = text
}

export function fill(target: Element, ...children: readonly ElementChild[]): void {
  target.replaceChildren(...children.filter((child) => child !== null))
}

export function byId(id: string): HTMLElement {
  const found = document.getElementById(id)
  if (found === null) throw new Error(`the page has no #${id}`)
  return found
}

/** A button that does not submit a form. */
export function button(
  label: string,
  onclick: () => void,
  attributes: Attributes = {},
): HTMLButtonElement {
  return element('button', { type: 'button', onclick, ...attributes }, label)
}

export function form(
  onsubmit: () => void,
  attributes: Attributes,
  ...children: readonly ElementChild[]
): HTMLFormElement {
  const submit = (event: Event): void => {
    event.preventDefault()
    onsubmit()
  }
  return element('form', { onsubmit: submit, ...attributes }, ...children)
}

/** A small label. */
export function tag(text: string, attributes: Attributes = {}): HTMLElement {
  return element('span', { class: 'tag', ...attributes }, text)
}

/** A labelled control. */
export function field(name: string, control: HTMLElement): HTMLLabelElement {
  return element('label', { class: 'field' }, element('span', {}, name), control)
}

export function selectField(
  name: string,
  options: readonly (readonly [value: string, label: string])[],
  attributes: Attributes = {},
): HTMLSelectElement {
  const items = options.map(([value, label]) => element('option', { value }, label))
  return element('select', { name, ...attributes }, ...items)
}

/** A modal dialog with a form, shown at once; the form's buttons close it. */
export function showDialog(title: string, ...children: readonly ElementChild[]): HTMLDialogElement {
  const heading = element('h2', { id: 'dialog-title' }, title)
  const content = element('form', { class: 'form', method: 'dialog' }, heading, ...children)
  const dialog = element('dialog', { 'aria-labelledby': 'dialog-title' }, content)
  document.body.append(dialog)
  dialog.showModal()
  return dialog
}
