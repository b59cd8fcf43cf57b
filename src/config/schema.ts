/** The configuration file as one schema: its type, its check, and its JSON Schema for editors. */
import { Type, type Static, type TSchema } from '../schema/typebox.ts'
import { LIMITS, type Limits, type Quotas, type Runner } from '../core/index.ts'
import { AcpAgent } from '../runners/acp/options.ts'
import { ClaudeAgent } from '../runners/claude/options.ts'
import { CodexAgent } from '../runners/codex/options.ts'
import type { Agent } from '../runners/function.ts'
import { OpenAiAgent } from '../runners/openai/options.ts'
import { ProcessAgent } from '../runners/process/options.ts'
import { EXACT, limit, list, oneOf, optional, PROBLEM, UNKNOWN_NAME } from '../schema/contract.ts'
import { BudgetSettings } from '../schema/budgets.ts'
import { JwtIssuer } from '../schema/jwt.ts'
import { QUOTA_FIELDS } from '../schema/quotas.ts'
import { RetentionSettings } from '../schema/retention.ts'
import { RuleList } from '../schema/rules.ts'
import { WebhookEntry } from '../schema/webhooks.ts'
import { presetsOf } from './presets.ts'

const FunctionAgent = Type.Object(
  {
    module: Type.String({ minLength: 1, description: "the module's file" }),
    export: Type.Optional(
      Type.String({ minLength: 1, default: 'default', description: 'its export' }),
    ),
  },
  EXACT,
)

/** The fields of each kind of agent, besides `runner`. */
export const AGENT_FIELDS = {
  process: ProcessAgent,
  acp: AcpAgent,
  claude: ClaudeAgent,
  codex: CodexAgent,
  openai: OpenAiAgent,
  function: FunctionAgent,
}
/** The fields that replace those of a preset. */
export const PRESET_FIELDS = {
  process: Type.Object(optional(ProcessAgent.properties), EXACT),
  acp: Type.Object(optional(AcpAgent.properties), EXACT),
  claude: Type.Object(optional(ClaudeAgent.properties), EXACT),
  codex: Type.Object(optional(CodexAgent.properties), EXACT),
}

const RunnerEntry = Type.Union([
  Type.Object({ runner: Type.Literal('process'), ...ProcessAgent.properties }, EXACT),
  Type.Object({ runner: Type.Literal('acp'), ...AcpAgent.properties }, EXACT),
  Type.Object({ runner: Type.Literal('claude'), ...ClaudeAgent.properties }, EXACT),
  Type.Object({ runner: Type.Literal('codex'), ...CodexAgent.properties }, EXACT),
  Type.Object({ runner: Type.Literal('openai'), ...OpenAiAgent.properties }, EXACT),
  Type.Object({ runner: Type.Literal('function'), ...FunctionAgent.properties }, EXACT),
])
const PresetEntry = Type.Union([
  Type.Object({ preset: oneOf(presetsOf('process')), ...PRESET_FIELDS.process.properties }, EXACT),
  Type.Object({ preset: oneOf(presetsOf('acp')), ...PRESET_FIELDS.acp.properties }, EXACT),
  Type.Object({ preset: oneOf(presetsOf('claude')), ...PRESET_FIELDS.claude.properties }, EXACT),
  Type.Object({ preset: oneOf(presetsOf('codex')), ...PRESET_FIELDS.codex.properties }, EXACT),
])

/** Settings of a browser that a flag names. */
export const BrowserSettings = Type.Object(
  optional({
    egress: Type.Unsafe<'any' | readonly string[]>(
      Type.Union([Type.Literal('any'), list()], {
        [PROBLEM]: 'must be any, or a list of names, addresses and ranges',
        description:
          'what its pages may reach besides public addresses: names (`*.example` too), ' +
          'addresses and ranges, each perhaps with a port, like ' +
          '`["10.0.0.0/8", "intranet.example:443"]`; `any`: all. ' +
          'By default `[]` if the server has several principals, otherwise `any`',
      }),
    ),
  }),
  EXACT,
)

const limits = Object.entries(LIMITS).map(([name, value]) => {
  return [name, limit(Number.isFinite(value) ? { default: value } : {})]
})

const PrincipalQuotas = Type.Unsafe<Quotas>(QUOTA_FIELDS)

const QuotaSettings = Type.Object(
  optional({
    default: PrincipalQuotas,
    principals: Type.Record(Type.String({ pattern: '^(?!__proto__$)' }), PrincipalQuotas),
  }),
  {
    ...EXACT,
    description:
      'how much principals may use: `default` for each of them, `principals` by their ids ' +
      '(`@` and a name for a group); without it, without limit',
  },
)

/**
 * What a running server makes of each changed setting: `now` what comes next follows it, `restart`
 * only a server that is started again does. A path below a setting comes before that.
 */
export const RELOADING = {
  agents:
    'now: new turns use the new agent; those that run end on the old one, which is closed then',
  defaultAgent: 'now',
  copilotPort: 'restart',
  browsers:
    'now, for new connections of pages; a browser that runs changes between `any` and a list ' +
    'when it is started again',
  'limits.leaseMs': 'restart',
  limits: 'now; the time of a turn or an ask that has begun stays',
  sharedKeys: 'now',
  jwt:
    'now; `restart` if without `--tokens` the first issuer is added or the last one removed: ' +
    'a server begins or ends to need tokens only at its start',
  quotas: 'now; of a principal that had no limits, turns that run are not counted',
  budgets: 'now; of a principal that had none, turns that run are not counted',
  rules: 'now, for new asks',
  retention: 'restart',
  webhooks: 'now; what is under way has a moment left, and one that stays goes on where it stands',
  $schema: 'now',
} as const satisfies Readonly<Record<keyof HoldfastConfig | 'limits.leaseMs', string>>

function configuration<Entry extends TSchema>(agent: Entry) {
  return Type.Object(
    optional({
      // Objects have a use of their own for the name `__proto__`.
      agents: Type.Record(Type.String({ pattern: '^(?!__proto__$)[A-Za-z0-9_.-]{1,64}$' }), agent, {
        ...EXACT,
        [UNKNOWN_NAME]: 'must be named with 1 to 64 letters, digits and _ . -',
        description:
          'agents by name (letters, digits, `_ . -`); the built-in `echo`, `slow` and `ask` ' +
          'always exist',
      }),
      defaultAgent: Type.String({
        minLength: 1,
        description:
          'the agent of sessions that name none; by default the first `--agent`, or the first of ' +
          '`agents`',
      }),
      copilotPort: Type.Integer({
        minimum: 0,
        maximum: 65_535,
        description:
          'a TCP port for clients with the Copilot SDK, 0 for any that is free; ' +
          '`--copilot-port` takes precedence',
      }),
      browsers: Type.Record(Type.String({ pattern: '^[\\w.-]{1,64}$' }), BrowserSettings, {
        ...EXACT,
        [UNKNOWN_NAME]: 'must be the name of a --browser: 1 to 64 letters, digits and _ . -',
        description: 'settings of browsers that `--browser` starts, by name',
      }),
      limits: Type.Unsafe<Partial<Limits>>(
        Type.Object(optional(Object.fromEntries(limits) as Record<string, TSchema>), {
          ...EXACT,
          [UNKNOWN_NAME]: 'is no limit',
          description: 'any of the limits by name, like `"waitMs": 60000`; flags take precedence',
        }),
      ),
      sharedKeys: Type.Record(
        Type.String({ minLength: 1 }),
        Type.String({
          pattern: '^[A-Za-z0-9_.@:-]{1,64}$',
          [PROBLEM]: 'must be the name of a group',
        }),
        {
          description:
            'prefixes of keys that a group shares, like `"team/": "team"`: for its members such ' +
            'a key means one session, which belongs to the group',
        },
      ),
      jwt: Type.Array(JwtIssuer, {
        description: 'issuers of JSON Web Tokens that the server accepts, see below',
      }),
      quotas: QuotaSettings,
      budgets: BudgetSettings,
      rules: RuleList,
      webhooks: Type.Array(WebhookEntry, {
        description: 'programs elsewhere that are told what happens, see [below](#webhooks)',
      }),
      retention: RetentionSettings,
      $schema: Type.String({
        description:
          'the address of the JSON Schema of this file, for editors: ' +
          '`./node_modules/holdfast/config.schema.json`',
      }),
    }),
    EXACT,
  )
}

/** What a JSON file may hold. */
export const CONFIG_SCHEMA = configuration(Type.Union([RunnerEntry, PresetEntry]))
/** What is checked first: agents are checked one by one, and in a module they may be functions. */
export const ConfigOutline = configuration(Type.Unknown())

export type RunnerConfig = Static<typeof RunnerEntry>
export type AgentConfig = RunnerConfig | Static<typeof PresetEntry>

/** The type of a configuration that is written in TypeScript. */
export type HoldfastConfig = Omit<Static<typeof CONFIG_SCHEMA>, 'agents'> & {
  readonly agents?: Readonly<Record<string, AgentConfig | Agent | Runner>>
}
