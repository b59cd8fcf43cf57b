/** What the reference says about fields, made from their schemas: tables, and a JSON Schema. */
import type { TObject, TSchema } from '@sinclair/typebox'
import { ACP_METHODS } from '../../src/doors/acp/methods.ts'
import { OpeningMeta } from '../../src/doors/acp/schemas.ts'
import { AGENT_FIELDS, BrowserSettings, CONFIG_SCHEMA, RELOADING } from '../../src/config/schema.ts'
import { CreateParams, REFUSED_FIELDS } from '../../src/doors/copilot/creation.ts'
import { COPILOT_EVENTS } from '../../src/doors/copilot/event-table.ts'
import { METHODS } from '../../src/doors/copilot/methods.ts'
import { METRICS } from '../../src/server/metric-table.ts'
import { JwtIssuer } from '../../src/schema/jwt.ts'
import { BUDGET_FIELDS } from '../../src/schema/budgets.ts'
import { QUOTA_FIELDS } from '../../src/schema/quotas.ts'
import { RETENTION_FIELDS, RETENTION_RULE_FIELDS } from '../../src/schema/retention.ts'
import { RULE_FIELDS } from '../../src/schema/rules.ts'
import { WebhookEntry } from '../../src/schema/webhooks.ts'
import { ClientFrames, HelloFrame } from '../../src/wire/client-frames.ts'
import { LinkRequest, SessionRequest, ShareRequest, TurnRequest } from '../../src/wire/bodies.ts'

/** The tables that pages may have, each after a comment with its name. */
const TABLES: Readonly<Record<string, TObject>> = {
  Configuration: CONFIG_SCHEMA,
  Quotas: QUOTA_FIELDS,
  Budgets: BUDGET_FIELDS,
  Rule: RULE_FIELDS,
  WebhookEntry,
  Retention: RETENTION_FIELDS,
  RetentionRule: RETENTION_RULE_FIELDS,
  ...AGENT_FIELDS,
  BrowserSettings,
  JwtIssuer,
  SessionRequest,
  TurnRequest,
  LinkRequest,
  ShareRequest,
  HelloFrame,
  OpeningMeta,
  CopilotSession: CreateParams,
}
export const PAGES = [
  'docs/reference/acp.md',
  'docs/reference/config.md',
  'docs/reference/copilot.md',
  'docs/reference/http.md',
  'docs/reference/metrics.md',
  'docs/reference/wire.md',
]
export const CONFIG_SCHEMA_FILE = 'config.schema.json'

export function configSchema(): string {
  const head = {
    $schema: 'http://json-schema.org/draft-07/schema#',
    title: 'Configuration of Holdfast',
  }
  return `${JSON.stringify({ ...head, ...CONFIG_SCHEMA }, null, 2)}\n`
}

/** The page with its tables made anew; their columns are not aligned. */
export function withTables(page: string, tables = TABLES): string {
  return page.replace(
    /(<!-- (fields|frames|methods|metrics|copilot|reloading): (\w+) -->\n\n)(\|.*\n)*/g,
    (_, comment: string, kind: string, name: string) => {
      if (kind === 'frames') return `${comment}${frameTable()}`
      if (kind === 'methods') return `${comment}${methodTable()}`
      if (kind === 'reloading') return `${comment}${reloadingTable()}`
      if (kind === 'metrics') return `${comment}${metricTable()}`
      if (kind === 'copilot') return `${comment}${copilotTable(name)}`
      const schema = tables[name]
      if (schema === undefined) throw new Error(`there is no table ${name}`)
      return `${comment}${table(schema)}`
    },
  )
}

/** All frames of clients but the first one, of which the page has the fields. */
function frameTable(): string {
  const frames: readonly TObject[] = ClientFrames.anyOf.slice(1)
  const rows = frames.map(({ properties, required = [], description = '' }) => {
    const { type, ...fields } = properties
    const isRequired = (name: string): boolean => required.some((one) => one === name)
    const names = Object.keys(fields).map((name) => `"${name}${isRequired(name) ? '' : '?'}"`)
    return [`\`{${[`"type":"${type?.['const']}"`, ...names].join(',')}}\``, description]
  })
  return [['Frame', 'Meaning'], ['---', '---'], ...rows]
    .map((row) => `| ${row.join(' | ')} |\n`)
    .join('')
}

/** The methods of ACP, and what becomes of each. */
function methodTable(): string {
  const rows = Object.entries(ACP_METHODS).map(([method, { caller, isSupported, meaning }]) => {
    return [`\`${method}\``, caller, isSupported ? 'yes' : 'no', meaning]
  })
  return [['Method', 'Called by', 'Supported', 'Meaning'], ['---', '---', '---', '---'], ...rows]
    .map((row) => `| ${row.join(' | ')} |\n`)
    .join('')
}

/** What a running server makes of each setting that has changed. */
function reloadingTable(): string {
  const rows = Object.entries(RELOADING)
    .filter(([name]) => name !== '$schema')
    .map(([name, effect]) => [`\`${name}\``, effect])
  return [['Setting', 'Takes effect'], ['---', '---'], ...rows]
    .map((row) => `| ${row.join(' | ')} |\n`)
    .join('')
}

function metricTable(): string {
  const rows = Object.entries(METRICS).map(([name, { type, labels = [], help, only }]) => {
    const labelled = labels.map((label) => `\`${label}\``).join(', ')
    return [`\`${name}\``, type, labelled, only === undefined ? help : `${help} (with ${only})`]
  })
  const head = [
    ['Metric', 'Type', 'Labels', 'Meaning'],
    ['---', '---', '---', '---'],
  ]
  return [...head, ...rows].map((row) => `| ${row.join(' | ')} |\n`).join('')
}

/** What the Copilot door supports, and what it refuses. */
function copilotTable(name: string): string {
  const rows: Readonly<Record<string, () => string[][]>> = {
    methods: () => [
      ['Method', 'What it does'],
      ['---', '---'],
      ...Object.entries(METHODS).map(([method, { summary }]) => [`\`${method}\``, summary]),
    ],
    events: () => [
      ['Event', 'In the history', 'What it says'],
      ['---', '---', '---'],
      ...Object.entries(COPILOT_EVENTS).map(([type, { isEphemeral, meaning }]) => {
        return [`\`${type}\``, isEphemeral ? 'no' : 'yes', meaning]
      }),
    ],
    refused: () => [
      ['Field', 'Why'],
      ['---', '---'],
      ...Object.entries(REFUSED_FIELDS).map(([field, why]) => [`\`${field}\``, why]),
    ],
  }
  const made = rows[name]
  if (made === undefined) throw new Error(`there is no table ${name}`)
  return made()
    .map((row) => `| ${row.join(' | ')} |\n`)
    .join('')
}

function table({ properties, required = [] }: TObject): string {
  const fields = Object.entries(properties).filter(([name]) => name !== 'type')
  const rows = fields.map(([name, field]) => [
    `\`${name}\``,
    required.includes(name) ? 'required' : defaultOf(name, field),
    field.description ?? '',
  ])
  const all = [['Field', 'Default', 'Meaning'], ['---', '---', '---'], ...rows]
  const hasDefaults = Object.values(properties).some((field) => field.default !== undefined)
  return all
    .map((row) => `| ${row.filter((_, column) => hasDefaults || column !== 1).join(' | ')} |\n`)
    .join('')
}

const DAY_MS = 86_400_000
const UNITS = [
  [2 ** 30, 'GiB'],
  [2 ** 20, 'MiB'],
] as const

function defaultOf(name: string, { default: value }: TSchema): string {
  if (value === undefined) return ''
  if (typeof value === 'number' && name.endsWith('Ms') && value % DAY_MS === 0) {
    return `${value / DAY_MS} days`
  }
  const unit = UNITS.find(([size]) => name.includes('Bytes') && Number(value) % size === 0)
  if (unit !== undefined) return `${Number(value) / unit[0]} ${unit[1]}`
  return `\`${typeof value === 'string' ? value : JSON.stringify(value)}\``
}

/** The same text for the same content, however wide the columns of its tables are. */
export function unaligned(page: string): string {
  return page.replace(/^\|.*$/gm, (row) => row.replace(/ +/g, ' ').replace(/-+/g, '-'))
}
