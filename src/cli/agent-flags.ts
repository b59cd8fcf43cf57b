/** Which agents there are: `--agent` and `--config`. */
import { CONFIG_NAMES, PRESETS, type Config } from '../config/index.ts'
import { builtinAgents } from '../index.ts'
import { suggestion, UsageError, type Flags } from './command.ts'

export const AGENT_FLAGS: Flags = {
  agent: { type: 'string', multiple: true },
  config: { type: 'string' },
}

export const AGENT_HELP = [
  ['--agent NAME', `${Object.keys(PRESETS).join(', ')}, or your own; may be repeated`],
  ['--config FILE', `your agents and limits (${CONFIG_NAMES.join(', ')})`],
] as const

/** Every agent that is named must be a preset, in the configuration, or built in. */
export function checkAgents(agents: readonly string[], config: Config): void {
  const known = [...Object.keys(config.agents), ...Object.keys(PRESETS), ...builtin]
  for (const name of agents) {
    if (known.includes(name)) continue
    const hint = suggestion(name, known)
    const instead = hint === null ? `there are: ${known.join(', ')}` : `do you mean ${hint}?`
    throw new UsageError(`there is no agent ${name}: ${instead}`)
  }
}

const builtin = Object.keys(builtinAgents)
