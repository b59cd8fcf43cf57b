/** `holdfast check`: whether `serve` could use a configuration. */
import { EgressRule } from '../browsers/index.ts'
import { CONFIG_NAMES, openAgents, readConfig, readWebhooks } from '../config/index.ts'
import { checkOptions } from '../open.ts'
import { defineCommand, UsageError } from './command.ts'
import { say } from './output.ts'
import { checkAgents } from './serve-flags.ts'
import { agentsFolder } from './stores.ts'

export const check = defineCommand({
  name: 'check',
  operands: { usage: '[CONFIG]', takes: 'at most one CONFIG', min: 0, max: 1 },
  summary:
    'Checks a configuration, by default the one that is here, as serve does before it uses it: ' +
    'the fields, and whether programs and folders are there. It starts nothing.',
  flags: {},
  async run(_values, [named]) {
    const config = await readConfig(process.cwd(), named ?? null)
    const { file, limits, quotas, budgets, rules, retention, defaultAgent } = config
    if (file === null) throw new UsageError(`there is none of ${CONFIG_NAMES.join(', ')} here`)
    checkOptions({ limits, quotas, budgets, rules, retention })
    checkAgents(defaultAgent === null ? [] : [defaultAgent], config)
    for (const [name, { egress = 'any' }] of Object.entries(config.browsers)) {
      if (egress !== 'any') EgressRule.read(egress, `browsers.${name}.egress`)
    }
    await readWebhooks(config)
    const agents = await openAgents(config, { folder: agentsFolder('memory:'), names: [] })
    const names = Object.keys(agents)
    say(`${file} can be used${names.length === 0 ? '' : `; agents ${names.join(', ')}`}`)
  },
})
