/**
 * What a client says when it creates or resumes a session. What has a meaning here becomes settings
 * of the session; what would make the agent do something else than the client expects, and cannot
 * be honoured, is refused; the rest of the SDK's fields is ignored.
 */
import {
  HoldfastError,
  invalid,
  toolKind,
  type ClientTool,
  type Holdfast,
  type Settings,
} from '../../core/index.ts'
import { contract, isRecord } from '../../schema/contract.ts'
import { Type, type Static } from '../../schema/typebox.ts'
import { PERMISSION_KINDS, QUESTION_KINDS } from './asks.ts'

const text = Type.Optional(Type.String())

/** Models take no other names. */
const TOOL = Type.Object({
  name: Type.String({ pattern: '^[\\w-]{1,64}$' }),
  description: text,
  parameters: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
  skipPermission: Type.Optional(Type.Boolean()),
})
/** All tools of a client, as JSON. */
const TOOLS_CHARS_MAX = 262_144

/** The fields that have a meaning here. The SDK sends more of them, and newer ones still others. */
const FIELDS = {
  agent: Type.Optional(Type.String({ minLength: 1, description: 'the agent, by its name' })),
  model: Type.Optional(
    Type.String({
      minLength: 1,
      description: 'an agent, `AGENT/MODEL`, or a model of the agent, as `models.list` has them',
    }),
  ),
  systemMessage: Type.Optional(
    Type.Object(
      { mode: text, content: text },
      { description: 'the setting `instructions`; modes `replace`, and `sections`, are refused' },
    ),
  ),
  workingDirectory: Type.Optional(
    Type.String({
      minLength: 1,
      description: 'the setting `cwd`, of the folders the operator allows',
    }),
  ),
  additionalDirectories: Type.Optional(
    Type.Array(Type.String(), { description: 'the setting `directories`' }),
  ),
  tools: Type.Optional(
    Type.Array(TOOL, {
      description: 'tools that the agent may call; refused for agents that call none of clients',
    }),
  ),
  requestPermission: Type.Optional(
    Type.Boolean({ description: 'the client answers asks of the kind `permission`' }),
  ),
  requestUserInput: Type.Optional(
    Type.Boolean({ description: 'the client answers asks of the kinds `question` and `choice`' }),
  ),
  streaming: Type.Optional(
    Type.Boolean({ description: 'the client is sent the answer in parts, as it comes' }),
  ),
}

const sessionId = Type.String({ minLength: 1, description: "the session's key, or its id" })
export const CreateParams = Type.Object({ sessionId: Type.Optional(sessionId), ...FIELDS })
export const ResumeParams = Type.Object({ sessionId, ...FIELDS })
export const readCreate = contract(CreateParams)
export const readResume = contract(ResumeParams)

export type CreationParams = Static<typeof CreateParams>

/** Fields that would change what the agent does, and why they are not honoured here. */
export const REFUSED_FIELDS: Readonly<Record<string, string>> = {
  availableTools: 'the operator chooses the tools of agents',
  excludedTools: 'the operator chooses the tools of agents',
  mcpServers: 'the operator configures MCP servers',
  customAgents: 'the operator configures agents',
  hooks: 'hooks of clients are not called',
  commands: 'commands of clients are not called',
  canvases: 'there are no canvases',
  provider: 'the operator configures the providers of models',
  providers: 'the operator configures the providers of models',
  models: 'the operator configures models',
  reasoningEffort: 'no agent here takes it',
  sessionLimits: 'limits are set by quotas',
  skillDirectories: 'the operator configures skills',
  pluginDirectories: 'the operator configures plugins',
  instructionDirectories: 'the operator configures instructions; `systemMessage` adds to them',
  managedSettings: 'the operator configures agents',
  cloud: 'sessions run on this server',
}

export function assertHonourable(params: object): void {
  for (const [field, why] of Object.entries(REFUSED_FIELDS)) {
    const value = (params as Readonly<Record<string, unknown>>)[field]
    if (isSet(value)) throw invalid(field, `cannot be honoured: ${why}`)
  }
}

/** Not what an SDK sends by itself when its user has said nothing. */
function isSet(value: unknown): boolean {
  if (value === undefined || value === null || value === false || value === '') return false
  if (Array.isArray(value)) return value.length > 0
  return !isRecord(value) || Object.keys(value).length > 0
}

/** The agent that is named, and the model of it; nothing where the server's default is meant. */
export function readModel(
  holdfast: Pick<Holdfast, 'agents'>,
  { agent, model }: Pick<CreationParams, 'agent' | 'model'>,
): { readonly agent?: string; readonly model?: string } {
  const { agents } = holdfast
  if (model === undefined) return agent === undefined ? {} : { agent }
  const named = agent === undefined ? agents : [agent]
  if (agents.includes(model) && named.includes(model)) return { agent: model }
  // An agent's name may have a slash in it.
  const prefixes = named.filter((one) => model.startsWith(`${one}/`))
  const [longest] = prefixes.toSorted((one, other) => other.length - one.length)
  if (longest !== undefined) return { agent: longest, model: model.slice(longest.length + 1) }
  return { ...(agent === undefined ? {} : { agent }), model }
}

/** How the agent is to work; `model` as `readModel` has read it. */
export function readSettings(params: CreationParams, model: string | undefined): Settings {
  const { workingDirectory: cwd, additionalDirectories: directories = [] } = params
  const instructions = readInstructions(params.systemMessage)
  return {
    ...(model === undefined ? {} : { model }),
    ...(instructions === undefined ? {} : { instructions }),
    ...(cwd === undefined ? {} : { cwd }),
    ...(directories.length === 0 ? {} : { directories }),
  }
}

function readInstructions(message: CreationParams['systemMessage']): string | undefined {
  if (message === undefined) return undefined
  const { mode = 'append', content = '' } = message
  const { sections } = message as { readonly sections?: unknown }
  if (mode === 'replace' || isSet(sections)) {
    throw invalid('systemMessage', 'can only be added to: agents have a system prompt of their own')
  }
  return content === '' ? undefined : content
}

/** The kinds of ask that the client answers from now on. */
export function answersOf(params: CreationParams): readonly string[] {
  const { requestPermission = false, requestUserInput = false, tools = [] } = params
  return [
    ...(requestPermission ? PERMISSION_KINDS : []),
    ...(requestUserInput ? QUESTION_KINDS : []),
    ...new Set(tools.map((tool) => toolKind(tool.name))),
  ]
}

export function toolsOf({ tools = [] }: CreationParams): readonly ClientTool[] {
  return tools.map(({ name, description = '', parameters = {}, skipPermission = false }) => {
    return { name, description, parameters, skipPermission }
  })
}

/** Throws if the client registers tools with an agent that would never call them. */
export function assertTools(
  holdfast: Holdfast,
  agent: string,
  { tools = [] }: CreationParams,
  toolsMax: number,
): void {
  if (tools.length > toolsMax) throw invalid('tools', `must be at most ${toolsMax}`)
  if (JSON.stringify(tools).length > TOOLS_CHARS_MAX) throw invalid('tools', 'are too large')
  const known = holdfast.describeAgents().find((one) => one.name === agent)
  if (tools.length === 0 || known?.capabilities.clientTools === true) return
  const message = `agent ${agent} cannot call tools of clients`
  throw new HoldfastError('capability_missing', message, { capability: 'clientTools' })
}
