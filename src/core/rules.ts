/**
 * Rules of the operator for permissions: what an agent asks for is allowed, denied or asked of
 * people before anybody is asked.
 *
 * 1. A rule that denies wins over everything, also over what a person has allowed for the session.
 *    Then what was allowed for the session counts, then the first other rule that matches. Without
 *    one, people are asked.
 * 2. A rule that allows matches only if all of the request is known and covered: a command that is
 *    one simple command, every path, the address. In doubt it does not match.
 * 3. A rule that denies matches if any part of the request may be what it names.
 * 4. Rules decide what an agent asks. With a rule that denies, or that wants people to be asked, an
 *    agent is not told to allow more than the request itself: it would not ask any more.
 */
import type { Digest } from './clock.ts'
import { HoldfastError, invalid } from './errors.ts'
import { commandsIn, patternWords, simpleCommand } from './shell-words.ts'
import {
  ANSWERED_BY,
  TOOL_KINDS,
  type AnsweredBy,
  type Ask,
  type AskDetail,
  type AskOption,
  type AskOutcome,
  type Grant,
  type Principal,
  type Ruling,
  type Session,
  type ToolKind,
} from './state.ts'

export const DECISIONS = ['allow', 'deny', 'ask'] as const
export type Decision = (typeof DECISIONS)[number]

/** What a rule asks of a request. Each that is given must hold, by one of its patterns. */
export const RULE_CONDITIONS = {
  agents: 'names of agents',
  principals: 'ids of principals whose turn it is',
  tools: "names of tools, as the agent's asks have them",
  kinds: `what the tool does: ${TOOL_KINDS.join(', ')}`,
  commands: 'commands, word by word; a last `*` is any further words',
  paths: 'absolute paths; `*` is any part of a name, `**` any folders',
  hosts: 'hosts of the address; `*.example.com` is every host below it',
} as const
export type RuleCondition = keyof typeof RULE_CONDITIONS

export type Rule = {
  /** For the log. */
  readonly name: string
  readonly decision: Decision
  /** Of a rule that denies: words for the agent. */
  readonly message?: string
  /** Of a rule that asks: whose answers are taken. */
  readonly answeredBy?: AnsweredBy
  /** Of a rule that asks: so many different people have to allow it. */
  readonly people?: number
} & { readonly [Condition in RuleCondition]?: readonly string[] }

/** What a rule looks at. */
export type RuleRequest = {
  readonly agent: string
  readonly principal: string | null
  readonly detail: AskDetail
}

/** What rules say of a request: where people are asked, whose answers are taken, and how many. */
export type Decided = {
  readonly decision: Decision
  readonly rule: string | null
  readonly answeredBy: AnsweredBy | null
  readonly people: number | null
}

/** Why a rule does not match: the first condition that fails; null: it matches. */
export type RuleTrace = { readonly rule: Rule; readonly fails: string | null }

const NAME = /^[\w .:-]{1,64}$/
const RULES_MAX = 1_000
const PATTERNS_MAX = 1_000
const PATTERN_CHARS_MAX = 4_096
const PEOPLE_MAX = 8

/** A program hands over an option; the configuration file was checked before. */
export function checkRules(rules: readonly Rule[]): readonly Rule[] {
  if (!Array.isArray(rules) || rules.length > RULES_MAX) {
    throw invalid('rules', `must be a list of at most ${RULES_MAX} rules`)
  }
  const names = new Set<string>()
  for (const [index, rule] of rules.entries()) {
    checkRule(rule, `rules.${index}`)
    if (names.has(rule.name)) throw invalid(`rules.${index}.name`, 'is the name of two rules')
    names.add(rule.name)
  }
  return rules
}

function checkRule(rule: Rule, field: string): void {
  if (typeof rule !== 'object' || rule === null) throw invalid(field, 'must be an object')
  const { name, decision, message, answeredBy: _, people: __, ...conditions } = rule
  if (typeof name !== 'string' || !NAME.test(name)) {
    throw invalid(`${field}.name`, 'must have 1 to 64 letters, digits, spaces and _ . : -')
  }
  if (!DECISIONS.includes(decision)) {
    throw invalid(`${field}.decision`, `must be one of ${DECISIONS.join(', ')}`)
  }
  if (message !== undefined && (typeof message !== 'string' || decision !== 'deny')) {
    throw invalid(`${field}.message`, 'must be a text, of a rule that denies')
  }
  checkAsking(rule, field)
  for (const [condition, patterns] of Object.entries(conditions)) {
    checkCondition(condition, patterns, `${field}.${condition}`)
  }
}

function checkAsking({ decision, answeredBy, people }: Rule, field: string): void {
  const isAsking = decision === 'ask'
  if (answeredBy !== undefined && !(isAsking && ANSWERED_BY.includes(answeredBy))) {
    throw invalid(`${field}.answeredBy`, `must be ${ANSWERED_BY.join(', ')}, of a rule that asks`)
  }
  const isCount = Number.isInteger(people) && Number(people) >= 1 && Number(people) <= PEOPLE_MAX
  if (people !== undefined && !(isAsking && isCount)) {
    throw invalid(
      `${field}.people`,
      `must be a number from 1 to ${PEOPLE_MAX}, of a rule that asks`,
    )
  }
}

function checkCondition(condition: string, patterns: readonly string[], field: string): void {
  if (!Object.hasOwn(RULE_CONDITIONS, condition)) throw invalid(field, 'is no condition of a rule')
  const isList = Array.isArray(patterns) && patterns.length > 0 && patterns.length <= PATTERNS_MAX
  if (!isList) throw invalid(field, `must be a list of 1 to ${PATTERNS_MAX} texts`)
  for (const pattern of patterns) {
    const isText = typeof pattern === 'string' && pattern.length <= PATTERN_CHARS_MAX
    if (!isText || pattern.trim() === '') throw invalid(field, 'must be texts that are not empty')
    const problem = patternProblem(condition as RuleCondition, pattern)
    if (problem !== null) throw invalid(field, `${problem}: ${pattern}`)
  }
}

function patternProblem(condition: RuleCondition, pattern: string): string | null {
  switch (condition) {
    case 'kinds':
      return TOOL_KINDS.includes(pattern as ToolKind) ? null : `must be of ${TOOL_KINDS.join(', ')}`
    case 'commands':
      return patternWords(pattern) === null ? 'must be the words of one command' : null
    case 'paths':
      return /^(\/|\*\*)/.test(pattern) ? null : 'must begin with / or **'
    case 'hosts':
      return /^[a-z\d.*:[\]-]+$/i.test(pattern) ? null : 'must be a host'
    default:
      return null
  }
}

export class Rules {
  #rules: readonly Rule[]
  readonly #digest: Digest

  constructor(rules: readonly Rule[], digest: Digest) {
    this.#rules = checkRules(rules)
    this.#digest = digest
  }

  /** From now on these decide. */
  replace(rules: readonly Rule[]): void {
    this.#rules = checkRules(rules)
  }

  /**
   * What becomes of an ask: its options without those that a rule forbids, and what was decided;
   * null: people are asked.
   */
  apply<Asked extends Omit<Ask, 'id'>>(
    ask: Asked,
    by: { agent: string; principal: Principal | null; grants: readonly Grant[] },
  ): { readonly ask: Asked; readonly ruling: Ruling | null } {
    const { detail = {}, options } = ask
    if (this.#rules.length === 0 || ask.kind !== 'permission' || options === null) {
      return { ask, ruling: null }
    }
    const request = { agent: by.agent, principal: by.principal?.id ?? null, detail }
    const asking = this.#asking(request)
    // Where a rule says whose answers are taken, one answer allows nothing for later.
    const isGuarded = asking?.answeredBy !== undefined || (asking?.people ?? 1) > 1
    const same = isGuarded ? null : this.#grantOf(ask)
    const kept = this.#mayOverrule(by.agent) ? { ...ask, options: once(options, same) } : ask
    const given = same === null ? undefined : by.grants.find((grant) => isSame(grant, same))
    const ruling = this.#rulingOf(request, given)
    const asked = ruling === null && asking !== null ? { ...kept, ...whose(asking) } : kept
    return { ask: asked, ruling }
  }

  /** What the rules say of a request for which a person has allowed nothing. */
  decide(request: RuleRequest): Decided {
    const found =
      this.#denying(request) ?? this.#first(request, ({ decision }) => decision !== 'deny')
    const { decision = 'ask', name: rule = null, answeredBy = null, people = null } = found ?? {}
    return { decision, rule, answeredBy, people }
  }

  /** The rule by which people are asked; null: none, or another decides. */
  #asking(request: RuleRequest): Rule | null {
    const found = this.#first(request, ({ decision }) => decision !== 'deny')
    return found?.decision === 'ask' ? found : null
  }

  #denying(request: RuleRequest): Rule | undefined {
    return this.#first(request, ({ decision }) => decision === 'deny')
  }

  #rulingOf(request: RuleRequest, given: Grant | undefined): Ruling | null {
    const denied = this.#denying(request)
    if (denied !== undefined) {
      const { name, message = `The rule "${name}" of the operator denies this.` } = denied
      return { decision: 'deny', message, rule: name }
    }
    if (given !== undefined) return { decision: 'allow', message: null, grant: given.label }
    const { decision, rule } = this.decide(request)
    return decision === 'allow' && rule !== null ? { decision, message: null, rule } : null
  }

  #first(request: RuleRequest, isMeant: (rule: Rule) => boolean): Rule | undefined {
    return this.#rules.find((rule) => isMeant(rule) && failsOf(rule, request) === null)
  }

  /** Throws if a rule denies what a person has made of the arguments of a request. */
  assertEdited(session: Session, { kind, detail = {} }: Ask, answer: unknown): void {
    const { input } = Object(answer) as { readonly input?: unknown }
    if (kind !== 'permission' || input === undefined) return
    const { agent, running } = session
    const edited = editedDetail(detail, Object(input) as Readonly<Record<string, unknown>>)
    const request = { agent, principal: running?.by?.id ?? null, detail: edited }
    const denied = this.#denying(request)
    if (denied === undefined) return
    const message = `the rule "${denied.name}" of the operator denies these arguments`
    throw new HoldfastError('forbidden', message)
  }

  /** An agent is not to remember what was allowed where a rule may overrule that. */
  forAgent(session: Session): Session {
    const isKept = session.grants.length === 0 || !this.#mayOverrule(session.agent)
    return isKept ? session : { ...session, grants: [] }
  }

  /** Whether some rule may deny, or want to be asked, what the agent would ask another time. */
  #mayOverrule(agent: string): boolean {
    return this.#rules.some(
      ({ decision, agents }) =>
        decision !== 'allow' && (agents === undefined || agents.some(matchesName(agent))),
    )
  }

  /** What allows the very same request again; null: too little is known of it, or too much. */
  #grantOf({ question, detail }: Omit<Ask, 'id'>): Grant | null {
    if (detail === undefined || detail.truncated === true) return null
    const { tool, kind, command, cwd, url, paths, diff, input } = detail
    if ([command, url, paths, input].every((one) => one === undefined)) return null
    const request = JSON.stringify([question, tool, kind, command, cwd, url, paths, diff, input])
    const label = (command ?? url ?? paths?.join(', ') ?? question).slice(0, LABEL_CHARS_MAX)
    return { label: label.toWellFormed(), data: { sameRequest: this.#digest(request) } }
  }
}

/** What a request is about with these arguments, by the names that agents have for them. */
function editedDetail(detail: AskDetail, input: Readonly<Record<string, unknown>>): AskDetail {
  const text = (...names: readonly string[]): string | undefined =>
    names.map((name) => input[name]).find((value) => typeof value === 'string')
  const { tool, kind } = detail
  const [command = detail.command, url = detail.url] = [text('command', 'cmd'), text('url')]
  const cwd = text('cwd', 'workdir') ?? detail.cwd
  const path = text('file_path', 'filePath', 'filepath', 'path', 'notebook_path')
  const paths = [...(detail.paths ?? []), ...(path === undefined ? [] : [path])]
  return Object.fromEntries(
    Object.entries({ tool, kind, command, cwd, url, paths }).filter(
      ([, value]) => value !== undefined,
    ),
  )
}

const LABEL_CHARS_MAX = 200
/** The option that Holdfast offers instead of those that would keep an agent from asking again. */
const ALLOW_SAME = 'holdfast:allow_same'

function isSame({ data }: Grant, { data: same }: Grant): boolean {
  return JSON.stringify(data) === JSON.stringify(same)
}

/** What an ask says of the rule by which people are asked. */
function whose({ name: rule, answeredBy, people }: Rule) {
  return {
    rule,
    ...(answeredBy === undefined ? {} : { answeredBy }),
    ...(people === undefined ? {} : { people }),
  }
}

/** Those that settle this request alone, and one that allows it again. */
function once(options: readonly AskOption[], same: Grant | null): readonly AskOption[] {
  const kept = options.filter((option) => meaningOf(option) !== null)
  if (same === null || !kept.some((option) => meaningOf(option) === 'allow')) return kept
  const label = 'Always allow exactly this in this session'
  return [...kept, { id: ALLOW_SAME, label, grants: [same] }]
}

/** What choosing it means for the request; null: something else, or more. */
export function meaningOf({ id, means }: AskOption): 'allow' | 'deny' | null {
  if (means !== undefined) return means
  return id === 'allow' || id === 'deny' ? id : null
}

/** The option that a ruling, or the option of Holdfast itself, stands for. */
export function optionFor(
  options: readonly AskOption[] | null,
  decision: 'allow' | 'deny',
): string | null {
  return options?.find((option) => meaningOf(option) === decision)?.id ?? null
}

/** What the agent is told: it does not know the option of Holdfast itself. */
export function outcomeForAgent(
  outcome: AskOutcome,
  options: readonly AskOption[] | null,
): AskOutcome {
  if (outcome.outcome !== 'answered') return outcome
  const { answer } = outcome
  const allow = optionFor(options, 'allow')
  if (answer === ALLOW_SAME) return { ...outcome, answer: allow }
  const isObject = typeof answer === 'object' && answer !== null && 'option' in answer
  return isObject && answer.option === ALLOW_SAME
    ? { ...outcome, answer: { ...answer, option: allow } }
    : outcome
}

/** Why each rule matches a request or does not, in the order of the rules. */
export function traceRules(rules: readonly Rule[], request: RuleRequest): readonly RuleTrace[] {
  return rules.map((rule) => ({ rule, fails: failsOf(rule, request) }))
}

/** The condition of a rule that does not hold, in words; null: all hold. */
function failsOf(rule: Rule, request: RuleRequest): string | null {
  const isAllowing = rule.decision === 'allow'
  const { agent, principal, detail } = request
  if (isAllowing && detail.truncated === true) return 'the request is not known as a whole'
  if (isAllowing && detail.unsandboxed === true) return 'it would run outside of its sandbox'
  const { command } = detail
  if (isAllowing && command !== undefined && simpleCommand(command) === null) {
    return 'the command is not one simple command'
  }
  const holds: Readonly<Record<RuleCondition, (patterns: readonly string[]) => boolean>> = {
    agents: (patterns) => patterns.some(matchesName(agent)),
    principals: (patterns) => principal !== null && patterns.some(matchesName(principal)),
    tools: (patterns) => detail.tool !== undefined && patterns.some(matchesName(detail.tool)),
    kinds: (patterns) => detail.kind !== undefined && patterns.includes(detail.kind),
    commands: (patterns) => matchesCommand(command, patterns, isAllowing),
    paths: (patterns) => matchesPaths(detail, patterns, isAllowing),
    hosts: (patterns) => matchesHost(detail.url, patterns, isAllowing),
  }
  for (const name of Object.keys(holds) as RuleCondition[]) {
    const patterns = rule[name]
    if (patterns !== undefined && !holds[name](patterns)) return `${name} does not match`
  }
  return null
}

function matchesName(name: string): (pattern: string) => boolean {
  return (pattern) => globOf(pattern, '.*').test(name)
}

/** A pattern in which a star stands for `any`. */
function globOf(pattern: string, any: string, flags = 's'): RegExp {
  const parts = pattern.split('*').map((part) => part.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, '\\$&'))
  return new RegExp(`^${parts.join(any)}$`, flags)
}

function matchesCommand(
  command: string | undefined,
  patterns: readonly string[],
  isAllowing: boolean,
): boolean {
  if (command === undefined) return false
  const commands = isAllowing ? [simpleCommand(command) ?? []] : startsIn(commandsIn(command))
  return patterns.some((pattern) => {
    const wanted = patternWords(pattern) ?? []
    return commands.some((words) => coversWords(wanted, words, isAllowing))
  })
}

/** A command may begin at each word: `sudo rm`, `env A=1 rm`, `xargs rm`, `/bin/rm`. */
function startsIn(commands: readonly (readonly string[])[]): readonly (readonly string[])[] {
  return commands.flatMap((words) =>
    words.flatMap((word, index) => {
      const rest = words.slice(index + 1)
      const name = word.slice(word.lastIndexOf('/') + 1)
      return name === word
        ? [[word, ...rest]]
        : [
            [word, ...rest],
            [name, ...rest],
          ]
    }),
  )
}

/** Some systems take names in any case: a rule that denies does too. */
function coversWords(
  pattern: readonly string[],
  words: readonly string[],
  isAllowing: boolean,
): boolean {
  const flags = isAllowing ? 's' : 'si'
  const isOpen = pattern.length > 1 && pattern.at(-1) === '*'
  const fixed = isOpen ? pattern.slice(0, -1) : pattern
  if (isOpen ? words.length < fixed.length : words.length !== fixed.length) return false
  return fixed.every((word, index) => globOf(word, '.*', flags).test(words[index] ?? ''))
}

function matchesPaths(
  { paths = [], diff = [], cwd }: AskDetail,
  patterns: readonly string[],
  isAllowing: boolean,
): boolean {
  const given = [...paths, ...diff.map(({ path }) => path)]
  const isMatched = (path: string): boolean => {
    const whole = absolutePath(path, cwd)
    // Where it leads is not known: it may be any.
    if (whole === null) return !isAllowing
    // What is in a folder stands for the folder too, where it is to be denied.
    const named = isAllowing ? [whole] : [whole, `${whole}/`]
    return patterns.some((pattern) => {
      const glob = pathGlob(pattern, isAllowing ? 's' : 'si')
      return named.some((one) => glob.test(one))
    })
  }
  if (given.length === 0) return false
  return isAllowing ? given.every(isMatched) : given.some(isMatched)
}

/** A home folder, an address, or what programs may read in more than one way. */
const ODD_PATH = /^~|^[a-z][a-z\d+.-]*:|[\\\p{Cc}]/iu

/** Without `.`, `..` and doubled slashes; null: where it leads is not known. */
function absolutePath(path: string, cwd: string | undefined): string | null {
  if (ODD_PATH.test(path)) return null
  const whole = path.startsWith('/') ? path : `${cwd ?? ''}/${path}`
  if (!path.startsWith('/') && cwd?.startsWith('/') !== true) return null
  const names: string[] = []
  for (const name of whole.split('/')) {
    if (name === '..') names.pop()
    else if (name !== '' && name !== '.') names.push(name)
  }
  return `/${names.join('/')}`
}

/** `**` stands for any folders, none included; `*` for any part of one name. */
function pathGlob(pattern: string, flags: string): RegExp {
  const parts = pattern.split('**').map((part) => globOf(part, '[^/]*').source.slice(1, -1))
  const source = parts.join('.*').replaceAll('\\/.*\\/', '\\/(?:.*\\/)?')
  return new RegExp(`^${source}$`, flags)
}

/** What every reader of addresses takes for the same host. */
const PLAIN_URL = /^(?:https?|wss?):\/\/([a-z\d.-]+|\[[\da-f:.]+\])(?::\d+)?(?:[/?#][^\s\\]*)?$/i

function matchesHost(
  url: string | undefined,
  patterns: readonly string[],
  isAllowing: boolean,
): boolean {
  if (url === undefined) return false
  const plain = PLAIN_URL.exec(url)?.[1]
  if (isAllowing && plain === undefined) return false
  const hosts = isAllowing ? [plain ?? ''] : hostsIn(url)
  return hosts.some((host) => {
    const name = host.toLowerCase().replace(/\.$/, '')
    return patterns.some((pattern) => globOf(pattern.toLowerCase(), '.*').test(name))
  })
}

/** Every part of an odd address that some reader may take for the host. */
function hostsIn(url: string): readonly string[] {
  const parts = url.split(/[/\\?#@\s]+/).flatMap((part) => [part, ...part.split(':')])
  const parsed = URL.canParse(url) ? new URL(url).hostname : ''
  return [...parts, parsed, mappedIp(parsed)].filter((part) => part !== '')
}

/** The IPv4 address that an IPv6 address of a URL stands for; empty: none. */
function mappedIp(host: string): string {
  const [, high = '', low = ''] = /^\[::ffff:([\da-f]+):([\da-f]+)\]$/.exec(host) ?? []
  if (low === '') return ''
  const groups = [high, low].map((group) => Number.parseInt(group, 16))
  return groups.flatMap((group) => [group >> 8, group & 255]).join('.')
}
