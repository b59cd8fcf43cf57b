/**
 * A session that is open in an agent: the modes and models that the agent offers in it, which are
 * chosen, and what it told of itself between prompts.
 */
import { HoldfastError, invalid, type Settings } from '../../core/index.ts'
import { asList, asObject, asText, type JsonObject } from '../json.ts'
import { commandsOf, type AcpUpdate } from './updates.ts'

type ChosenSetting = 'mode' | 'model'

/** What the agent offers for a setting, and what it has now. */
type Offer = {
  readonly values: readonly string[]
  /** As the agent opened the session. */
  readonly initial: string
  current: string
  /** How another value is chosen. */
  readonly request: (value: string) => SettingRequest
}

export type SettingRequest = { readonly method: string; readonly params: object }

export class AcpSession {
  readonly id: string
  readonly #offers = new Map<ChosenSetting, Offer>()
  /** Its slash commands, until they are recorded. */
  #commands: readonly object[] | null = null
  /** What it has cost since it was opened, and up to the last turn. */
  #costUsd: number | null = null
  #recordedUsd = 0

  /** From the response to `session/new`, `session/load` or `session/resume`. */
  constructor(id: string, { modes, models, configOptions }: JsonObject) {
    this.id = id
    const { availableModes, currentModeId } = asObject(modes)
    const { availableModels, currentModelId } = asObject(models)
    this.#offer('mode', availableModes, currentModeId, (modeId) => ({
      method: 'session/set_mode',
      params: { sessionId: id, modeId },
    }))
    this.#offer('model', availableModels, currentModelId, (modelId) => ({
      method: 'session/set_model',
      params: { sessionId: id, modelId },
    }))
    this.#offerOptions(configOptions)
  }

  valuesOf(setting: ChosenSetting): readonly string[] {
    return this.#offers.get(setting)?.values ?? []
  }

  /** The mode that it is in, if it has modes. */
  get mode(): string | null {
    return this.#offers.get('mode')?.current ?? null
  }

  /** The requests that bring it to these settings, each with what is to be noted then. */
  *changes(settings: Settings): Generator<SettingRequest & { readonly done: () => void }> {
    for (const setting of ['mode', 'model'] as const) {
      const offer = this.#offers.get(setting)
      const value = settings[setting] ?? offer?.initial
      if (value === undefined || value === offer?.current) continue
      if (offer === undefined) throw unsupported(setting)
      if (!offer.values.includes(value)) {
        throw invalid(`settings.${setting}`, `must be one of ${offer.values.join(', ')}`)
      }
      const done = (): void => void (offer.current = value)
      yield { ...offer.request(value), done }
    }
  }

  /** What the agent tells of the session itself, during a prompt or between prompts. */
  update(update: AcpUpdate): void {
    switch (update.sessionUpdate) {
      case 'current_mode_update':
        return this.#changed('mode', update['currentModeId'])
      case 'config_option_update':
        for (const { category, id, currentValue } of asList(update['configOptions']).map(asObject))
          this.#changed((category ?? id) as ChosenSetting, currentValue)
        return
      case 'available_commands_update':
        this.#commands = commandsOf(update)
        return
      case 'usage_update': {
        const { amount, currency } = asObject(update['cost'])
        if (typeof amount === 'number' && currency === 'USD') this.#costUsd = amount
      }
    }
  }

  /** Its slash commands, if they are not recorded yet. */
  takeCommands(): readonly object[] | null {
    const commands = this.#commands
    this.#commands = null
    return commands
  }

  /** What it has cost since this was last called, if the agent tells. */
  takeCost(): number | undefined {
    if (this.#costUsd === null) return undefined
    const cost = Math.max(0, this.#costUsd - this.#recordedUsd)
    this.#recordedUsd = this.#costUsd
    return cost
  }

  #changed(setting: ChosenSetting, value: unknown): void {
    const offer = this.#offers.get(setting)
    if (offer !== undefined && typeof value === 'string') offer.current = value
  }

  #offer(setting: ChosenSetting, list: unknown, current: unknown, request: Offer['request']) {
    const values = asList(list).map((one) => {
      const { id, modelId, value } = asObject(one)
      return asText(id ?? modelId ?? value)
    })
    if (values.length === 0 || typeof current !== 'string') return
    this.#offers.set(setting, { values, initial: current, current, request })
  }

  /** Options replace the older fields, which some agents have besides. */
  #offerOptions(configOptions: unknown): void {
    for (const option of asList(configOptions).map(asObject)) {
      const { id: configId, category, type, currentValue, options } = option
      const setting = category ?? configId
      if (type !== 'select' || (setting !== 'mode' && setting !== 'model')) continue
      const values = asList(options).flatMap((one) => {
        const { options: grouped } = asObject(one)
        return grouped === undefined ? [one] : asList(grouped)
      })
      this.#offer(setting, values, currentValue, (value) => ({
        method: 'session/set_config_option',
        params: { sessionId: this.id, configId, type: 'select', value },
      }))
    }
  }
}

export function unsupported(setting: string): HoldfastError {
  const message = `the agent cannot honour the setting ${setting}`
  return new HoldfastError('setting_unsupported', message, { setting })
}
