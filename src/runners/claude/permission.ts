/**
 * The permission requests of Claude Code as asks, and their outcomes as its answers. An answer
 * counts for the session only: nothing is written to the settings of Claude Code. What the operator
 * denies stays denied, since its deny rules come before any that a client allows.
 */
import {
  chosen,
  type AskDetail,
  type AskOutcome,
  type Choice,
  type Question,
  type RunnerContext,
} from '../../core/index.ts'
import { isRecord } from '../../schema/contract.ts'
import { foldersWithin, type Places } from '../agent-settings.ts'
import { ALLOW, DENY, shortened, unansweredWords } from '../asking.ts'
import { asList, asObject, asText, type JsonObject } from '../json.ts'
import type { ClaudeSettings } from './options.ts'
import { titleOf } from './tools.ts'

/** What the program is told. */
export type PermissionAnswer =
  | {
      readonly behavior: 'allow'
      readonly updatedInput: JsonObject
      readonly updatedPermissions?: readonly JsonObject[]
    }
  | { readonly behavior: 'deny'; readonly message: string }

export type Allowed = { readonly rules: readonly string[]; readonly directories: readonly string[] }

type Asked = {
  /** What was offered to be always allowed. */
  readonly suggested: readonly JsonObject[]
  readonly context: RunnerContext
}

export function permissionQuestion(
  request: JsonObject,
  detail: AskDetail,
  suggested: readonly JsonObject[],
): Question {
  const tool = asText(request['tool_name'])
  const isPlan = tool === 'ExitPlanMode'
  const always = suggested.map(labelOf).join(', ')
  return {
    kind: 'permission',
    question: isPlan ? 'Approve this plan?' : titleOf(tool, asObject(request['input'])),
    options: [
      isPlan ? { id: 'allow', label: 'Approve' } : ALLOW,
      ...(always === ''
        ? []
        : [
            {
              id: 'allow_always',
              label: shortened(`Always allow in this session: ${always}`),
              // A mode is one of the session's settings.
              grants: suggested
                .filter(({ type }) => type !== 'setMode')
                .map((grant) => ({ label: labelOf(grant), data: grant })),
            },
          ]),
      isPlan ? { id: 'deny', label: 'Keep planning' } : DENY,
    ],
    accepts: ['message', 'input'],
    detail,
  }
}

/**
 * What the program suggests to allow from now on, for this session. A mode that the operator does
 * not offer is left out, and so are folders outside of those that the operator names.
 */
export async function suggestionsOf(
  request: JsonObject,
  settings: ClaudeSettings,
  places: Places,
): Promise<readonly JsonObject[]> {
  const suggested: JsonObject[] = []
  for (const one of asList(request['permission_suggestions']).map(asObject)) {
    const { type, behavior, mode } = one
    const suggestion = { ...one, destination: 'session' }
    if (type === 'setMode' && settings.modes.includes(asText(mode))) suggested.push(suggestion)
    if (type === 'addRules' && behavior === 'allow') suggested.push(suggestion)
    if (type !== 'addDirectories') continue
    const directories = await foldersWithin(directoriesOf(one), settings, places)
    if (directories.length > 0) suggested.push({ ...suggestion, directories })
  }
  return suggested
}

/** What people have allowed in a session, which a new child has to be told again. */
export async function allowedBefore(
  { session }: Pick<RunnerContext, 'session'>,
  settings: ClaudeSettings,
  places: Places,
): Promise<Allowed> {
  const granted = session.grants.map(({ data }) => asObject(data))
  const directories = granted.flatMap(directoriesOf)
  return {
    rules: granted.flatMap(rulesOf),
    // The operator may have named other folders since.
    directories: await foldersWithin(directories, settings, places),
  }
}

function directoriesOf({ directories }: JsonObject): readonly string[] {
  return asList(directories).map(asText)
}

/** The rules of a grant as Claude Code writes them: `Bash(npm test:*)`. */
function rulesOf({ rules }: JsonObject): readonly string[] {
  return asList(rules)
    .map(asObject)
    .map(({ toolName, ruleContent: content }) =>
      typeof content === 'string' ? `${asText(toolName)}(${content})` : asText(toolName),
    )
}

function labelOf(grant: JsonObject): string {
  const { type, mode } = grant
  if (type === 'setMode') return `the mode ${asText(mode)}`
  return (type === 'addDirectories' ? directoriesOf(grant) : rulesOf(grant)).join(', ')
}

export function permissionAnswer(
  outcome: AskOutcome,
  request: JsonObject,
  { suggested, context }: Asked,
): PermissionAnswer {
  if (outcome.outcome !== 'answered') return unanswered(outcome, context)
  const { options, message, input = asObject(request['input']) } = chosen(outcome.answer)
  const [option] = options
  if (option === 'deny') return deny(message ?? 'A person has denied this.')
  if (!isRecord(input)) return deny('A person allowed it with arguments that are no object.')
  const always = option === 'allow_always' ? suggested : []
  return {
    behavior: 'allow',
    updatedInput: input,
    ...(always.length === 0 ? {} : { updatedPermissions: always }),
  }
}

export function deny(message: string): PermissionAnswer {
  return { behavior: 'deny', message }
}

/** Without a person's answer nothing is allowed; the agent can tell its user why. */
export function unanswered(
  outcome: Exclude<AskOutcome, { outcome: 'answered' }>,
  context: RunnerContext,
): PermissionAnswer {
  return deny(unansweredWords(outcome, context) ?? 'The request was withdrawn.')
}

/** The questions of the tool `AskUserQuestion`, each as an ask. */
export function questionsOf(request: JsonObject): readonly Question[] {
  const input = asObject(request['input'])
  return asList(input['questions'])
    .map(asObject)
    .map((question) => ({
      kind: 'question',
      question: asText(question['question']),
      options: asList(question['options']).map(asObject).map(answerOption),
      accepts: question['multiSelect'] === true ? ['several', 'text'] : ['text'],
      detail: { tool: 'AskUserQuestion', kind: 'other', input: question },
    }))
}

function answerOption({ label, description }: JsonObject) {
  const id = asText(label)
  const more = asText(description)
  return { id, label: shortened(more === '' ? id : `${id}: ${more}`) }
}

/** The answers as the tool takes them: each question's text with the chosen labels. */
export function questionsAnswer(request: JsonObject, answers: readonly Choice[]): PermissionAnswer {
  const input = asObject(request['input'])
  const texts = asList(input['questions']).map((one) => asText(asObject(one)['question']))
  const given = answers.map(({ options, text }) => [...options, text ?? []].flat().join(', '))
  const byQuestion = Object.fromEntries(texts.map((text, index) => [text, given[index] ?? '']))
  return { behavior: 'allow', updatedInput: { ...input, answers: byQuestion } }
}
