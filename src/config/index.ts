/**
 * An operator's configuration: which agents there are and how they are run. What is in it is
 * executed, so it is only ever read from the operator's own file; a request can name an agent, and
 * never define one.
 */
import { HoldfastError, invalid, LIMITS, type Limits, type Runner } from '../core/index.ts'
import type { AcpOptions } from '../runners/acp/index.ts'
import { functionRunner, type Agent } from '../runners/function.ts'
import type { OpenAiOptions } from '../runners/openai/index.ts'
import type { ProcessOptions } from '../runners/process/index.ts'
import { at, readFields, readObject, text, type Check, type Entries } from './fields.ts'
import { readConfigFile } from './file.ts'
import { RUNNER_KINDS, type Place } from './kinds.ts'
import { installHint, PRESETS, withPreset, type Preset } from './presets.ts'

export { CONFIG_NAMES } from './file.ts'
export { PRESETS } from './presets.ts'

/** What an operator writes, for those who write it in TypeScript. */
export type HoldfastConfig = {
  readonly agents?: Readonly<Record<string, AgentConfig | Agent | Runner>>
  readonly defaultAgent?: string
  readonly limits?: Partial<Limits>
}

export type AgentConfig =
  | ({ readonly runner: 'process' } & Configured<ProcessOptions>)
  | ({ readonly runner: 'acp' } & Configured<AcpOptions>)
  | ({ readonly runner: 'openai' } & OpenAiOptions)
  | { readonly runner: 'function'; readonly module: string; readonly export?: string }
  | ({ readonly preset: string } & Partial<Configured<ProcessOptions & AcpOptions>>)

/** Where the sessions' folders are is not the operator's to say. */
type Configured<Options> = Omit<Options, 'folder'>

/** A configuration that was read and checked, its agents not opened yet. */
export type Config = {
  /** Where it was found, if it was. */
  readonly file: string | null
  readonly base: string
  readonly agents: Entries
  readonly defaultAgent: string | null
  readonly limits: Partial<Limits>
}

/** `__proto__` is a name that objects have a use of their own for. */
const AGENT_NAME = /^(?!__proto__$)[\w.-]{1,64}$/

const limits: Check = (value, path) => {
  for (const [name, limit] of Object.entries(readObject(value, path))) {
    if (!Object.hasOwn(LIMITS, name)) throw invalid(at(path, name), 'is no limit')
    if (typeof limit === 'number' && limit >= 0) continue
    throw invalid(at(path, name), 'must be a number that is not negative')
  }
}

const agents: Check = (value, path) => {
  for (const [name, agent] of Object.entries(readObject(value, path))) {
    if (!AGENT_NAME.test(name)) {
      throw invalid(at(path, name), 'must be named with 1 to 64 letters, digits and _ . -')
    }
    if (!isProgrammed(agent)) checkAgent(agent, at(path, name))
  }
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
  const config = readFields(content, '', { fields: { agents, defaultAgent: text, limits } })
  return {
    agents: (config['agents'] ?? {}) as Entries,
    defaultAgent: (config['defaultAgent'] as string | undefined) ?? null,
    limits: config['limits'] ?? {},
  }
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
function checkAgent(agent: unknown, path: string) {
  const { preset: name, ...own } = readObject(agent, path)
  const preset = name === undefined ? null : presetOf(name, at(path, 'preset'))
  if (preset !== null && own['runner'] !== undefined) {
    throw invalid(at(path, 'runner'), 'is what the preset says; leave one of them out')
  }
  const { runner, ...fields } = preset === null ? own : withPreset(preset, own)
  const kind = kindOf(runner, at(path, 'runner'))
  if (preset !== null) readFields(own, path, { fields: kind.fields })
  return { kind, fields: readFields(fields, path, kind), preset: name as string | undefined }
}

function presetOf(name: unknown, path: string): Preset {
  const preset = Object.hasOwn(PRESETS, String(name)) ? PRESETS[String(name)] : undefined
  if (preset !== undefined) return preset
  throw invalid(path, `must be one of ${Object.keys(PRESETS).join(', ')}`)
}

function kindOf(name: unknown, path: string) {
  const kind = Object.hasOwn(RUNNER_KINDS, String(name)) ? RUNNER_KINDS[String(name)] : undefined
  if (kind !== undefined) return kind
  throw invalid(path, `must be one of ${Object.keys(RUNNER_KINDS).join(', ')}`)
}

async function openAgent(agent: unknown, place: Place): Promise<Runner> {
  if (typeof agent === 'function') return functionRunner(agent as Agent)
  if (isProgrammed(agent)) return agent as Runner
  const { kind, fields, preset } = checkAgent(agent, place.path)
  return kind.open(fields, preset === undefined ? place : { ...place, hint: installHint(preset) })
}
