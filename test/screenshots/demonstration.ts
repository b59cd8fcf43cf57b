/** What the pictures show: a scripted agent, and sessions in every state. */
import type { Agent } from 'holdfast'

type Activity = { readonly type: 'activity'; readonly kind: string; readonly data: unknown }
type Output = Activity | { readonly type: 'message'; readonly text: string }

const tool = (data: object): Output => ({ type: 'activity', kind: 'tool', data })

const BEFORE = `export function retryDelay(attempt: number): number {
  return 1000 * attempt
}
`
const AFTER = `/** Doubles up to half a minute; the spread keeps clients apart. */
export function retryDelay(attempt: number, random = Math.random): number {
  const whole = Math.min(30_000, 500 * 2 ** attempt)
  return whole * (0.5 + random() / 2)
}
`

const SUMMARY = `The retries came in waves because every client waited **exactly** as long as the others.

| Case | Before | Now |
| --- | ---: | ---: |
| First retry | 1.0 s | 0.5–1.0 s |
| Tenth retry | 10 s | 15–30 s |
| Peak of 500 clients | 500 requests/s | 41 requests/s |

\`retryDelay\` takes its randomness from the caller, so that the test needs no fake timers:

\`\`\`ts
expect(retryDelay(10, () => 0)).toBe(15_000)
expect(retryDelay(10, () => 1)).toBe(30_000)
\`\`\`

Next I would publish the package, once you agree.`

const plan = (done: number): Output => ({
  type: 'activity',
  kind: 'plan',
  data: {
    entries: [
      'Reproduce the waves of retries',
      'Spread the delays, and cap them',
      'Run the tests',
      'Publish the package',
    ].map((content, index) => ({
      content,
      status: index < done ? 'completed' : index === done ? 'in_progress' : 'pending',
    })),
  },
})

/** A model and its tools take time; without it all durations were 0. */
const work = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

async function* fixRetries(): AsyncGenerator<Output> {
  await work(400)
  yield plan(0)
  const text = 'All clients wait the same time after a failure, so they come back together.'
  yield { type: 'activity', kind: 'thought', data: { text } }
  const path = 'src/client/retry.ts'
  const read = { id: 'c1', name: 'Read', kind: 'read', title: `Read ${path}`, input: { path } }
  yield tool({ ...read, status: 'running' })
  await work(200)
  yield tool({ id: 'c1', status: 'done', output: BEFORE })
  yield plan(1)
  const edit = { id: 'c2', name: 'Edit', kind: 'edit', title: `Edit ${path}`, input: { path } }
  yield tool({ ...edit, status: 'running' })
  await work(900)
  const diff = [{ path, before: BEFORE, after: AFTER }]
  yield tool({ id: 'c2', status: 'done', diff })
  yield plan(2)
  const command = 'npm test -- retry'
  const run = { id: 'c3', name: 'Bash', kind: 'execute', title: command, input: { command } }
  yield tool({ ...run, status: 'running' })
  await work(1_400)
  yield tool({ id: 'c3', status: 'done', output: '✓ src/client/retry.test.ts (6 tests) 41 ms' })
  yield plan(3)
  await work(700)
  const usage = { inputTokens: 18_420, outputTokens: 1_312, costUsd: 0.09 }
  yield { type: 'activity', kind: 'usage', data: usage }
  yield { type: 'message', text: SUMMARY }
}

const ALLOW = [
  { id: 'allow', label: 'Allow once' },
  { id: 'always', label: 'Allow npm publish in this session' },
  { id: 'deny', label: 'Deny' },
]

const untilAborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => signal.addEventListener('abort', () => resolve()))

/** Does what its input says; nothing else is like an agent with a model. */
export const coder: Agent = async function* ({ text }, { ask, signal }) {
  if (text.startsWith('Clients')) return yield* fixRetries()
  if (text.startsWith('Publish')) {
    yield 'The tests pass. I would publish the package now.'
    const command = 'npm publish --tag next'
    await ask({
      kind: 'permission',
      question: 'May I run this command?',
      options: ALLOW,
      accepts: ['message'],
      timeoutMs: 1_500_000,
      detail: { tool: 'Bash', kind: 'execute', command, cwd: '/work/payments' },
    })
    return
  }
  if (text.startsWith('Move')) {
    const change = {
      path: 'config/production.yaml',
      before: 'pool:\n  size: 20\n  timeoutMs: 5000\n',
      after: 'pool:\n  size: 60\n  timeoutMs: 2000\n',
    }
    await ask({
      kind: 'permission',
      question: 'May I change this file?',
      options: ALLOW.filter(({ id }) => id !== 'always'),
      timeoutMs: 900_000,
      detail: {
        tool: 'Edit',
        kind: 'edit',
        diff: [change],
        reason: 'The pool is exhausted at noon.',
      },
    })
    return
  }
  if (text.startsWith('Import')) {
    yield tool({
      ...{ id: 'i1', name: 'Bash', kind: 'execute', title: './import.sh --batch 500' },
      status: 'running',
    })
    yield 'Importing the customers: 12,500 of 40,000 rows so far.'
    return await untilAborted(signal)
  }
  if (text.startsWith('Rehearse')) await work(300 + 20 * text.length)
  if (text.startsWith('Report'))
    throw new Error('the warehouse refused the connection (ECONNREFUSED)')
  yield `Done: ${text}`
}

const IDLE = [
  ['docs/quickstart', 'writer', { team: 'docs' }],
  ['support:4821', 'support', { team: 'support', tier: 'gold' }],
  ['support:4822', 'support', { team: 'support' }],
  ['search/relevance', 'coder', { team: 'search', branch: 'ranking' }],
  ['support:4830', 'support', { team: 'support' }],
  ['mobile/offline-cart', 'coder', { team: 'mobile' }],
  ['release-notes/1.4', 'writer', { team: 'docs' }],
  ['billing/vat-2027', 'coder', { team: 'payments' }],
  ['support:4833', 'support', { team: 'support' }],
  ['infra/terraform-drift', 'coder', { team: 'platform' }],
] as const

/** Sessions by what they show best: a conversation, a queue, a timeline. */
export type Demonstration = Readonly<Record<'main' | 'busy' | 'lanes', string>>

/** Makes the sessions; those that run go on until the server closes. */
export async function demonstrate(url: string): Promise<Demonstration> {
  const post = async (path: string, body: object, headers = {}): Promise<{ id: string }> => {
    const answer = await fetch(`${url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    })
    return (await answer.json()) as { id: string }
  }
  const make = (key: string, agent: string, labels: object) =>
    post('/v1/sessions', { key, agent, labels }).then(({ id }) => id)
  const ends = (id: string, input: string) => post(`/v1/sessions/${id}/turns`, { input })
  const begins = (id: string, input: string) =>
    post(`/v1/sessions/${id}/turns`, { input }, { prefer: 'respond-async' })
  for (const [key, agent, labels] of IDLE) {
    await ends(await make(key, agent, labels), `look into ${key}`)
  }
  const failed = await make('nightly-report', 'analyst', { team: 'data' })
  await ends(failed, 'Report the revenue of yesterday')
  const pool = await make('infra/db-pool', 'coder', { team: 'platform' })
  await begins(pool, 'Move the pool to its new size')
  const busy = await make('import-customers', 'analyst', { team: 'data' })
  await begins(busy, 'Import the customers of the old shop')
  await begins(busy, 'Then compare the totals with the old shop')
  await begins(busy, 'Tell #data when it is done')
  const lanes = await make('payments/release', 'coder', { team: 'payments' })
  for (const input of ['Rehearse the release', 'Rehearse it again', 'Rehearse without a cache']) {
    await begins(lanes, input)
  }
  await ends(lanes, 'Rehearse it as a preview')
  await begins(lanes, 'Publish it as a preview.')
  const main = await make('payments/retry-waves', 'coder', { team: 'payments', branch: 'jitter' })
  await ends(main, 'Clients retry in waves after an outage. Find out why, and fix it.')
  return { main, busy, lanes }
}
