/** Making elements. Text is always text: nothing a session says can become markup. */

export type Child = Node | string | null

type Handler = (event: Event) => void
export type Attributes = Readonly<Record<string, string | number | boolean | null | Handler>>

/** An attribute of null or false is left out, a function is a listener: `{ onclick: … }`. */
export function element<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[Tag] {
  const made = document.createElement(tag)
  apply(made, attributes)
  add(made, children)
  return made
}

const SVG = 'http://www.w3.org/2000/svg'

export function drawing<Tag extends keyof SVGElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: readonly Child[]
): SVGElementTagNameMap[Tag] {
  const made = document.createElementNS(SVG, tag)
  apply(made, attributes)
  add(made, children)
  return made
}

/** Sets the text if it is another: what did not change is not announced again. */
export function say(place: Element, text: string): void {
  if (place.textContent !== text) place.textContent = text
}

export function fill(place: Element, ...children: readonly Child[]): void {
  place.replaceChildren()
  add(place, children)
}

export function byId(id: string): HTMLElement {
  const found = document.getElementById(id)
  if (found === null) throw new Error(`the page has no #${id}`)
  return found
}

/** A labelled control. */
export function field(name: string, control: HTMLElement): HTMLLabelElement {
  return element('label', { class: 'field' }, element('span', {}, name), control)
}

export function choice(
  name: string,
  options: readonly (readonly [value: string, label: string])[],
  attributes: Attributes = {},
): HTMLSelectElement {
  const items = options.map(([value, label]) => element('option', { value }, label))
  return element('select', { name, ...attributes }, ...items)
}

function apply(made: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) continue
    if (typeof value === 'function') made.addEventListener(name.slice(2), value)
    else made.setAttribute(name, value === true ? '' : String(value))
  }
}

function add(made: Element, children: readonly Child[]): void {
  made.append(...children.filter((child) => child !== null))
}
