/** `holdfast rules`: what the operator's rules decide of a request, and why. */
import { readConfig } from '../config/index.ts'
import { Rules, TOOL_KINDS, traceRules, type AskDetail } from '../core/index.ts'
import { systemDigest } from '../platform/clock.ts'
import { choice, defineCommand, repeated, text, toggle, UsageError } from './command.ts'
import { printJson, printTable } from './output.ts'

const ACTION = 'test'

export const rules = defineCommand({
  name: 'rules',
  operands: { usage: ACTION, takes: ACTION, min: 1, max: 1 },
  summary: 'Tells what the rules of the configuration decide of a request, and why.',
  flags: {
    config: text('FILE', 'the configuration').showing('holdfast.config.* here'),
    agent: text('NAME', 'the agent that asks'),
    principal: text('ID', 'the principal whose turn it is'),
    tool: text('NAME', 'the tool'),
    kind: choice('KIND', `what the tool does: ${TOOL_KINDS.join(', ')}`, TOOL_KINDS),
    command: text('LINE', 'the command'),
    cwd: text('FOLDER', 'its folder'),
    path: repeated('PATH', 'a file that it is about'),
    url: text('URL', 'the address'),
    json: toggle('JSON instead of a table'),
  },
  async run({ config, agent, principal, json, ...about }, [action]) {
    if (action !== ACTION) throw new UsageError(`rules takes ${ACTION}`)
    const { rules: configured } = await readConfig(process.cwd(), config)
    const request = { agent: agent ?? '', principal, detail: detailOf(about) }
    const decided = new Rules(configured, systemDigest).decide(request)
    const traces = traceRules(configured, request).map(({ rule: { name, decision }, fails }) => {
      return { name, decision, matches: fails === null, why: fails }
    })
    if (json) return printJson([{ ...decided, rules: traces }])
    if (traces.length > 0) {
      printTable(traces, {
        RULE: ({ name }) => name,
        DECISION: ({ decision }) => decision,
        RESULT: ({ why }) => why ?? 'matches',
      })
      console.log()
    }
    console.log(outcomeWords(decided))
  },
})

type Given = Readonly<Record<'tool' | 'command' | 'cwd' | 'url', string | null>> & {
  readonly kind: AskDetail['kind'] | null
  readonly path: readonly string[]
}

function detailOf({ path, ...fields }: Given): AskDetail {
  const given = Object.entries(fields).filter(([, value]) => value !== null)
  return { ...Object.fromEntries(given), ...(path.length === 0 ? {} : { paths: path }) }
}

function outcomeWords({ decision, rule, answeredBy, people }: ReturnType<Rules['decide']>) {
  if (decision === 'ask') {
    if (rule === null) return 'ask: people are asked, no rule matches'
    const whose = answeredBy === null ? '' : `; answered by: ${answeredBy}`
    const many = people === null || people === 1 ? '' : `; ${people} people have to allow it`
    return `ask: by the rule "${rule}"${whose}${many}`
  }
  return `${decision}: by the rule "${rule}"`
}
