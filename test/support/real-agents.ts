/** The real agents under test: where their programs are, and how they are pointed at the stub model. */
import { existsSync, readFileSync } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ROOT } from './repository.ts'

export const AGENTS = ['claude', 'codex', 'opencode', 'gemini', 'copilot'] as const
/** Claude Code by an adapter, which no preset knows. */
export const ADAPTER = 'claude-agent-acp'
export type AgentName = (typeof AGENTS)[number] | typeof ADAPTER

const FOLDER = join(ROOT, '.agents')

/** The agent's program, as `scripts/agents.mjs` has installed it. */
export function programOf(name: AgentName): string {
  const link = join(FOLDER, name, 'program')
  if (existsSync(link)) return readFileSync(link, 'utf8')
  throw new Error(`${name} is not installed: npm test installs it, or npm run e2e:agents`)
}

/** The agent in a configuration: its preset, this program, and no more of ours than it needs. */
export function agentConfig(name: AgentName, env: Readonly<Record<string, string>>) {
  // Without a model of its own choice Gemini CLI first asks another one which to take.
  const args = name === 'gemini' ? ['-m', 'gemini-2.5-flash'] : []
  const kind = name === ADAPTER ? { runner: 'acp' } : { preset: name }
  return { ...kind, command: programOf(name), args, envAllow: Object.keys(env) }
}

const claude = async (home: string, model: string): Promise<Record<string, string>> => ({
  CLAUDE_CONFIG_DIR: join(home, '.claude'),
  ANTHROPIC_BASE_URL: model,
  ANTHROPIC_API_KEY: 'stub',
  DISABLE_AUTOUPDATER: '1',
  DISABLE_TELEMETRY: '1',
  DISABLE_ERROR_REPORTING: '1',
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
  IS_SANDBOX: '1',
})

/** What an agent needs in its environment to run offline, with `home` to itself and `model` behind. */
export async function offline(
  name: AgentName,
  home: string,
  model: string,
): Promise<Record<string, string>> {
  // Some leave files and folders where temporary ones are.
  const TMPDIR = join(home, 'tmp')
  await mkdir(TMPDIR, { recursive: true })
  return { HOME: home, TMPDIR, ...(await OFFLINE[name](home, model)) }
}

const OFFLINE: Readonly<
  Record<AgentName, (home: string, model: string) => Promise<Record<string, string>>>
> = {
  claude,
  // As the guide says: what it has told is in its transcript.
  [ADAPTER]: async (home, model) => ({
    ...(await claude(home, model)),
    CLAUDE_CODE_EAGER_FLUSH: '1',
  }),

  codex: async (home, model) => {
    const folder = join(home, '.codex')
    await mkdir(folder, { recursive: true })
    await writeFile(
      join(folder, 'config.toml'),
      [
        'model = "stub-model"',
        'model_provider = "stub"',
        'check_for_update_on_startup = false',
        '[model_providers.stub]',
        'name = "stub"',
        `base_url = "${model}/v1"`,
        'env_key = "STUB_KEY"',
        'wire_api = "responses"',
        'request_max_retries = 0',
        '[analytics]',
        'enabled = false',
        '',
      ].join('\n'),
    )
    return { CODEX_HOME: folder, STUB_KEY: 'stub' }
  },

  opencode: async (home, model) => {
    const folder = join(home, '.config', 'opencode')
    await mkdir(folder, { recursive: true })
    const provider = {
      npm: '@ai-sdk/openai-compatible',
      name: 'stub',
      options: { baseURL: `${model}/v1`, apiKey: 'stub' },
      models: { 'stub-model': { name: 'stub' } },
    }
    const config = { model: 'stub/stub-model', autoupdate: false, provider: { stub: provider } }
    await writeFile(join(folder, 'opencode.json'), JSON.stringify(config))
    return {
      OPENCODE_DISABLE_AUTOUPDATE: '1',
      OPENCODE_DISABLE_MODELS_FETCH: '1',
      OPENCODE_DISABLE_LSP_DOWNLOAD: '1',
    }
  },

  gemini: async (home, model) => {
    const folder = join(home, '.gemini')
    await mkdir(folder, { recursive: true })
    const security = { auth: { selectedType: 'gemini-api-key' } }
    await writeFile(join(folder, 'settings.json'), JSON.stringify({ security }))
    return {
      GEMINI_API_KEY: 'stub',
      GOOGLE_GEMINI_BASE_URL: model,
      GEMINI_CLI_TRUST_WORKSPACE: 'true',
      GEMINI_CLI_NO_RELAUNCH: 'true',
    }
  },

  copilot: async (_home, model) => ({
    COPILOT_OFFLINE: 'true',
    COPILOT_AUTO_UPDATE: 'false',
    COPILOT_PROVIDER_TYPE: 'openai',
    COPILOT_PROVIDER_BASE_URL: `${model}/v1`,
    COPILOT_PROVIDER_API_KEY: 'stub',
    COPILOT_MODEL: 'stub-model',
  }),
}
