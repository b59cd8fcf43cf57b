/** The tool calls and permission requests of ACP agents, in the shape of all agents. */
import type { RequestPermissionOutcome, RequestPermissionRequest } from '@agentclientprotocol/sdk'
import type {
  AskDetail,
  AskOutcome,
  FileDiff,
  Grant,
  Question,
  ToolCall,
  ToolKind,
} from '../../core/index.ts'
import { ASK_OPTIONS_MAX, choiceOf, grantOf, shellLine, shortened } from '../asking.ts'
import { asList, asObject, asText, type JsonObject } from '../json.ts'
import { present } from '../tools.ts'

const KINDS: Readonly<Record<string, ToolKind>> = {
  ...{ read: 'read', search: 'read', edit: 'edit', delete: 'edit', move: 'edit' },
  ...{ execute: 'execute', fetch: 'fetch', think: 'think', switch_mode: 'think', other: 'other' },
}

const STATUS: Readonly<Record<string, ToolCall['status']>> = {
  ...{ pending: 'pending', in_progress: 'running', completed: 'done', failed: 'failed' },
}

/**
 * A tool call as an update or a permission request tells it. An empty input means that it is not
 * known yet, and output is taken at the end only: until then it grows.
 */
export function toolCallOf(id: string, update: JsonObject): ToolCall {
  const { title, kind, rawInput, rawOutput, content, locations, _meta } = update
  const status = STATUS[asText(update['status'])]
  const isOver = status === 'done' || status === 'failed'
  const call = {
    id,
    name: textOrNone(update['name'] ?? asObject(asObject(_meta)['claudeCode'])['toolName']),
    kind: KINDS[asText(kind)],
    status,
    title: textOrNone(title),
    input: isEmpty(rawInput) ? undefined : rawInput,
    output: isOver ? (rawOutput ?? outputOf(content)) : undefined,
    diff: diffsOf(content),
    locations: locationsOf(locations),
  }
  return { ...present(call), id }
}

function textOrNone(value: unknown): string | undefined {
  return asText(value) === '' ? undefined : asText(value)
}

function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null || value === '') return true
  return typeof value === 'object' && Object.keys(value).length === 0
}

function outputOf(content: unknown): unknown {
  const shown = asList(content).map(asObject)
  const texts = shown.map(({ content: block }) => asText(asObject(block)['text']))
  const text = texts.filter((one) => one !== '').join('\n')
  return text === '' ? undefined : text
}

/** Undefined: the update says nothing of it. */
function diffsOf(content: unknown): readonly FileDiff[] | undefined {
  const diffs = asList(content)
    .map(asObject)
    .filter(({ type }) => type === 'diff')
    .map(({ path, oldText, newText }) => ({
      path: asText(path),
      before: typeof oldText === 'string' ? oldText : null,
      after: asText(newText),
    }))
  return diffs.length === 0 ? undefined : diffs
}

function locationsOf(locations: unknown): ToolCall['locations'] {
  const known = asList(locations).map(asObject)
  const places = known.filter(({ path }) => typeof path === 'string')
  if (places.length === 0) return undefined
  return places.map(({ path, line }) => ({
    path: asText(path),
    ...(typeof line === 'number' ? { line } : {}),
  }))
}

/** The names under which agents have what a person needs to know, in a tool's arguments. */
export function detailOf({ name, title, kind, input, diff, locations }: ToolCall): AskDetail {
  const given = asObject(input)
  const text = (...names: readonly string[]): string | undefined =>
    names.map((one) => given[one]).find((one) => typeof one === 'string')
  const { command } = given
  const words = Array.isArray(command) ? shellLine(command) : text('command', 'cmd')
  const file = text('file_path', 'filePath', 'filepath', 'path', 'notebook_path')
  const known = [...(diff ?? []), ...(locations ?? [])].map(({ path }) => path)
  const paths = [...new Set([...known, ...(file === undefined ? [] : [file])])]
  return present({
    ...{ tool: name ?? title, kind, command: words, diff, input },
    ...{ cwd: text('cwd', 'workdir'), url: text('url'), plan: text('plan') },
    reason: text('description', 'justification', 'reason'),
    paths: paths.length === 0 ? undefined : paths,
  })
}

/** A permission request as the Agent Client Protocol defines it, without its session. */
export type PermissionRequest = Omit<RequestPermissionRequest, 'sessionId'>

/** `known`: what earlier updates of the same tool call have told. */
export function permissionQuestion(
  { toolCall, options: offered }: PermissionRequest,
  known: ToolCall | undefined,
): Question {
  const { toolCallId: id } = toolCall
  const call = { ...known, ...toolCallOf(id, toolCall) }
  const options = offered.slice(0, ASK_OPTIONS_MAX)
  const name = known?.name ?? known?.title
  const question = call.title ?? 'May the agent continue?'
  const detail = detailOf(name === undefined ? call : { ...call, name })
  const grant = permissionGrant(question, detail)
  return {
    kind: 'permission',
    question,
    options: options.map(({ optionId, name: label, kind }) => ({
      id: optionId,
      label: shortened(label),
      ...(MEANINGS[kind] === undefined ? {} : { means: MEANINGS[kind] }),
      ...(kind === 'allow_always' && grant !== null ? { grants: [grant] } : {}),
    })),
    detail,
    data: {
      tool: { id },
      kinds: Object.fromEntries(options.map(({ optionId, kind }) => [optionId, kind])),
    },
  }
}

/** Those that are about this request alone. */
const MEANINGS: Readonly<Record<string, 'allow' | 'deny'>> = {
  allow_once: 'allow',
  reject_once: 'deny',
}

/** Null: too little is known of the request to know it again. */
function permissionGrant(question: string, detail: AskDetail): Grant | null {
  const { tool, kind, command, cwd, url, paths, diff, input } = detail
  const isKnown = [command, url, paths, input].some((one) => one !== undefined)
  if (!isKnown) return null
  return grantOf(question, [question, tool, kind, command, cwd, url, paths, diff, input])
}

/**
 * The option that allows, for the session, what a person has allowed so before: an agent that was
 * started again asks again. Null: it was not.
 */
export function optionAllowed(
  { options = [] }: Question,
  isGrantedBefore: (grant: Grant) => boolean,
): string | null {
  const granted = options.find((option) => {
    return typeof option !== 'string' && option.grants?.some(isGrantedBefore) === true
  })
  return typeof granted === 'object' ? granted.id : null
}

/**
 * Only a person's answer selects an option. Without one the request is cancelled: if a reject
 * option is selected, some agents tell their model that "the user" refused, which is not true.
 */
export function permissionAnswer(outcome: AskOutcome): RequestPermissionOutcome {
  const optionId = choiceOf(outcome)?.options[0]
  return optionId === undefined ? { outcome: 'cancelled' } : { outcome: 'selected', optionId }
}
