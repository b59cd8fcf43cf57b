/** The requests of Codex to its user, as asks, and their answers. */
import type { Question, ToolCall } from '../../core/index.ts'
import { ALLOW, ALLOW_ALWAYS, askForm, choiceOf, DENY, shortened, type Ask } from '../asking.ts'
import { asList, asObject, asText, type JsonObject } from '../json.ts'
import { present } from '../tools.ts'

/** What a request is asked and answered with. */
export type Asking = {
  readonly ask: Ask
  /** What is known of a tool call. */
  readonly tool: (id: string) => ToolCall | undefined
  /** Words of a person, with a refusal: Codex takes them as a message of its user. */
  readonly say: (text: string) => void
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

async function approveCommand(params: JsonObject, asking: Asking): Promise<unknown> {
  const { kind, command, cwd, reason, networkApprovalContext: network } = params
  const host = asText(asObject(network)['host'])
  const isStdin = kind !== undefined && kind !== 'command'
  const what = isStdin ? 'Send input to a running command' : 'Run a command'
  const detail = {
    ...(host === '' ? {} : { url: `${asText(asObject(network)['protocol'])}://${host}` }),
    ...{ tool: 'command', kind: 'execute', command, cwd, reason },
    ...(isStdin ? { input: params } : {}),
  }
  const question = host === '' ? `${what}: ${asText(command)}` : `Connect to ${host}`
  return decided(await decide(asking, question, detail), asking)
}

async function approveFileChange(params: JsonObject, asking: Asking): Promise<unknown> {
  const { itemId, reason, grantRoot } = params
  const { diff = [], title } = asking.tool(asText(itemId)) ?? {}
  const paths = [...diff.map(({ path }) => path), ...(grantRoot ? [asText(grantRoot)] : [])]
  const detail = { tool: 'file_change', kind: 'edit', paths, diff, reason }
  return decided(await decide(asking, title ?? 'Change files', detail), asking)
}

/** Grants exactly what was requested, for the turn or the session; or nothing. */
async function grantPermissions(params: JsonObject, asking: Asking): Promise<unknown> {
  const { permissions, reason, cwd } = params
  const detail = { tool: 'request_permissions', kind: 'other', cwd, reason, input: permissions }
  const choice = await decide(asking, asText(reason) || 'Grant more permissions', detail)
  const option = choice?.options[0]
  if (option !== ALLOW.id && option !== ALLOW_ALWAYS.id) return { permissions: {}, scope: 'turn' }
  const scope = option === ALLOW_ALWAYS.id ? 'session' : 'turn'
  return { permissions: present(asObject(permissions)), scope }
}

async function decide({ ask }: Asking, question: string, detail: object) {
  const asked: Question = {
    kind: 'permission',
    question,
    options: [ALLOW, ALLOW_ALWAYS, DENY],
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
