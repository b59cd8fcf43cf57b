/** The flags that say how an agent is to work. */
import type { Settings } from '../core/index.ts'
import { text, type FlagValues } from './command.ts'

export const AGENT_FLAGS = {
  mode: text('MODE', "the agent's mode, as plan; holdfast agents lists the known ones"),
  model: text('MODEL', 'the model that the agent is to use'),
  instructions: text('TEXT', 'what the agent is to observe, besides the messages'),
}

/** Undefined if the flags say nothing. */
export function settingsOf(values: FlagValues<typeof AGENT_FLAGS>): Settings | undefined {
  const { mode, model, instructions } = values
  const given = Object.entries({ mode, model, instructions }).filter(([, value]) => value !== null)
  return given.length === 0 ? undefined : Object.fromEntries(given)
}
