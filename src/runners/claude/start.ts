/** How Claude Code is started for a session: its folders, its arguments, its stored transcript. */
import { existsSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { McpServerOptions } from '../agent-options.ts'
import type { Places } from '../agent-settings.ts'
import type { Start } from '../reserved-ids.ts'
import type { ClaudeSettings } from './options.ts'
import type { Allowed } from './permission.ts'

export type ClaudeStart = Start & {
  /** The file of its transcript, if that is not where it is looked for. */
  readonly transcript?: string
  /** The conversation that a new one begins with: its transcript, and its last message. */
  readonly fork?: { readonly transcript: string; readonly message: string }
}

/** Claude Code must work in turns only: nothing in the background, nothing at set times. */
export const TURNS_ONLY = {
  CLAUDE_CODE_DISABLE_BACKGROUND_TASKS: '1',
  CLAUDE_CODE_DISABLE_CRON: '1',
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
 * The transcript that a fork begins with. Claude Code stores a message a moment after it has told
 * it, so the message at the end may have to be waited for.
 */
export async function findForked(
  backend: string,
  message: string,
  env: Readonly<Record<string, string>>,
): Promise<string | null> {
  for (let waitedMs = 0; waitedMs < STORED_MS_MAX; waitedMs += STORED_POLL_MS) {
    const file = await findTranscript(backend, env)
    if (file !== null && (await readFile(file, 'utf8')).includes(message)) return file
    await sleep(STORED_POLL_MS)
  }
  return null
}

/**
 * The transcript of a session: Claude Code looks for it by the working folder only, which may have
 * been another before.
 */
export async function findTranscript(
  backend: string,
  env: Readonly<Record<string, string>>,
): Promise<string | null> {
  const config = env['CLAUDE_CONFIG_DIR'] ?? join(env['HOME'] ?? homedir(), '.claude')
  const projects = join(config, 'projects')
  // Without the folder there is no transcript.
  const names = await readdir(projects).catch(() => [])
  for (const name of names) {
    const file = join(projects, name, `${backend}.jsonl`)
    if (existsSync(file)) return file
  }
  return null
}
