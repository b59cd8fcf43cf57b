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

export function reloadTest(api: Api): HTMLElement {
  const run = button('Run', () => void runAll(), { class: 'primary' })
  const summary = element('p.muted', { role: 'status', 'data-summary': '' })
  const rows = TRIALS.map((trial) => ({
    trial,
    cells: POLICIES.map((policy) => cell(trial, policy)),
  }))

  async function runAll(): Promise<void> {
    run.disabled = true
    const cells = rows.flatMap((row) => row.cells)
    for (const { show } of cells) show('waiting', '')
    const startedAt = performance.now()
    for (const row of rows) {
      setText(summary, `Running: ${row.trial.title}`)
      await Promise.all(row.cells.map((one) => one.run(api)))
    }
    const failed = cells.filter(({ element: { dataset } }) => dataset['state'] === 'failed').length
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
    const passed = cells.length - failed
    setText(summary, `${passed} as expected, ${failed} not, in ${seconds} s.`)
    summary.dataset['summary'] = failed === 0 ? 'passed' : 'failed'
    run.disabled = false
    setText(run, 'Run again')
  }

  const heads = POLICIES.map((policy) => element('th', { scope: 'col' }, policy))
  const lines = rows.map(({ trial: { name, title, does }, cells }) => {
    const head = element('th', { scope: 'row' }, title, element('span', does))
    return element('tr', { 'data-trial': name }, head, ...cells.map((one) => one.element))
  })
  const table = element(
    'table',
    element('caption.seen-only-by-readers', 'Expected and seen, by policy'),
    element('thead', element('tr', element('td'), ...heads)),
    element('tbody', ...lines),
  )
  return element(
    'div.page.reload-test',
    element('h1', 'Reload test'),
    element('p.muted', WORDS),
    buttons(run),
    summary,
    element('div.trials', table),
  )
}

/** The cell of one trial under one policy: the expected outcome, and the outcome of the test. */
function cell(trial: Trial, policy: Policy) {
  const expected = trial.expected[policy]
  const seen = element('div.seen')
  const parts = [element('div.policy', policy), element('div.expected', expected), seen]
  const view = element('td', { 'data-policy': policy, 'data-state': 'waiting' }, ...parts)
  const show = (state: 'waiting' | 'running' | 'passed' | 'failed', outcome: string): void => {
    view.dataset['state'] = state
    setText(seen, outcome)
  }
  const run = async (api: Api): Promise<void> => {
    show('running', 'running…')
    const failure = (error: Error): string => `failed: ${error.message}`
    const outcome = await tryOut(api, trial, policy).catch(failure)
    show(outcome === expected ? 'passed' : 'failed', outcome)
  }
  return { element: view, show, run }
}

async function tryOut(api: Api, trial: Trial, reconnect: Policy): Promise<string> {
  const exclusive = trial.exclusive === true
  const options = { reconnect, exclusive, graceMs: GRACE_MS, agent: 'slow', internal: true }
  const { id } = await api.create(options)
  const first = new SimulatedTab(api, id)
  try {
    await first.session.ready
    const late = new Promise<never>((_, reject) => {
      setTimeout(() => reject(new Error(`nothing for ${TRIAL_MS / 1000} s`)), TRIAL_MS)
    })
    return await Promise.race([trial.run(first), late])
  } finally {
    for (const tab of first.family) tab.close()
    await api.close(id)
  }
}
