/** `holdfast sessions`: lists sessions and browsers. */
import type { SessionRowView } from '../wire/views.ts'
import { defineCommand, NO_OPERANDS } from './command.ts'
import { choice, number, orElse, text, toggle } from './flags.ts'
import { printable, printJson, printTable } from './output.ts'
import { Remote, REMOTE_FLAGS, type RunningBrowsers } from './remote.ts'

const PAGE_SESSIONS = 500

export const sessions = defineCommand({
  name: 'sessions',
  operands: NO_OPERANDS,
  summary: 'Lists the sessions of a running server, newest first, and its browsers.',
  flags: {
    state: choice('STATE', 'only sessions that are open, or closed', ['open', 'closed']),
    key: text('KEY', 'only sessions of this key'),
    label: text('NAME:VALUE', 'only sessions with this label'),
    limit: orElse(number('N', 'at most so many sessions', { min: 1, max: 1_000_000 }), 100),
    json: toggle('one JSON object per line, for programs'),
    ...REMOTE_FLAGS,
  },
  async run({ state, key, label, limit, json, ...values }) {
    const filters = Object.entries({ state, key, label }).filter(
      (entry): entry is [string, string] => entry[1] !== null,
    )
    const remote = new Remote(values)
    const found = await collectSessions(remote, Object.fromEntries(filters), limit)
    if (json) printJson(found)
    else printSessions(found)
    // Browsers have no key and no labels, and only running ones are listed.
    if (!json && key === null && label === null && state !== 'closed') {
      printBrowsers(await remote.browsers())
    }
    return 0
  },
})

/** All pages, up to the limit. */
export async function collectSessions(
  remote: Remote,
  filters: Readonly<Record<string, string>>,
  limit: number,
): Promise<readonly SessionRowView[]> {
  const found: SessionRowView[] = []
  let cursor: string | null = null
  do {
    const rest = String(Math.min(PAGE_SESSIONS, limit - found.length))
    const next: Record<string, string> = cursor === null ? {} : { cursor }
    const page = await remote.list({ ...filters, ...next, limit: rest })
    found.push(...page.sessions)
    cursor = page.nextCursor
  } while (cursor !== null && found.length < limit)
  return found
}

function printSessions(found: readonly SessionRowView[]): void {
  if (found.length === 0) return console.log('no sessions')
  const rows = found.map(({ id, key, agent, state, seq, updatedAt }) => [
    id,
    key === null ? '-' : printable(key),
    agent,
    state,
    String(seq),
    new Date(updatedAt).toISOString(),
  ])
  printTable([['ID', 'KEY', 'AGENT', 'STATE', 'EVENTS', 'CHANGED'], ...rows])
}

function printBrowsers({ node = null, browsers }: RunningBrowsers): void {
  if (browsers.length > 0) printBrowserTable(browsers)
  if (node === null) return
  const which = browsers.length > 0 ? 'these browsers run' : 'no browsers run'
  console.log(`\n${which} on node ${printable(node)}; ask each other node for its own`)
}

function printBrowserTable(browsers: RunningBrowsers['browsers']): void {
  const rows = browsers.map((browser) => [
    browser.name,
    browser.session === null ? 'shared' : printable(browser.key ?? browser.session),
    browser.pid === null ? '-' : String(browser.pid),
    browser.health,
    String(browser.sessions),
    String(browser.clients),
    String(browser.pages),
    browser.memoryBytes === null ? '-' : `${Math.round(browser.memoryBytes / 1e6)} MB`,
    new Date(browser.startedAt).toISOString(),
  ])
  const head = 'BROWSER FOR PID HEALTH SESSIONS CLIENTS PAGES MEMORY STARTED'.split(' ')
  console.log('')
  printTable([head, ...rows])
}
