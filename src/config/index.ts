/**
 * An operator's configuration: which agents there are and how they are run. What is in it is
 * executed, so it is only ever read from the operator's own file; a request can name an agent, and
 * never define one.
 */
import { Type } from '../schema/typebox.ts'
import { HoldfastError, invalid, type Limits, type Runner } from '../core/index.ts'
import { functionRunner, type Agent } from '../runners/function.ts'
import { contract, oneOf, optional } from '../schema/contract.ts'
import { readConfigFile } from './file.ts'
import { openRunner, type AgentLocation } from './kinds.ts'
import { installHint, PRESET_NAMES, PRESETS, withPreset, type Preset } from './presets.ts'
import { AGENT_FIELDS, ConfigOutline, PRESET_FIELDS, type RunnerConfig } from './schema.ts'

export { CONFIG_NAMES } from './file.ts'
export { PRESETS } from './presets.ts'
export type { AgentConfig, HoldfastConfig } from './schema.ts'

/** A configuration that was read and checked, its agents not opened yet. */
export type Config = {
  /** Where it was found, if it was. */
  readonly file: string | null
  readonly base: string
  readonly agents: Readonly<Record<string, unknown>>
  readonly defaultAgent: string | null
  readonly limits: Partial<Limits>
}

const UNKNOWN_FIELD = 'is no field'
const readOutline = contract(ConfigOutline, UNKNOWN_FIELD)
const RUNNERS = Object.keys(AGENT_FIELDS) as RunnerConfig['runner'][]
const readKind = contract(
  Type.Object(optional({ preset: oneOf(PRESET_NAMES), runner: oneOf(RUNNERS) })),
)
const readFields = {
  process: contract(AGENT_FIELDS.process, UNKNOWN_FIELD),
  acp: contract(AGENT_FIELDS.acp, UNKNOWN_FIELD),
  openai: contract(AGENT_FIELDS.openai, UNKNOWN_FIELD),
  function: contract(AGENT_FIELDS.function, UNKNOWN_FIELD),
}
const readPresetFields = {
  process: contract(PRESET_FIELDS.process, UNKNOWN_FIELD),
  acp: contract(PRESET_FIELDS.acp, UNKNOWN_FIELD),
}

/** Reads `holdfast.config.*` in `folder`, or the file that is named; without any it is empty. */
export async function readConfig(folder: string, named: string | null = null): Promise<Config> {
  const found = await readConfigFile(folder, named)
  const { file, base, content } = found ?? { file: null, base: folder, content: {} }
  try {
    return { file, base, ...checkConfig(content) }
  } catch (error) {
    if (!(error instanceof HoldfastError) || file === null) throw error
    throw new HoldfastError('invalid_field', `${file}: ${error.message}`, error.details)
  }
}

export function checkConfig(content: unknown): Omit<Config, 'file' | 'base'> {
  const {
    agents = {},
    defaultAgent = null,
    limits = {},
  } = readOutline(content, (field, problem) => invalid(field || 'the configuration', problem))
  for (const [name, agent] of Object.entries(agents)) {
    if (!isProgrammed(agent)) checkAgent(agent, `agents.${name}`)
  }
  return { agents, defaultAgent, limits }
}

/** The runners of all agents in the configuration, and of those that are named and presets. */
export async function openAgents(
  config: Config,
  { folder, names }: { readonly folder: string; readonly names: readonly string[] },
): Promise<Record<string, Runner>> {
  const isPreset = (name: string): boolean =>
    Object.hasOwn(PRESETS, name) && !Object.hasOwn(config.agents, name)
  const named = names.filter(isPreset)
  const definitions = {
    ...Object.fromEntries(named.map((name) => [name, { preset: name }])),
    ...config.agents,
  }
  const runners: Record<string, Runner> = {}
  for (const [name, agent] of Object.entries(definitions)) {
    const path = `agents.${name}`
    runners[name] = await openAgent(agent, { path, base: config.base, folder })
  }
  return runners
}

/** In a module an agent may be the function or the runner itself. */
function isProgrammed(agent: unknown): agent is Agent | Runner {
  if (typeof agent === 'function') return true
  return typeof (agent as { run?: unknown } | null)?.run === 'function'
}

/** The agent's fields, with those of its preset, each of them checked. */
function checkAgent(agent: unknown, path: string): RunnerConfig {
  const errorOf = (field: string, problem: string): HoldfastError =>
    invalid(field === '' ? path : `${path}.${field}`, problem)
  const { preset: name, runner, ...fields } = readKind(agent, errorOf)
  if (name === undefined) {
    if (runner === undefined) throw errorOf('runner', `must be one of ${RUNNERS.join(', ')}`)
    return { runner, ...readFields[runner](fields, errorOf) } as RunnerConfig
  }
  if (runner !== undefined) {
    throw errorOf('runner', 'is what the preset says; leave one of them out')
  }
  const preset: Preset = PRESETS[name]
  return withPreset(preset, readPresetFields[preset.runner](fields, errorOf))
}

async function openAgent(agent: unknown, location: AgentLocation): Promise<Runner> {
  if (typeof agent === 'function') return functionRunner(agent as Agent)
  if (isProgrammed(agent)) return agent as Runner
  const { preset } = agent as { readonly preset?: keyof typeof PRESETS }
  const hint = preset === undefined ? {} : { hint: installHint(preset) }
  return openRunner(checkAgent(agent, location.path), { ...location, ...hint })
}
