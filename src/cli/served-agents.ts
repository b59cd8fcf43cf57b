/** The agents of a server, and what else of the core a new configuration changes. */
import { dirname, resolve } from 'node:path'
import {
  openAgents,
  runnersOf,
  webhookSecretFiles,
  type Config,
  type OpenedAgents,
} from '../config/index.ts'
import { builtinAgents, type RetentionOptions, type Runner } from '../index.ts'
import { limitsFor, runnersFrom } from '../open.ts'
import type { ServeValues } from './serve-flags.ts'
import { agentsFolder } from './stores.ts'

type AgentSettings = {
  readonly values: ServeValues
  readonly store: string
  readonly browsers: object
}

/** The agents that are served, by the configuration that is in force. */
export class ServedAgents {
  readonly #settings: AgentSettings
  readonly #folder: string
  readonly #builtin: Readonly<Record<string, Runner>>
  #opened: OpenedAgents = {}

  constructor(settings: AgentSettings) {
    this.#settings = settings
    this.#folder = agentsFolder(settings.store)
    const hasBrowsers = Object.keys(settings.browsers).length > 0
    this.#builtin = runnersFrom({ ...builtinAgents, ...(hasBrowsers && { browser: browserAgent }) })
  }

  /** Opens those that are new or have changed. */
  async prepare(config: Config) {
    const { values } = this.#settings
    const hidden = hiddenPaths(this.#settings, config)
    const options = { folder: this.#folder, names: values.agent, hidden }
    const opened = await openAgents(config, options, this.#opened)
    const configured = runnersOf(opened)
    const { browser, ...others } = this.#builtin
    // The configured agents are first, and replace built-in agents of the same name.
    const runners = { ...configured, ...others, ...configured, ...(browser && { browser }) }
    const changed = changedModules(this.#opened, opened)
    const keep = (): void => void (this.#opened = opened)
    return { runners, changed, keep }
  }
}

/** The agents that are other functions than before, of a module that may have the same name. */
function changedModules(before: OpenedAgents, now: OpenedAgents): readonly string[] {
  const functionOf = (agents: OpenedAgents, name: string): unknown => {
    const definition = agents[name]?.definition
    return typeof definition === 'function' ? definition : undefined
  }
  return Object.keys(now)
    .filter((name) => {
      const was = functionOf(before, name)
      return was !== undefined && was !== functionOf(now, name)
    })
    .map((name) => `agents.${name}`)
}

/** What an isolated agent must not see. The configuration may have keys of other agents. */
function hiddenPaths({ store, values }: AgentSettings, config: Config): readonly string[] {
  const { file } = config
  const { tokens, record, 'cluster-secret-file': secret } = values
  const data = store === 'memory:' ? null : dirname(agentsFolder(store))
  const { archive = null } = retentionOf(config)
  const named = [data, tokens, record, secret, archive, file, ...webhookSecretFiles(config)]
  return named.filter((path) => path !== null).map((path) => resolve(path))
}

/** The archive's folder is relative to the configuration, as its agents are. */
export function retentionOf({ retention, base }: Config): RetentionOptions {
  const { archive, ...others } = retention
  return archive === undefined ? others : { ...others, archive: resolve(base, archive) }
}

const browserAgent = (): never => {
  throw new Error('a browser session takes no turns: drive it over CDP')
}

/** Limits, quotas and rules by the configuration and the flags. */
export function coreSettings(
  { values, store }: Pick<AgentSettings, 'values' | 'store'>,
  config: Config,
) {
  const [first] = Object.keys(config.agents)
  return {
    limits: limitsFor(store, { ...config.limits, ...limitsOf(values) }),
    quotas: config.quotas,
    budgets: config.budgets,
    rules: config.rules,
    defaultAgent: values.agent[0] ?? config.defaultAgent ?? first,
  }
}

/** The limits that a flag sets; the configuration may set others. */
function limitsOf(values: ServeValues) {
  const { queue: queuedTurnsMax, 'wait-ms': waitMs, 'turn-ms': turnMs } = values
  const given = Object.entries({ waitMs, queuedTurnsMax, turnMs, leaseMs: values['lease-ms'] })
  return Object.fromEntries(given.filter(([, value]) => value !== null))
}
