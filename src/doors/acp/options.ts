/** The mode and the model of a session as ACP offers them: as modes, and as config options. */
import { invalid, type Capabilities, type Settings } from '../../core/index.ts'

/** Takes a setting back: the agent decides. */
const UNSET = 'unset'
const UNSET_NAME = 'As the agent has it'

const CHOICES = [
  { setting: 'mode', name: 'Mode', values: 'modes' },
  { setting: 'model', name: 'Model', values: 'models' },
] as const

type OfferedSettings = { readonly settings: Settings; readonly capabilities: Capabilities }

/** The values that are known; null: there is nothing to choose from. */
function valuesOf(
  { setting, values }: (typeof CHOICES)[number],
  { settings, capabilities }: OfferedSettings,
): readonly string[] | null {
  if (!capabilities.settings.includes(setting)) return null
  const chosen = settings[setting]
  const known = capabilities[values]
  const all = chosen === undefined || known.includes(chosen) ? known : [...known, chosen]
  return all.length === 0 ? null : [UNSET, ...all.filter((value) => value !== UNSET)]
}

const nameOf = (value: string): string => (value === UNSET ? UNSET_NAME : value)

export function configOptions(offer: OfferedSettings): readonly object[] {
  return CHOICES.flatMap((choice) => {
    const values = valuesOf(choice, offer)
    if (values === null) return []
    const { setting: id, name } = choice
    const options = values.map((value) => ({ value, name: nameOf(value) }))
    const currentValue = offer.settings[id] ?? UNSET
    return [{ id, name, category: id, type: 'select', currentValue, options }]
  })
}

/** What the response that opens a session says of it. */
export function offered(offer: OfferedSettings): object {
  const modes = valuesOf(CHOICES[0], offer)
  const options = configOptions(offer)
  return {
    ...(modes === null ? {} : { modes: modeState(modes, offer.settings) }),
    ...(options.length === 0 ? {} : { configOptions: options }),
  }
}

function modeState(modes: readonly string[], { mode }: Settings): object {
  const availableModes = modes.map((id) => ({ id, name: nameOf(id) }))
  return { currentModeId: mode ?? UNSET, availableModes }
}

export function modeId({ mode }: Settings): string {
  return mode ?? UNSET
}

/** The change of settings that a choice of a client is. */
export function settingsChange(option: string, value: unknown) {
  const choice = CHOICES.find(({ setting }) => setting === option)
  if (choice === undefined) {
    throw invalid('configId', `must be one of ${CHOICES.map(({ setting }) => setting).join(', ')}`)
  }
  if (typeof value !== 'string') throw invalid('value', 'must be a text')
  return { [choice.setting]: value === UNSET ? null : value }
}
