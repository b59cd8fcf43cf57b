/** Tabs and their panels. A panel that was scrolled to its end stays there. */
import { element, setText } from './element.ts'

export type TabSpec = {
  readonly name: string
  readonly label: string
  readonly panel: HTMLElement
}

type TabParts = {
  readonly name: string
  readonly button: HTMLButtonElement
  readonly count: HTMLElement
  readonly panel: HTMLElement
}

/** The distance that still counts as the end. */
const NEAR_PX = 60

export class Tabs {
  readonly element = element('div', { class: 'tabs', role: 'tablist' })
  onSelect: (name: string) => void = () => undefined
  readonly #tabs: readonly TabParts[]
  #current: TabParts | undefined
  #isAtEnd = true

  constructor(specs: readonly TabSpec[]) {
    this.#tabs = specs.map((spec) => this.#make(spec))
    this.element.append(...this.#tabs.map(({ button }) => button))
    this.element.addEventListener('keydown', (event) => this.#onKey(event))
    if (this.#tabs[0] !== undefined) this.#select(this.#tabs[0])
  }

  get panels(): readonly HTMLElement[] {
    return this.#tabs.map(({ panel }) => panel)
  }

  count(name: string, count: number): void {
    const tab = this.#tabs.find((candidate) => candidate.name === name)
    if (tab !== undefined) setText(tab.count, count === 0 ? '' : ` ${count}`)
  }

  /** Scrolls to the end, unless the reader has scrolled up; `always` does it anyway. */
  scrollDown(always = false): void {
    if (always) this.#isAtEnd = true
    const panel = this.#current?.panel
    if (this.#isAtEnd && panel !== undefined && this.#current?.name !== 'attachments') {
      panel.scrollTop = panel.scrollHeight
    }
  }

  #make({ name, label, panel }: TabSpec): TabParts {
    const count = element('span', { class: 'count' })
    const id = `tab-${name}`
    const button = element(
      'button',
      { type: 'button', role: 'tab', 'data-tab': name, 'aria-controls': `panel-${name}`, id },
      label,
      count,
    )
    const frame = element(
      'div',
      { class: 'panel', role: 'tabpanel', id: `panel-${name}`, tabindex: 0, 'aria-labelledby': id },
      panel,
    )
    const tab = { name, button, count, panel: frame }
    button.addEventListener('click', () => this.#select(tab))
    frame.addEventListener('scroll', () => {
      this.#isAtEnd = frame.scrollHeight - frame.scrollTop - frame.clientHeight < NEAR_PX
    })
    return tab
  }

  #select(chosen: TabParts): void {
    this.#current = chosen
    for (const tab of this.#tabs) {
      const isChosen = tab === chosen
      tab.button.setAttribute('aria-selected', String(isChosen))
      tab.button.tabIndex = isChosen ? 0 : -1
      tab.panel.hidden = !isChosen
    }
    this.onSelect(chosen.name)
    this.scrollDown(true)
  }

  #onKey(event: KeyboardEvent): void {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
    const index = this.#tabs.findIndex((tab) => tab === this.#current)
    const next = step === undefined ? undefined : this.#tabs.at((index + step) % this.#tabs.length)
    if (next === undefined) return
    this.#select(next)
    next.button.focus()
  }
}
