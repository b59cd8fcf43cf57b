/** The agents of `serve`: `--agent` and `--config`. */
import { CONFIG_NAMES, PRESETS, type Config } from '../config/index.ts'
import { builtinAgents } from '../index.ts'
import { repeated, suggestion, text, UsageError } from './flags.ts'

export const AGENT_FLAGS = {
  agent: repeated(
    'NAME',
    `an agent to serve: ${Object.keys(PRESETS).join(', ')}, or one of the configuration;` +
      ' the first is the default',
  ),
  config: text(
    'FILE',
    `the configuration; without it ${CONFIG_NAMES.join(', ')} in the working folder, if it exists`,
  ),
}

/** Every agent must be a preset, in the configuration, or built in. */
export function checkAgents(agents: readonly string[], config: Config): void {
  const known = [...new Set([config.agents, PRESETS, builtinAgents].flatMap(Object.keys))]
  for (const name of agents) {
    if (known.includes(name)) continue
    const hint = suggestion(name, known)
    const instead = hint === '' ? `there are: ${known.join(', ')}` : `do you mean ${hint}?`
    throw new UsageError(`there is no agent ${name}: ${instead}`)
  }
}
