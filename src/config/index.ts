/**
 * An operator's configuration: which agents there are and how they are run. What is in it is
 * executed, so it is only ever read from the operator's own file; a request can name an agent, and
 * never define one.
 */
import { existsSync } from 'node:fs'
import { access, constants, readFile, stat } from 'node:fs/promises'
import { delimiter, dirname, extname, resolve } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { Type, type TSchema } from '../schema/typebox.ts'
import { HoldfastError, invalid, type Runner } from '../core/index.ts'
import type { Choices } from '../runners/agent-options.ts'
import { acpRunner } from '../runners/acp/index.ts'
import { claudeRunner } from '../runners/claude/index.ts'
import { codexRunner } from '../runners/codex/index.ts'
import { functionRunner, type Agent } from '../runners/function.ts'
import { checkIsolation, isolationGap, type ProgramOptions } from '../runners/isolation.ts'
import { checkAddress, openaiRunner } from '../runners/openai/index.ts'
import { OUTPUT_FORMATS } from '../runners/process/formats.ts'
import { processRunner } from '../runners/process/index.ts'
import { mentions, type ProcessOptions } from '../runners/process/options.ts'
import { contract, oneOf, optional, type RefuseField } from '../schema/contract.ts'
import { checkJwtIssuers } from '../schema/jwt.ts'
import { checkWebhooks, type WebhookOptions } from '../schema/webhooks.ts'
import { installHint, PRESET_NAMES, PRESETS, withPreset, type PresetName } from './presets.ts'
import { importModule } from './modules.ts'
import { AGENT_FIELDS, ConfigOutline, PRESET_FIELDS, type RunnerConfig } from './schema.ts'

export { PRESETS } from './presets.ts'
export { RELOADING, type AgentConfig, type HoldfastConfig } from './schema.ts'

/** In this order; the first that is there is read. */
export const CONFIG_NAMES = ['holdfast.config.json', 'holdfast.config.mjs', 'holdfast.config.ts']

/** A configuration that was read and checked, its agents not opened yet. */
export type Config = ReturnType<typeof checkConfig> & {
  /** Where it was found, if it was. */
  readonly file: string | null
  readonly base: string
}

const UNKNOWN_FIELD = 'is no field'
const readOutline = contract(ConfigOutline, UNKNOWN_FIELD)
const RUNNERS = Object.keys(AGENT_FIELDS) as RunnerConfig['runner'][]
const readKind = contract(
  Type.Object(optional({ preset: oneOf(PRESET_NAMES), runner: oneOf(RUNNERS) })),
)

/** Reads `holdfast.config.*` in `folder`, or the file that is named; without any it is empty. */
export async function readConfig(folder: string, named: string | null = null): Promise<Config> {
  // A file that exists and cannot be read is an error.
  const files = (named === null ? CONFIG_NAMES : [named]).map((name) => resolve(folder, name))
  const file = files.find((one) => named !== null || existsSync(one))
  if (file === undefined) return { file: null, base: folder, ...checkConfig({}) }
  const content = await readContent(file)
  try {
    return { file, base: dirname(file), ...checkConfig(content) }
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error
    throw new HoldfastError('invalid_field', `${file}: ${error.message}`, error.details)
  }
}

/** The content of a file, not checked yet: JSON, or what a module exports. */
async function readContent(file: string): Promise<unknown> {
  const ending = extname(file)
  if (ending === '.json') return parseFile(file)
  if (!/^\.m?[jt]s$/.test(ending)) throw unusable(file, 'must end in .json, .mjs, .js or .ts')
  if (ending.endsWith('ts')) assertTypeScript(file)
  return importDefault(file)
}

async function parseFile(file: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as unknown
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    throw unusable(file, code === undefined ? `is no JSON: ${message}` : `cannot be read: ${code}`)
  }
}

async function importDefault(file: string): Promise<unknown> {
  const { default: content } = await importModule(file, (problem) => unusable(file, problem))
  if (content === undefined) throw unusable(file, 'has no default export')
  return content
}

/** Node strips the types itself, from some version on. */
function assertTypeScript(file: string): void {
  const { typescript } = process.features as { typescript?: unknown }
  if (typescript === 'strip' || typescript === 'transform') return
  throw unusable(
    file,
    `needs Node 22.18 or newer, which reads TypeScript; this is Node ${process.version}: ` +
      'name it .mjs, without types, or .json',
  )
}

function unusable(file: string, problem: string): HoldfastError {
  return new HoldfastError('invalid_field', `${file} ${problem}`, { field: file })
}

export function checkConfig(content: unknown) {
  const {
    agents = {},
    defaultAgent = null,
    copilotPort = null,
    browsers = {},
    limits = {},
    sharedKeys = {},
    jwt = [],
    quotas = {},
    budgets = {},
    rules = [],
    webhooks = [],
    retention = {},
  } = readOutline(content, (field, problem) => invalid(field || 'the configuration', problem))
  for (const [name, agent] of Object.entries(agents)) {
    if (!isProgrammed(agent)) checkAgent(agent, `agents.${name}`)
  }
  const issuers = checkJwtIssuers(jwt)
  return {
    agents,
    defaultAgent,
    copilotPort,
    browsers,
    limits,
    sharedKeys,
    quotas,
    budgets,
    rules,
    webhooks: checkWebhooks(webhooks),
    retention,
    jwt: issuers,
  }
}

/** The webhooks with their secrets, from the environment and from files. */
export async function readWebhooks({
  webhooks,
  base,
}: Pick<Config, 'webhooks' | 'base'>): Promise<readonly WebhookOptions[]> {
  const withSecrets = webhooks.map(async ({ secrets, ...webhook }, index) => {
    const read = secrets.map((source, place) =>
      readSecret(source, base, `webhooks.${index}.secrets.${place}`),
    )
    return { ...webhook, secrets: await Promise.all(read) }
  })
  return Promise.all(withSecrets)
}

async function readSecret(
  source: { readonly env: string } | { readonly file: string },
  base: string,
  field: string,
): Promise<string> {
  if ('env' in source) {
    const value = process.env[source.env]
    if (value) return value.trim()
    throw invalid(`${field}.env`, `names a variable that is not set: ${source.env}`)
  }
  try {
    return (await readFile(resolve(base, source.file), 'utf8')).trim()
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw invalid(`${field}.file`, `cannot be read: ${source.file} (${code})`)
  }
}

/** The files that hold secrets of webhooks. */
export function webhookSecretFiles({ webhooks, base }: Pick<Config, 'webhooks' | 'base'>) {
  return webhooks
    .flatMap(({ secrets }) => secrets)
    .flatMap((source) => ('file' in source ? [resolve(base, source.file)] : []))
}

type OpenAgentsOptions = {
  /** Where agents keep what they work on: in the data folder. */
  readonly folder: string
  readonly names: readonly string[]
  /** Files and folders that an isolated agent must not see. */
  readonly hidden?: readonly string[]
}

/** An agent that was opened, and what it was opened from. */
export type OpenedAgent = {
  readonly definition: unknown
  readonly hidden: readonly string[]
  readonly runner: Runner
}
export type OpenedAgents = Readonly<Record<string, OpenedAgent>>

/**
 * Opens all agents in the configuration, and those that are named and presets. One that is the same
 * as `before` stays.
 */
export async function openAgents(
  config: Config,
  { folder, names, hidden = [] }: OpenAgentsOptions,
  before: OpenedAgents = {},
): Promise<OpenedAgents> {
  const agents: Record<string, OpenedAgent> = {}
  for (const [name, given] of Object.entries(definitionsOf(config, names))) {
    const location = { path: `agents.${name}`, base: config.base, folder, hidden }
    const definition = await loadDefinition(given, location)
    const known = Object.hasOwn(before, name) ? before[name] : undefined
    const isSame =
      isDeepStrictEqual(known?.definition, definition) && isDeepStrictEqual(known?.hidden, hidden)
    const kept = isSame ? known : undefined
    const runner = kept?.runner ?? (await openAgent(definition, location))
    agents[name] = { definition, hidden, runner }
  }
  return agents
}

/** The runners by the names of their agents. */
export function runnersOf(agents: OpenedAgents): Readonly<Record<string, Runner>> {
  return Object.fromEntries(Object.entries(agents).map(([name, { runner }]) => [name, runner]))
}

/** The agents whose sessions are not kept apart, and why. Those without a program need not be. */
export function unisolatedAgents(
  config: Config,
  names: readonly string[],
): Readonly<Record<string, string>> {
  const gaps: Record<string, string> = {}
  for (const [name, given] of Object.entries(definitionsOf(config, names))) {
    if (isProgrammed(given)) continue
    const agent = checkAgent(given, `agents.${name}`)
    const gap = 'command' in agent ? isolationGap(agent) : null
    if (gap !== null) gaps[name] = gap
  }
  return gaps
}

function definitionsOf(
  config: Config,
  names: readonly string[],
): Readonly<Record<string, unknown>> {
  const isPreset = (name: string): boolean =>
    Object.hasOwn(PRESETS, name) && !Object.hasOwn(config.agents, name)
  const named = names.filter(isPreset)
  return { ...Object.fromEntries(named.map((name) => [name, { preset: name }])), ...config.agents }
}

/** In a module an agent may be the function or the runner itself. */
function isProgrammed(agent: unknown): agent is Agent | Runner {
  if (typeof agent === 'function') return true
  return typeof (agent as { run?: unknown } | null)?.run === 'function'
}

/** The agent's fields, with those of its preset, each of them checked. */
function checkAgent(agent: unknown, path: string): RunnerConfig {
  const refuse: RefuseField = (field, problem) =>
    invalid(field === '' ? path : `${path}.${field}`, problem)
  const { preset: name, runner, ...fields } = readKind(agent, refuse)
  const read = (schema: TSchema): object =>
    contract(schema, UNKNOWN_FIELD)(fields, refuse) as object
  if (name === undefined) {
    if (runner === undefined) throw refuse('runner', `must be one of ${RUNNERS.join(', ')}`)
    return { runner, ...read(AGENT_FIELDS[runner]) } as RunnerConfig
  }
  if (runner !== undefined) {
    throw refuse('runner', 'is what the preset says; leave one of them out')
  }
  const preset = PRESETS[name]
  return withPreset(preset, read(PRESET_FIELDS[preset.runner]))
}

/** Where an agent is configured, and where it works. */
type AgentLocation = {
  /** The path of its fields, for errors: `agents.claude`. */
  readonly path: string
  /** The folder that relative paths are relative to: the configuration's own. */
  readonly base: string
} & Required<Pick<OpenAgentsOptions, 'folder' | 'hidden'>>

/** The function of an agent that names one: it may have changed although its fields have not. */
async function loadDefinition(given: unknown, { path, base }: AgentLocation): Promise<unknown> {
  if (isProgrammed(given)) return given
  const agent = checkAgent(given, path)
  if (agent.runner !== 'function') return given
  const { module, export: name = 'default' } = agent
  const refuse = (problem: string): HoldfastError => invalid(`${path}.module`, problem)
  const { [name]: found } = await importModule(resolve(base, module), refuse)
  if (typeof found === 'function') return found
  throw invalid(`${path}.export`, `must name an async function of ${module}, not ${name}`)
}

/** The fields are checked one by one, then together, and against the machine. */
async function openAgent(given: unknown, location: AgentLocation): Promise<Runner> {
  if (isProgrammed(given)) return typeof given === 'function' ? functionRunner(given) : given
  const { path, folder } = location
  const { preset } = given as { readonly preset?: PresetName }
  const agent = checkAgent(given, path)
  switch (agent.runner) {
    case 'process': {
      const paths = await findPaths(agent, location, preset)
      checkSession(agent, path)
      return processRunner({ ...agent, ...paths, folder })
    }
    case 'acp':
      return acpRunner({ ...agent, ...(await findPaths(agent, location, preset)), folder })
    case 'claude': {
      const paths = await findPaths(agent, location, preset)
      return claudeRunner({ ...agent, ...paths, folder })
    }
    case 'codex':
      return codexRunner({ ...agent, ...(await findPaths(agent, location, preset)), folder })
    case 'openai':
      checkAddress(agent.baseUrl, `${path}.baseUrl`)
      return openaiRunner(agent)
    case 'function':
      throw new Error('a function is loaded before its agent is opened')
  }
}

/** Its programs, found on this machine, and its folders as absolute paths; isolation is tried. */
async function findPaths(
  options: ProgramOptions & Choices,
  { path, base, folder, hidden }: AgentLocation,
  preset?: PresetName,
): Promise<Pick<ProgramOptions & Choices, 'command' | 'cwd' | 'wrap' | 'readOnly' | 'folders'>> {
  const find = async (field: string, program: string, hint = ''): Promise<string> => {
    const found = await findProgram(program, base)
    if (found !== null) return found
    throw invalid(`${path}.${field}`, `names no program: ${program}${hint}`)
  }
  const { cwd, wrap: [wrapper, ...args] = [], readOnly, folders } = options
  const hint = preset === undefined ? '' : `: ${installHint(preset)}`
  const paths = {
    command: await find('command', options.command, hint),
    ...(cwd === undefined ? {} : { cwd: await findFolder(resolve(base, cwd), `${path}.cwd`) }),
    ...(wrapper === undefined ? {} : { wrap: [await find('wrap', wrapper), ...args] }),
    ...(readOnly === undefined ? {} : { readOnly: readOnly.map((one) => resolve(base, one)) }),
    ...(folders === undefined ? {} : { folders: await findFolders(folders, base, path) }),
  }
  const refuse: RefuseField = (field, problem) => invalid(`${path}.${field}`, problem)
  await checkIsolation({ ...options, ...paths }, { folder, hidden, refuse })
  return paths
}

function findFolders(folders: readonly string[], base: string, path: string) {
  return Promise.all(
    folders.map((one, index) => findFolder(resolve(base, one), `${path}.folders.${index}`)),
  )
}

async function findFolder(folder: string, field: string): Promise<string> {
  // Why it is none does not matter: it is refused.
  const found = await stat(folder).catch(() => null)
  if (found?.isDirectory() === true) return folder
  throw invalid(field, `must be a folder that is there, not ${folder}`)
}

/**
 * The program's own path: a name is looked for on PATH, anything else is relative to `base`. So a
 * missing program is reported at the start, and not by the first turn.
 */
export async function findProgram(
  command: string,
  base: string,
  path = process.env['PATH'] ?? '',
): Promise<string | null> {
  const endings = process.platform === 'win32' ? ['.exe', '.cmd', ''] : ['']
  const folders = path.split(delimiter).filter((folder) => folder !== '')
  const files = /[/\\]/.test(command)
    ? [resolve(base, command)]
    : folders.flatMap((folder) => endings.map((ending) => resolve(folder, command + ending)))
  for (const file of files) if (await isProgram(file)) return file
  return null
}

/** False too for a file that cannot be looked at: the search goes on. */
async function isProgram(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK)
    return (await stat(file)).isFile()
  } catch {
    return false
  }
}

/** If the program chooses its session id, its output must report it. */
function checkSession(
  { args = [], firstArgs = [], laterArgs = [], output }: Omit<ProcessOptions, 'folder'>,
  path: string,
): void {
  const isReserved = mentions([...args, ...firstArgs], 'sessionUuid')
  if (isReserved || !mentions(laterArgs, 'sessionUuid')) return
  if (OUTPUT_FORMATS[output ?? 'text'].hasSession) return
  throw invalid(
    `${path}.laterArgs`,
    'name {sessionUuid}, but no first turn chooses or tells one: name it in firstArgs too',
  )
}
