/** `holdfast sessions`: which there are, newest first. */
import type { SessionRowView } from '../wire/views.ts'
import { numberFlag, textFlag, UsageError, type Command, type Values } from './command.ts'
import { Remote, REMOTE_FLAGS, REMOTE_HELP, type RunningBrowsers } from './remote.ts'

const PAGE = 500

export const sessions: Command = {
  name: 'sessions',
  usage: 'sessions [--state open|closed] [--key KEY] [flags]',
  summary: 'Lists the sessions of a running server, newest first, and its browsers.',
  flags: {
    ...REMOTE_FLAGS,
    state: { type: 'string' },
    key: { type: 'string' },
    label: { type: 'string' },
    limit: { type: 'string' },
    json: { type: 'boolean' },
  },
  help: [
    ['--state STATE', 'only those that are open, or closed'],
    ['--key KEY', 'only those of this key'],
    ['--label NAME:VALUE', 'only those with this label'],
    ['--limit N', 'at most so many (100)'],
    ['--json', 'one JSON object per line, for programs'],
    ...REMOTE_HELP,
  ],
  run: listSessions,
}

async function listSessions(values: Values, words: readonly string[]): Promise<number> {
  if (words[0] !== undefined) throw new UsageError(`sessions takes no ${words[0]}: flags only`)
  const state = textFlag(values, 'state')
  if (state !== null && state !== 'open' && state !== 'closed') {
    throw new UsageError(`--state must be open or closed, not ${state}`)
  }
  const limit = numberFlag(values, 'limit', { fallback: 100, min: 1, max: 1_000_000 })
  const filters = ['state', 'key', 'label'].flatMap((name) => {
    const value = textFlag(values, name)
    return value === null ? [] : [[name, value] as const]
  })
  const remote = new Remote(values)
  const found = await collect(remote, Object.fromEntries(filters), limit)
  if (values['json'] === true) for (const session of found) console.log(JSON.stringify(session))
  else {
    printSessions(found)
    // Browsers have neither a key nor labels, and none that has ended is told of.
    if (filters.every(([name, value]) => name === 'state' && value === 'open')) {
      printBrowsers(await remote.browsers())
    }
  }
  return 0
}

/** Page by page, until there are enough or no more. */
export async function collect(
  remote: Remote,
  filters: Readonly<Record<string, string>>,
  limit: number,
): Promise<readonly SessionRowView[]> {
  const found: SessionRowView[] = []
  let cursor: string | null = null
  do {
    const rest = String(Math.min(PAGE, limit - found.length))
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

export function printTable(lines: readonly (readonly string[])[]): void {
  const widths = lines[0]!.map((_, column) =>
    Math.max(...lines.map((line) => Array.from(line[column]!).length)),
  )
  for (const line of lines) {
    console.log(
      line
        .map((cell, column) => cell.padEnd(widths[column]!))
        .join('  ')
        .trimEnd(),
    )
  }
}

/** What others wrote must not steer the terminal. */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}]/gu, '\uFFFD')
}
