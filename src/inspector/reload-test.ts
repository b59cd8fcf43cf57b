/** The reload test: runs every trial under every policy and compares the outcomes. */
import type { Api } from './api.ts'
import { button, buttons, element, setText } from './element.ts'
import { SimulatedTab } from './tab.ts'
import { GRACE_MS, POLICIES, TRIALS, type Policy, type Trial } from './trials.ts'

/** A trial that takes longer has failed. */
const TRIAL_MS = 20_000

const WORDS =
  'Each cell creates a session, and does to a simulated page what can happen to a tab. Above ' +
  'is the outcome that its policy promises, below the outcome of the test. A page that comes ' +
  'back has to run a turn.'

export class ReloadTest {
  readonly #api: Api
  readonly #cells = new Map<string, Cell>()
  readonly #run = button('Run', () => void this.#runAll(), { class: 'primary' })
  readonly #summary = element('p.muted', { role: 'status', 'data-summary': '' })
  readonly element = element(
    'div.page.reload-test',
    element('h1', 'Reload test'),
    element('p.muted', WORDS),
    buttons(this.#run),
    this.#summary,
    element('div.trials', this.#table()),
  )

  constructor(api: Api) {
    this.#api = api
  }

  #table(): HTMLElement {
    const heads = POLICIES.map((policy) => element('th', { scope: 'col' }, policy))
    return element(
      'table',
      element('caption.seen-only-by-readers', 'Expected and seen, by policy'),
      element('thead', element('tr', element('td'), ...heads)),
      element('tbody', ...TRIALS.map((trial) => this.#row(trial))),
    )
  }

  #row(trial: Trial): HTMLElement {
    const cells = POLICIES.map((policy) => {
      const cell = new Cell(policy, trial.expected[policy])
      this.#cells.set(`${trial.name} ${policy}`, cell)
      return cell.element
    })
    const head = element('th', { scope: 'row' }, trial.title, element('span', trial.does))
    return element('tr', { 'data-trial': trial.name }, head, ...cells)
  }

  async #runAll(): Promise<void> {
    this.#run.disabled = true
    for (const cell of this.#cells.values()) cell.show('waiting', '')
    const startedAt = performance.now()
    let passed = 0
    for (const trial of TRIALS) {
      setText(this.#summary, `Running: ${trial.title}`)
      const outcomes = await Promise.all(POLICIES.map((policy) => this.#runOne(trial, policy)))
      passed += outcomes.filter((isPassed) => isPassed).length
    }
    const failed = this.#cells.size - passed
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
    setText(this.#summary, `${passed} as expected, ${failed} not, in ${seconds} s.`)
    this.#summary.dataset['summary'] = failed === 0 ? 'passed' : 'failed'
    this.#run.disabled = false
    setText(this.#run, 'Run again')
  }

  /** Whether it has the outcome that the policy promises. */
  async #runOne(trial: Trial, policy: Policy): Promise<boolean> {
    const cell = this.#cells.get(`${trial.name} ${policy}`)
    cell?.show('running', 'running…')
    const seen = await this.#see(trial, policy).catch((error: Error) => `failed: ${error.message}`)
    const isPassed = seen === trial.expected[policy]
    cell?.show(isPassed ? 'passed' : 'failed', seen)
    return isPassed
  }

  async #see({ exclusive, run }: Trial, reconnect: Policy): Promise<string> {
    const graceMs = GRACE_MS
    const options = {
      reconnect,
      exclusive: exclusive === true,
      graceMs,
      agent: 'slow',
      internal: true,
    }
    const { id } = await this.#api.create(options)
    const tabs: SimulatedTab[] = []
    const keep = (tab: SimulatedTab): SimulatedTab => {
      tabs.push(tab)
      return tab
    }
    const first = keep(new SimulatedTab(this.#api, id))
    try {
      await first.session.ready
      return await withinTime(run(first, keep))
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
  readonly #seen = element('div.seen')
  readonly element: HTMLElement

  constructor(policy: Policy, expected: string) {
    const parts = [element('div.policy', policy), element('div.expected', expected), this.#seen]
    this.element = element('td', { 'data-policy': policy, 'data-state': 'waiting' }, ...parts)
  }

  show(state: 'waiting' | 'running' | 'passed' | 'failed', seen: string): void {
    this.element.dataset['state'] = state
    setText(this.#seen, seen)
  }
}
