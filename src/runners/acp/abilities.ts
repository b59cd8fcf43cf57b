/** What an agent says of itself in the handshake, and what it can do by that. */
import { NO_CAPABILITIES, type Capabilities, type SettingName } from '../../core/index.ts'
import { isRecord } from '../../schema/contract.ts'
import { mayChooseMode, mayFork, placeSettings } from '../agent-settings.ts'
import { asObject, type JsonObject } from '../json.ts'
import type { AcpSettings } from './options.ts'

export type Abilities = {
  readonly load: boolean
  readonly resume: boolean
  readonly close: boolean
  readonly delete: boolean
  readonly fork: boolean
  /** It tells its sessions, each with its working folder. */
  readonly list: boolean
  /** It takes further folders. */
  readonly directories: boolean
  /** It takes instructions. */
  readonly systemPrompt: boolean
  readonly steering: boolean
  /** It takes MCP servers over HTTP. */
  readonly http: boolean
  /** The content of prompts that it takes: `image`, `embeddedContext`. */
  readonly prompt: JsonObject
}

export const NO_ABILITIES: Abilities = abilitiesOf({})

export function abilitiesOf({ agentCapabilities, _meta }: JsonObject): Abilities {
  const { loadSession, sessionCapabilities, promptCapabilities, mcpCapabilities } =
    asObject(agentCapabilities)
  const can = asObject(sessionCapabilities)
  return {
    load: loadSession === true,
    resume: isRecord(can['resume']),
    close: isRecord(can['close']),
    delete: isRecord(can['delete']),
    fork: isRecord(can['fork']),
    list: isRecord(can['list']),
    directories: isRecord(can['additionalDirectories']),
    systemPrompt: isRecord(can['systemPrompt']),
    steering: asObject(asObject(_meta)['steering'])['supported'] === true,
    http: asObject(mcpCapabilities)['http'] === true,
    prompt: asObject(promptCapabilities),
  }
}

/** What is known of the agents of a runner. Null: none has run yet. */
export type KnownAgent = {
  readonly abilities: Abilities | null
  readonly modes: readonly string[]
  readonly models: readonly string[]
}

/**
 * Until an agent has run, what it can do is not known: settings, images and files are admitted,
 * and the turn fails if the agent cannot honour them.
 */
export function capabilitiesOf(known: KnownAgent, options: AcpSettings): Capabilities {
  const { abilities, modes, models } = known
  const has = (name: keyof Abilities): boolean => abilities === null || abilities[name] === true
  const takes = (name: string): boolean => abilities === null || abilities.prompt[name] === true
  const isOffered = (values: readonly string[]): boolean => abilities === null || values.length > 0
  const chosen: readonly (readonly [SettingName, boolean])[] = [
    ['mode', isOffered(modes)],
    ['model', isOffered(models)],
    ['instructions', has('systemPrompt')],
  ]
  const places = placeSettings(options).filter((name) => name !== 'directories' || has(name))
  return {
    ...NO_CAPABILITIES,
    ...{ asks: true, plans: true, commands: true },
    images: takes('image'),
    files: takes('embeddedContext'),
    steering: abilities?.steering === true,
    settings: [...chosen.filter(([, can]) => can).map(([name]) => name), ...places],
    modes: modes.filter((mode) => mayChooseMode(mode, options)),
    models,
    mcpServers: Object.keys(options.mcpServers ?? {}),
    fork: abilities?.fork === true && mayFork(options) ? 'head' : null,
    load: has('load') || has('resume'),
  }
}
