/** The reload test: runs every trial under every policy and compares the outcomes. */
import { useState } from 'preact/hooks'
import { Button } from '../shared/parts.tsx'
import { api } from '../shared/server.ts'
import { SimulatedTab } from './simulated-tab.ts'
import { GRACE_MS, POLICIES, TRIALS, type Policy, type Trial } from './trials.ts'

/** A trial that takes longer has failed. */
const TRIAL_MS = 20_000

type Outcome = {
  readonly state: 'waiting' | 'running' | 'passed' | 'failed'
  readonly seen: string
}

const WAITING: Outcome = { state: 'waiting', seen: '' }

const nameOf = (trial: Trial, policy: Policy): string => `${trial.name} ${policy}`

export function ReloadTest() {
  const [outcomes, setOutcomes] = useState<ReadonlyMap<string, Outcome>>(new Map())
  const [summary, setSummary] = useState({ words: '', state: '' })
  const [isRunning, setRunning] = useState(false)
  const runAll = async (): Promise<void> => {
    setRunning(true)
    setOutcomes(new Map())
    const startedAt = performance.now()
    let failed = 0
    for (const trial of TRIALS) {
      setSummary({ words: `Running: ${trial.title}`, state: '' })
      const runOne = async (policy: Policy): Promise<void> => {
        const show = (outcome: Outcome): void =>
          setOutcomes((known) => new Map(known).set(nameOf(trial, policy), outcome))
        show({ state: 'running', seen: 'running…' })
        const failure = (error: Error): string => `failed: ${error.message}`
        const seen = await tryOut(trial, policy).catch(failure)
        const isExpected = seen === trial.expected[policy]
        if (!isExpected) failed += 1
        show({ state: isExpected ? 'passed' : 'failed', seen })
      }
      await Promise.all(POLICIES.map(runOne))
    }
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
    const passed = TRIALS.length * POLICIES.length - failed
    const words = `${passed} as expected, ${failed} not, in ${seconds} s.`
    setSummary({ words, state: failed === 0 ? 'passed' : 'failed' })
    setRunning(false)
  }
  return (
    <div class="page reload-test">
      <h1>Reload test</h1>
      <p class="muted">
        Each cell creates a session, and does to a simulated page what can happen to a tab. Above is
        the outcome that its policy promises, below the outcome of the test. A page that comes back
        has to run a turn.
      </p>
      <div class="buttons">
        <Button kind="primary" disabled={isRunning} onClick={() => void runAll()}>
          {summary.state === '' ? 'Run' : 'Run again'}
        </Button>
        <p class="muted" role="status" data-summary={summary.state}>
          {summary.words}
        </p>
      </div>
      <Trials outcomes={outcomes} />
    </div>
  )
}

function Trials({ outcomes }: { readonly outcomes: ReadonlyMap<string, Outcome> }) {
  return (
    <div class="trials" tabIndex={0} role="region" aria-label="Expected and seen, by policy">
      <table>
        <caption class="seen-only-by-readers">Expected and seen, by policy</caption>
        <thead>
          <tr>
            <td />
            {POLICIES.map((policy) => (
              <th key={policy} scope="col">
                {policy}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {TRIALS.map((trial) => (
            <tr key={trial.name} data-trial={trial.name}>
              <th scope="row">
                {trial.title}
                <span>{trial.does}</span>
              </th>
              {POLICIES.map((policy) => {
                const { state, seen } = outcomes.get(nameOf(trial, policy)) ?? WAITING
                return (
                  <td key={policy} data-policy={policy} data-state={state}>
                    <div class="policy">{policy}</div>
                    <div class="expected">{trial.expected[policy]}</div>
                    <div class="seen">{seen}</div>
                  </td>
                )
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

async function tryOut(trial: Trial, reconnect: Policy): Promise<string> {
  const exclusive = trial.exclusive === true
  const options = { reconnect, exclusive, graceMs: GRACE_MS, agent: 'slow', internal: true }
  const { id } = await api.create(options)
  const first = new SimulatedTab(id)
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
