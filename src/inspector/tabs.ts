/** Tabs and their panels. A panel that was scrolled to its end stays there. */
import { element, setText } from './element.ts'

type TabSpec = { readonly name: string; readonly label: string; readonly content: HTMLElement }
type Tab = ReturnType<typeof makeTab>

/** The distance that still counts as the end. */
const NEAR_PX = 60

/** `onSelect` is called with the name of a tab that the reader selects; the first one is shown. */
export function tabbedPanels(specs: readonly TabSpec[], onSelect: (name: string) => void) {
  const tabs = specs.map(makeTab)
  const list = element('div.tabs', { role: 'tablist' }, ...tabs.map(({ button }) => button))
  let current: Tab | undefined
  let isAtEnd = true

  function scrollDown(always = false): void {
    if (always) isAtEnd = true
    if (!isAtEnd || current === undefined || current.name === 'attachments') return
    current.panel.scrollTop = current.panel.scrollHeight
  }

  function select(chosen: Tab): void {
    current = chosen
    for (const tab of tabs) {
      const isChosen = tab === chosen
      tab.button.setAttribute('aria-selected', String(isChosen))
      tab.button.tabIndex = isChosen ? 0 : -1
      tab.panel.hidden = !isChosen
    }
    scrollDown(true)
  }

  const choose = (tab: Tab): void => {
    // First: the page may show more or less beside the panel, which is scrolled then.
    onSelect(tab.name)
    select(tab)
  }
  for (const tab of tabs) {
    const { button, panel } = tab
    button.addEventListener('click', () => choose(tab))
    panel.addEventListener('scroll', () => {
      isAtEnd = panel.scrollHeight - panel.scrollTop - panel.clientHeight < NEAR_PX
    })
  }
  list.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
    const index = tabs.findIndex((tab) => tab === current)
    const next = step === undefined ? undefined : tabs.at((index + step) % tabs.length)
    if (next === undefined) return
    choose(next)
    next.button.focus()
  })
  if (tabs[0] !== undefined) select(tabs[0])

  return {
    element: list,
    panels: tabs.map(({ panel }) => panel),
    /** Scrolls to the end, unless the reader has scrolled up; `always` does it anyway. */
    scrollDown,
    count(name: string, count: number): void {
      const tab = tabs.find((candidate) => candidate.name === name)
      if (tab !== undefined) setText(tab.count, count === 0 ? '' : ` ${count}`)
    },
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
