/** The requests of Codex to its user, as asks, and their answers. */
import { chosen, type Choice, type Grant, type Question, type ToolCall } from '../../core/index.ts'
import {
  ALLOW,
  ALLOW_ALWAYS,
  askForm,
  choiceOf,
  DENY,
  grantOf,
  shortened,
  type Ask,
  shellLine,
} from '../asking.ts'
import { asList, asObject, asText, type JsonObject } from '../json.ts'
import { present } from '../tools.ts'

/** What a request is asked and answered with. */
export type Asking = {
  readonly ask: Ask
  /** What is known of a tool call. */
  readonly tool: (id: string) => ToolCall | undefined
  /** Words of a person, with a refusal: Codex takes them as a message of its user. */
  readonly say: (text: string) => void
  /** Whether a person has allowed this for the session before; it is recorded then. */
  readonly isAllowed: (grant: Grant) => boolean
}

type Respond = (params: JsonObject, asking: Asking) => Promise<unknown>

/** The answer to each method that Codex requests. */
const RESPONSES: Readonly<Record<string, Respond>> = {
  'item/commandExecution/requestApproval': approveCommand,
  'item/fileChange/requestApproval': approveFileChange,
  'item/permissions/requestApproval': grantPermissions,
  'item/tool/requestUserInput': answerQuestions,
  'mcpServer/elicitation/request': answerElicitation,
}

/** Undefined: the method is not known. */
export function respond(method: string, params: JsonObject, asking: Asking): Promise<unknown> {
  return RESPONSES[method]?.(params, asking) ?? Promise.resolve(undefined)
}

/** What a person reads; a command may be a list of its words. */
function wordsOf({ command, cwd, reason }: JsonObject) {
  const text = (value: unknown): string | undefined =>
    asText(value) === '' ? undefined : asText(value)
  const words = Array.isArray(command) ? shellLine(command) : text(command)
  return { command: words, cwd: text(cwd), reason: text(reason) }
}

async function approveCommand(params: JsonObject, asking: Asking): Promise<unknown> {
  const { kind, networkApprovalContext: network } = params
  const { command, cwd, reason } = wordsOf(params)
  const host = asText(asObject(network)['host'])
  const isStdin = kind !== undefined && kind !== 'command'
  const what = isStdin ? 'Send input to a running command' : 'Run a command'
  const detail = {
    ...(host === '' ? {} : { url: `${asText(asObject(network)['protocol'])}://${host}` }),
    ...{ kind: 'execute', cwd, reason },
    // What is sent to a command is not that command.
    ...(isStdin ? { tool: 'stdin', input: params } : { tool: 'command', command }),
  }
  const question = host === '' ? `${what}: ${asText(command)}` : `Connect to ${host}`
  // What is sent to a running command is different each time.
  const request = isStdin ? null : ['command', command, cwd, detail.url]
  return decided(await decide(asking, { question, detail, request }), asking)
}

async function approveFileChange(params: JsonObject, asking: Asking): Promise<unknown> {
  const { itemId, grantRoot } = params
  const { reason } = wordsOf(params)
  const { diff = [], title } = asking.tool(asText(itemId)) ?? {}
  const paths = [...diff.map(({ path }) => path), ...(grantRoot ? [asText(grantRoot)] : [])]
  const detail = { tool: 'file_change', kind: 'edit', paths, diff, reason }
  const request = paths.length === 0 ? null : ['files', paths]
  return decided(
    await decide(asking, { question: title ?? 'Change files', detail, request }),
    asking,
  )
}

/** Grants exactly what was requested, for the turn or the session; or nothing. */
async function grantPermissions(params: JsonObject, asking: Asking): Promise<unknown> {
  const { permissions } = params
  const { reason, cwd } = wordsOf(params)
  const detail = { tool: 'request_permissions', kind: 'other', cwd, reason, input: permissions }
  const question = asText(reason) || 'Grant more permissions'
  const request = ['permissions', permissions, cwd]
  const choice = await decide(asking, { question, detail, request })
  const option = choice?.options[0]
  if (option !== ALLOW.id && option !== ALLOW_ALWAYS.id) return { permissions: {}, scope: 'turn' }
  const scope = option === ALLOW_ALWAYS.id ? 'session' : 'turn'
  return { permissions: present(asObject(permissions)), scope }
}

type Decision = {
  readonly question: string
  readonly detail: object
  /** By which it is known again, if it was allowed for the session; null: it is asked each time. */
  readonly request: unknown
}

async function decide(
  { ask, isAllowed }: Asking,
  { question, detail, request }: Decision,
): Promise<Choice | null> {
  const grant = request === null ? null : grantOf(question, request)
  // Codex forgets it when it is started again.
  if (grant !== null && isAllowed(grant)) return chosen(ALLOW_ALWAYS.id)
  const always = grant === null ? ALLOW_ALWAYS : { ...ALLOW_ALWAYS, grants: [grant] }
  const asked: Question = {
    kind: 'permission',
    question,
    options: [ALLOW, always, DENY],
    detail: present(detail as JsonObject),
    accepts: ['message'],
  }
  return choiceOf(await ask(asked))
}

/** Without an answer the request is declined, and the model may go on without. */
function decided(choice: Awaited<ReturnType<typeof decide>>, { say }: Asking): unknown {
  const option = choice?.options[0]
  const words = choice?.message ?? ''
  if (words !== '') say(words)
  if (option === ALLOW_ALWAYS.id) return { decision: 'acceptForSession' }
  return { decision: option === ALLOW.id ? 'accept' : 'decline' }
}

/** One ask for each question. A secret is not asked for: answers are recorded. */
async function answerQuestions({ questions }: JsonObject, { ask }: Asking): Promise<unknown> {
  const answers: Record<string, unknown> = {}
  for (const one of asList(questions).map(asObject)) {
    if (one['isSecret'] === true) continue
    const given = await answerQuestion(one, ask)
    if (given.length > 0) answers[asText(one['id'])] = { answers: given }
  }
  return { answers }
}

async function answerQuestion(asked: JsonObject, ask: Ask): Promise<readonly string[]> {
  const { question, header, options, isOther } = asked
  const offered = asList(options).map(asObject)
  const outcome = await ask({
    kind: 'question',
    question: asText(question) || asText(header),
    ...(offered.length === 0 ? {} : { options: offered.map(optionOf) }),
    ...(isOther === true && offered.length > 0 ? { accepts: ['text'] } : {}),
  })
  if (outcome.outcome !== 'answered') return []
  const { answer } = outcome
  if (offered.length === 0) return [typeof answer === 'string' ? answer : JSON.stringify(answer)]
  const choice = choiceOf(outcome)
  const text = choice?.text ?? null
  return text === null ? (choice?.options ?? []) : [text]
}

function optionOf({ label, description }: JsonObject) {
  const words = [asText(label), asText(description)].filter((one) => one !== '')
  return { id: asText(label), label: shortened(words.join(': ')) }
}

async function answerElicitation(params: JsonObject, { ask }: Asking): Promise<unknown> {
  const { mode, message, requestedSchema, url, serverName } = params
  const words = `${asText(serverName)}: ${asText(message)}`
  if (mode === 'url') {
    const detail = { url: asText(url) }
    const choice = choiceOf(
      await ask({ kind: 'permission', question: words, options: [ALLOW, DENY], detail }),
    )
    const action =
      choice === null ? 'cancel' : choice.options[0] === ALLOW.id ? 'accept' : 'decline'
    return { action, content: null, _meta: null }
  }
  return { content: null, _meta: null, ...(await askForm(ask, words, requestedSchema)) }
}
