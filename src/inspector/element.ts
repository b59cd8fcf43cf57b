/** Creates elements. Text is always text: nothing in a session can become markup. */

export type ElementChild = Node | string | null
export type Attributes = Readonly<
  Record<string, string | number | boolean | null | ((event: Event) => void)>
>
type Parts = readonly [first?: Attributes | ElementChild, ...children: ElementChild[]]

/**
 * A tag with its classes, `p.muted.small`, attributes and children. An attribute of null or false
 * is left out, a function is a listener: `{ onclick: … }`.
 */
export function element<Tag extends keyof HTMLElementTagNameMap>(
  selector: Tag | `${Tag}.${string}`,
  ...parts: Parts
): HTMLElementTagNameMap[Tag] {
  const [tag = '', ...classes] = selector.split('.')
  const created = document.createElement(tag as Tag)
  if (classes.length > 0) created.className = classes.join(' ')
  return complete(created, parts)
}

export function svgElement<Tag extends keyof SVGElementTagNameMap>(
  tag: Tag,
  ...parts: Parts
): SVGElementTagNameMap[Tag] {
  return complete(document.createElementNS('http://www.w3.org/2000/svg', tag), parts)
}

/** Only the first part can be attributes: what an agent sent, and is no text, is shown as one. */
function complete<Created extends Element>(created: Created, parts: Parts): Created {
  const [first = null, ...children] = parts
  if (typeof first === 'object' && first !== null && !(first instanceof Node)) {
    setAttributes(created, first)
  } else children.unshift(first)
  fill(created, ...children)
  return created
}

function setAttributes(target: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) continue
    if (typeof value === 'function') target.addEventListener(name.slice(2), value)
    else target.setAttribute(name, value === true ? '' : String(value))
  }
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
export function button(label: string, onclick: () => void, attributes: Attributes = {}) {
  return element('button', { type: 'button', onclick, ...attributes }, label)
}

export function buttons(...children: readonly ElementChild[]): HTMLElement {
  return element('div.buttons', ...children)
}

export function form(onsubmit: () => void, ...parts: Parts): HTMLFormElement {
  const created = element('form', ...parts)
  created.addEventListener('submit', (event) => {
    event.preventDefault()
    onsubmit()
  })
  return created
}

export function tag(text: string, attributes: Attributes = {}): HTMLElement {
  return element('span.tag', attributes, text)
}

export const problemText = (): HTMLElement => element('p.problem', { role: 'alert' })

export function field(name: string, control: HTMLElement): HTMLLabelElement {
  return element('label.field', element('span', name), control)
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
  const content = element('form.form', { method: 'dialog' }, heading, ...children)
  const dialog = element('dialog', { 'aria-labelledby': 'dialog-title' }, content)
  document.body.append(dialog)
  dialog.showModal()
  return dialog
}
