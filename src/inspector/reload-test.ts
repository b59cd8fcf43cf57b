/** The reload test: runs every trial under every policy and compares the outcomes. */
import type { Access } from './access.ts'
import { Api } from './api.ts'
import { button, element, setText } from './element.ts'
import { SimulatedTab } from './tab.ts'
import { GRACE_MS, POLICIES, TRIALS, type Policy, type Trial } from './trials.ts'

/** A trial that takes longer has failed. */
const TRIAL_MS = 20_000

type CellState = 'waiting' | 'running' | 'passed' | 'failed'

export class ReloadTest {
  readonly element: HTMLElement
  readonly #access: Access
  readonly #api: Api
  readonly #cells = new Map<string, Cell>()
  readonly #run: HTMLButtonElement
  readonly #summary = element('p', { role: 'status', class: 'muted', 'data-summary': '' })

  constructor(access: Access) {
    this.#access = access
    this.#api = new Api(access)
    this.#run = button('Run', () => void this.#runAll(), { class: 'primary' })
    const words =
      'Each cell creates a session, and does to a simulated page what can happen to a tab. Above ' +
      'is the outcome that its policy promises, below the outcome of the test. A page that comes ' +
      'back has to run a turn.'
    this.element = element(
      'div',
      { class: 'page reload-test' },
      element('h1', {}, 'Reload test'),
      element('p', { class: 'muted' }, words),
      element('div', { class: 'buttons' }, this.#run),
      this.#summary,
      element('div', { class: 'trials' }, this.#table()),
    )
  }

  #table(): HTMLElement {
    const heads = POLICIES.map((policy) => element('th', { scope: 'col' }, policy))
    const corner = element('td', {})
    return element(
      'table',
      {},
      element('caption', { class: 'seen-only-by-readers' }, 'Expected and seen, by policy'),
      element('thead', {}, element('tr', {}, corner, ...heads)),
      element('tbody', {}, ...TRIALS.map((trial) => this.#row(trial))),
    )
  }

  #row(trial: Trial): HTMLElement {
    const cells = POLICIES.map((policy) => {
      const cell = new Cell(policy, trial.expected[policy])
      this.#cells.set(`${trial.name} ${policy}`, cell)
      return cell.element
    })
    const head = element('th', { scope: 'row' }, trial.title, element('span', {}, trial.does))
    return element('tr', { 'data-trial': trial.name }, head, ...cells)
  }

  async #runAll(): Promise<void> {
    this.#run.disabled = true
    for (const cell of this.#cells.values()) cell.show('waiting', '')
    const startedAt = performance.now()
    for (const trial of TRIALS) {
      setText(this.#summary, `Running: ${trial.title}`)
      await Promise.all(POLICIES.map((policy) => this.#runOne(trial, policy)))
    }
    const failed = [...this.#cells.values()].filter(({ state }) => state === 'failed').length
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
    const passed = this.#cells.size - failed
    setText(this.#summary, `${passed} as expected, ${failed} not, in ${seconds} s.`)
    this.#summary.dataset['summary'] = failed === 0 ? 'passed' : 'failed'
    this.#run.disabled = false
    setText(this.#run, 'Run again')
  }

  async #runOne(trial: Trial, policy: Policy): Promise<void> {
    const cell = this.#cells.get(`${trial.name} ${policy}`)
    cell?.show('running', 'running…')
    const seen = await this.#see(trial, policy).catch((error: Error) => `failed: ${error.message}`)
    cell?.show(seen === trial.expected[policy] ? 'passed' : 'failed', seen)
  }

  async #see(trial: Trial, policy: Policy): Promise<string> {
    const { exclusive = false } = trial
    const graceMs = GRACE_MS
    const options = { reconnect: policy, exclusive, graceMs, agent: 'slow', internal: true }
    const { id } = await this.#api.create(options)
    const tabs: SimulatedTab[] = []
    const keep = (tab: SimulatedTab): SimulatedTab => {
      tabs.push(tab)
      return tab
    }
    const first = keep(new SimulatedTab({ session: id, token: this.#access.token }))
    try {
      await first.session.ready
      return await withinTime(trial.run(first, keep))
    } finally {
      for (const tab of tabs) tab.close()
      await this.#api.close(id)
    }
  }
}

function withinTime<Value>(work: Promise<Value>): Promise<Value> {
  const late = new Promise<never>((_, reject) => {
    setTimeout(() => reject(new Error(`nothing for ${TRIAL_MS / 1000} s`)), TRIAL_MS)
  })
  return Promise.race([work, late])
}

class Cell {
  readonly element: HTMLElement
  readonly #seen = element('div', { class: 'seen' })
  #state: CellState = 'waiting'

  constructor(policy: Policy, expected: string) {
    this.element = element(
      'td',
      { 'data-policy': policy, 'data-state': 'waiting' },
      element('div', { class: 'policy' }, policy),
      element('div', { class: 'expected' }, expected),
      this.#seen,
    )
  }

  get state(): CellState {
    return this.#state
  }

  show(state: CellState, seen: string): void {
    this.#state = state
    this.element.dataset['state'] = state
    setText(this.#seen, seen)
  }
}
