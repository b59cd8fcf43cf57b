/** Tabs and their panels. A panel that was scrolled to its end stays there. */
import { element, setText } from './element.ts'

type TabSpec = { readonly name: string; readonly label: string; readonly content: HTMLElement }
type Tab = ReturnType<typeof makeTab>

/** The distance that still counts as the end. */
const NEAR_PX = 60

export class Tabs {
  readonly element = element('div.tabs', { role: 'tablist' })
  readonly panels: readonly HTMLElement[]
  onSelect: (name: string) => void = () => undefined
  readonly #tabs: readonly Tab[]
  #current: Tab | undefined
  #isAtEnd = true

  constructor(specs: readonly TabSpec[]) {
    this.#tabs = specs.map(makeTab)
    this.panels = this.#tabs.map(({ panel }) => panel)
    for (const tab of this.#tabs) {
      const { button, panel } = tab
      this.element.append(button)
      button.addEventListener('click', () => this.#select(tab))
      panel.addEventListener('scroll', () => {
        this.#isAtEnd = panel.scrollHeight - panel.scrollTop - panel.clientHeight < NEAR_PX
      })
    }
    this.element.addEventListener('keydown', (event) => this.#onKey(event))
    if (this.#tabs[0] !== undefined) this.#select(this.#tabs[0])
  }

  count(name: string, count: number): void {
    const tab = this.#tabs.find((candidate) => candidate.name === name)
    if (tab !== undefined) setText(tab.count, count === 0 ? '' : ` ${count}`)
  }

  /** Scrolls to the end, unless the reader has scrolled up; `always` does it anyway. */
  scrollDown(always = false): void {
    if (always) this.#isAtEnd = true
    const { name, panel } = this.#current ?? {}
    if (this.#isAtEnd && panel !== undefined && name !== 'attachments') {
      panel.scrollTop = panel.scrollHeight
    }
  }

  #select(chosen: Tab): void {
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

function makeTab({ name, label, content }: TabSpec) {
  const [id, panelId] = [`tab-${name}`, `panel-${name}`]
  const count = element('span.count')
  const controls = { role: 'tab', 'data-tab': name, 'aria-controls': panelId, id }
  const button = element('button', { type: 'button', ...controls }, label, count)
  const labelled = { role: 'tabpanel', id: panelId, tabindex: 0, 'aria-labelledby': id }
  return { name, button, count, panel: element('div.panel', labelled, content) }
}
