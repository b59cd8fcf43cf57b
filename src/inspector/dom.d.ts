/**
 * The part of the DOM that the inspector uses, and no more. The whole of `lib.dom` would reach
 * every program of the project, and change the types of fetch, Response and others there.
 */
type PageEventMap = {
  keydown: KeyboardEvent
  close: CloseEvent
  message: MessageEvent
}

interface EventTarget {
  addEventListener<Name extends keyof PageEventMap>(
    type: Name,
    listener: (event: PageEventMap[Name]) => void,
    options?: { readonly once?: boolean },
  ): void
  addEventListener(
    type: string,
    listener: (event: Event) => void,
    options?: { readonly once?: boolean },
  ): void
  removeEventListener(type: string, listener: (event: Event) => void): void
}

interface Event {
  readonly type: string
  preventDefault(): void
}

interface KeyboardEvent extends Event {
  readonly key: string
  readonly shiftKey: boolean
  readonly isComposing: boolean
}

interface CloseEvent extends Event {
  readonly code: number
  readonly reason: string
}

interface MessageEvent extends Event {
  readonly data: unknown
}

interface Node extends EventTarget {
  textContent: string | null
}

interface Element extends Node {
  readonly classList: { toggle(name: string, force?: boolean): boolean }
  readonly children: { readonly length: number; readonly [index: number]: Element }
  readonly childElementCount: number
  readonly firstElementChild: Element | null
  readonly lastElementChild: Element | null
  readonly parentElement: HTMLElement | null
  readonly clientHeight: number
  readonly scrollHeight: number
  scrollTop: number
  append(...nodes: readonly (Node | string)[]): void
  prepend(...nodes: readonly (Node | string)[]): void
  before(...nodes: readonly (Node | string)[]): void
  remove(): void
  replaceChildren(...nodes: readonly (Node | string)[]): void
  insertBefore(node: Node, child: Node | null): void
  setAttribute(name: string, value: string): void
  removeAttribute(name: string): void
  getAttribute(name: string): string | null
  querySelector(selectors: string): Element | null
  querySelectorAll<Tag extends keyof HTMLElementTagNameMap>(
    tag: Tag,
  ): NodeList<HTMLElementTagNameMap[Tag]>
  querySelectorAll<Found extends Element = Element>(selectors: string): NodeList<Found>
}

interface NodeList<Item> extends Iterable<Item> {
  readonly length: number
  forEach(action: (item: Item) => void): void
}

interface HTMLElement extends Element {
  readonly dataset: { [name: string]: string | undefined }
  readonly offsetParent: Element | null
  hidden: boolean
  title: string
  tabIndex: number
  focus(): void
  click(): void
}

interface HTMLAnchorElement extends HTMLElement {
  href: string
}

interface HTMLButtonElement extends HTMLElement {
  disabled: boolean
}

interface HTMLInputElement extends HTMLElement {
  value: string
  checked: boolean
  disabled: boolean
  placeholder: string
  select(): void
}

interface HTMLTextAreaElement extends HTMLElement {
  value: string
  disabled: boolean
}

interface HTMLSelectElement extends HTMLElement {
  value: string
  disabled: boolean
}

interface HTMLDialogElement extends HTMLElement {
  showModal(): void
  close(): void
}

interface HTMLLabelElement extends HTMLElement {}
interface HTMLLIElement extends HTMLElement {}
interface HTMLFormElement extends HTMLElement {}

interface HTMLElementTagNameMap {
  a: HTMLAnchorElement
  article: HTMLElement
  aside: HTMLElement
  button: HTMLButtonElement
  caption: HTMLElement
  code: HTMLElement
  datalist: HTMLElement
  details: HTMLElement
  dialog: HTMLDialogElement
  div: HTMLElement
  form: HTMLFormElement
  h1: HTMLElement
  h2: HTMLElement
  header: HTMLElement
  input: HTMLInputElement
  label: HTMLLabelElement
  li: HTMLLIElement
  ol: HTMLElement
  option: HTMLElement
  p: HTMLElement
  pre: HTMLElement
  section: HTMLElement
  select: HTMLSelectElement
  span: HTMLElement
  strong: HTMLElement
  summary: HTMLElement
  table: HTMLElement
  tbody: HTMLElement
  td: HTMLElement
  textarea: HTMLTextAreaElement
  th: HTMLElement
  thead: HTMLElement
  time: HTMLElement
  tr: HTMLElement
  ul: HTMLElement
}

interface SVGElement extends Element {}

interface SVGElementTagNameMap {
  circle: SVGElement
  rect: SVGElement
  svg: SVGElement
}

interface Document extends EventTarget {
  readonly body: HTMLElement
  readonly hidden: boolean
  title: string
  createElement<Tag extends keyof HTMLElementTagNameMap>(tag: Tag): HTMLElementTagNameMap[Tag]
  createElementNS<Tag extends keyof SVGElementTagNameMap>(
    namespace: string,
    tag: Tag,
  ): SVGElementTagNameMap[Tag]
  getElementById(id: string): HTMLElement | null
  querySelectorAll<Found extends Element = Element>(selectors: string): NodeList<Found>
}

declare const document: Document
declare const window: EventTarget & { readonly innerWidth: number }
declare const location: {
  readonly href: string
  readonly origin: string
  hash: string
  reload(): void
}
declare const history: { replaceState(data: unknown, title: string, url: string): void }
declare const sessionStorage: {
  getItem(key: string): string | null
  setItem(key: string, value: string): void
  removeItem(key: string): void
}
declare const navigator: { readonly onLine: boolean }

interface WebSocket extends EventTarget {
  send(data: string): void
  close(code?: number): void
}
declare const WebSocket: { new (url: string): WebSocket }
