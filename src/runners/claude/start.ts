/** How Claude Code is started for a session: its folders, its arguments, its stored transcript. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { McpServerOptions } from '../agent-options.ts'
import type { Places } from '../agent-settings.ts'
import { CLAUDE_FILES, findLog, openLog } from '../conversation-files.ts'
import type { Start } from '../reserved-ids.ts'
import type { ClaudeSettings } from './options.ts'
import type { Allowed } from './permission.ts'

export type ClaudeStart = Start & {
  /** The file of its transcript, if that is not where it is looked for. */
  readonly transcript?: string
  /** The conversation that a new one begins with: its transcript, and its last message. */
  readonly fork?: { readonly transcript: string; readonly message: string }
}

/** How a long-lived Claude Code must behave; the operator's `env` may say otherwise. */
export const LONG_LIVED_ENV = {
  // It works in turns only: nothing in the background, nothing at set times.
  CLAUDE_CODE_DISABLE_BACKGROUND_TASKS: '1',
  CLAUDE_CODE_DISABLE_CRON: '1',
  // A turn is in its transcript before it says that the turn is over; else up to 0.1 s later, and
  // a process that was killed in between had forgotten a turn that its client knew as done.
  CLAUDE_CODE_EAGER_FLUSH: '1',
} as const

/** How long a message is waited for in a transcript, and how often it is looked for. */
const STORED_MS_MAX = 2_000
const STORED_POLL_MS = 25

const PROTOCOL = [
  ...['-p', '--verbose', '--include-partial-messages', '--permission-prompt-tool', 'stdio'],
  ...['--input-format', 'stream-json', '--output-format', 'stream-json'],
]

export function argumentsOf(
  { args, allow, deny, modes, mcpServers }: ClaudeSettings,
  { directories }: Places,
  { rules, directories: granted }: Allowed,
): readonly string[] {
  return [
    ...args,
    ...PROTOCOL,
    ...(modes.includes('bypassPermissions') ? ['--allow-dangerously-skip-permissions'] : []),
    ...(mcpServers === undefined ? [] : ['--strict-mcp-config']),
    ...[...directories, ...granted].flatMap((path) => ['--add-dir', path]),
    ...[...allow, ...rules].flatMap((rule) => [`--allowedTools=${rule}`]),
    ...deny.flatMap((rule) => [`--disallowedTools=${rule}`]),
  ]
}

export function sessionArguments(start: ClaudeStart): readonly string[] {
  const { backend, isFirst, transcript, fork } = start
  if (!isFirst) return ['--resume', transcript ?? backend]
  if (fork === undefined) return ['--session-id', backend]
  const from = ['--resume', fork.transcript, '--resume-session-at', fork.message]
  return [...from, '--fork-session', '--session-id', backend]
}

/** MCP servers as Claude Code takes them. */
export function serversOf(
  servers: readonly (readonly [string, McpServerOptions])[],
): Readonly<Record<string, unknown>> {
  const entries = servers.map(([name, server]) => {
    return [name, { type: server.url === undefined ? 'stdio' : 'http', ...server }]
  })
  return Object.fromEntries(entries) as Readonly<Record<string, unknown>>
}

/**
 * The transcript that a fork begins with. A turn that was cut off may be stored a moment after it
 * was told, so the message at the end may have to be waited for.
 */
export async function findForked(
  backend: string,
  message: string,
  env: Readonly<Record<string, string>>,
): Promise<string | null> {
  for (let waitedMs = 0; waitedMs < STORED_MS_MAX; waitedMs += STORED_POLL_MS) {
    const path = await findTranscript(backend, env)
    if (path !== null && (await textOf(path, env)).includes(message)) return path
    await sleep(STORED_POLL_MS)
  }
  return null
}

async function textOf(path: string, env: Readonly<Record<string, string>>): Promise<string> {
  const file = await openLog(CLAUDE_FILES, env, path)
  if (file === null) return ''
  try {
    return await file.readFile('utf8')
  } finally {
    await file.close()
  }
}

/**
 * The transcript of a session: Claude Code looks for it by the working folder only, which may have
 * been another before.
 */
export async function findTranscript(
  backend: string,
  env: Readonly<Record<string, string>>,
): Promise<string | null> {
  // What cannot be read is as good as not there.
  return findLog(CLAUDE_FILES, env, backend).catch(() => null)
}
