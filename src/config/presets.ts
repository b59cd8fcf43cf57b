/**
 * Agents that are known by name: `holdfast serve --agent claude` needs no more than the program. A
 * preset is what an operator could have written; `install` says how to get the program.
 */
import type { Static } from '../schema/typebox.ts'
import type { AcpAgent } from '../runners/acp/options.ts'
import type { ClaudeAgent } from '../runners/claude/options.ts'
import type { CodexAgent } from '../runners/codex/options.ts'
import type { ProcessAgent } from '../runners/process/options.ts'

type Preset = (
  | ({ readonly runner: 'process' } & Static<typeof ProcessAgent>)
  | ({ readonly runner: 'acp' } & Static<typeof AcpAgent>)
  | ({ readonly runner: 'claude' } & Static<typeof ClaudeAgent>)
  | ({ readonly runner: 'codex' } & Static<typeof CodexAgent>)
) & { readonly args: readonly string[]; readonly envAllow: readonly string[] }

/** Agents need these to reach the network; a password in them is the agent's own. */
const PROXIES = ['HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY', 'http_proxy', 'https_proxy', 'no_proxy']

const CLAUDE_ENV = ['ANTHROPIC_*', 'CLAUDE_*', 'DISABLE_*', 'IS_SANDBOX', ...PROXIES]

export const PRESETS = {
  claude: { runner: 'claude', command: 'claude', args: [], envAllow: CLAUDE_ENV },
  codex: {
    runner: 'codex',
    command: 'codex',
    args: ['app-server'],
    envAllow: ['OPENAI_*', 'CODEX_*', ...PROXIES],
  },
  'codex-once': {
    runner: 'process',
    command: 'codex',
    args: ['exec'],
    firstArgs: ['--json', '--skip-git-repo-check', '-'],
    laterArgs: ['resume', '--json', '--skip-git-repo-check', '{sessionUuid}', '-'],
    output: 'codex',
    envAllow: ['OPENAI_*', 'CODEX_*', ...PROXIES],
  },
  opencode: {
    runner: 'acp',
    command: 'opencode',
    args: ['acp'],
    terminalArgs: ['--session', '{sessionId}'],
    envAllow: ['OPENCODE_*', 'ANTHROPIC_*', 'OPENAI_*', 'GEMINI_*', 'OPENROUTER_*', ...PROXIES],
  },
  gemini: {
    runner: 'acp',
    command: 'gemini',
    args: ['--acp'],
    terminalArgs: ['--resume', '{sessionId}'],
    envAllow: ['GEMINI_*', 'GOOGLE_*', ...PROXIES],
    // It names a session's file by the minute, and overwrites it when it opens it again in that.
    reopenMs: 60_000,
  },
  copilot: {
    runner: 'acp',
    command: 'copilot',
    args: ['--acp'],
    terminalArgs: ['--resume={sessionId}'],
    envAllow: ['COPILOT_*', 'GH_TOKEN', 'GITHUB_TOKEN', ...PROXIES],
  },
  'claude-once': {
    runner: 'process',
    command: 'claude',
    args: ['-p', '--output-format', 'stream-json', '--verbose', '--include-partial-messages'],
    firstArgs: ['--session-id', '{sessionUuid}'],
    laterArgs: ['--resume', '{sessionUuid}'],
    output: 'claude',
    envAllow: CLAUDE_ENV,
  },
} as const satisfies Record<string, Preset>
export type PresetName = keyof typeof PRESETS
export const PRESET_NAMES = Object.keys(PRESETS) as PresetName[]

const PACKAGES: Readonly<Record<PresetName, string>> = {
  claude: '@anthropic-ai/claude-code',
  'claude-once': '@anthropic-ai/claude-code',
  codex: '@openai/codex',
  'codex-once': '@openai/codex',
  opencode: 'opencode-ai',
  gemini: '@google/gemini-cli',
  copilot: '@github/copilot',
}

export function installHint(preset: PresetName): string {
  return `install it (npm install -g ${PACKAGES[preset]}), or say where it is as "command"`
}

export function presetsOf(runner: Preset['runner']): readonly PresetName[] {
  return PRESET_NAMES.filter((name) => PRESETS[name].runner === runner)
}

/** A preset with an operator's own fields on top: lists are added to, others replaced. */
export function withPreset(preset: Preset, own: Partial<Omit<Preset, 'runner'>>): Preset {
  const given = Object.entries(own).filter(([, value]) => value !== undefined)
  return {
    ...preset,
    ...Object.fromEntries(given),
    args: [...preset.args, ...(own.args ?? [])],
    envAllow: [...preset.envAllow, ...(own.envAllow ?? [])],
  }
}
