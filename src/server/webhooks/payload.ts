/**
 * What a webhook is told of an event of a log: ids, names and codes. Texts and changes of files
 * only if the operator wants them, bounded, and without what looks like a secret.
 */
import { openedAsk } from '../../core/asks.ts'
import type { EventOf } from '../../core/events.ts'
import type { Ask, AskDetail, FileDiff, SessionRow } from '../../core/index.ts'
import type { WebhookEvent, WebhookInclude } from '../../schema/webhooks.ts'

/** Characters of one text, of the changes of files together, and items of a list. */
const TEXT_CHARS_MAX = 2_000
const DIFF_CHARS_MAX = 16_000
const ITEMS_MAX = 20
/** A reason that is no word may be somebody's text. */
const WORD = /^[a-z_]{1,64}$/

export type WebhookedEvent = EventOf<WebhookEvent>

/** What is said of an event besides what it has itself. */
export type Surroundings = {
  readonly row: SessionRow
  readonly include: readonly WebhookInclude[]
  readonly redact: (text: string) => string
  /** Of an ask: the step that opened it has settled it too, so that no person was asked. */
  readonly isDecided?: boolean
  /** Of a turn that is done: its last message. */
  readonly answer?: string | null
  /** A link to the ask. */
  readonly link?: string | null
}

/** The same for each attempt and on each node, so that receivers know a repetition. */
export function eventId(session: string, seq: number): string {
  return `evt_${session}_${seq}`
}

export function payloadOf(event: WebhookedEvent, around: Surroundings): string {
  const { row, include } = around
  const { id, principal: owner, agent, labels, status, key } = row
  const shown = { id, owner, agent, status, labels }
  const session = include.includes('text') ? { ...shown, key } : shown
  const { type, seq, at } = event
  const data = { session, seq, ...dataOf(event, around) }
  return JSON.stringify({ type, timestamp: new Date(at).toISOString(), data })
}

function dataOf(event: WebhookedEvent, around: Surroundings): object {
  const { include, redact } = around
  const hasText = include.includes('text')
  const turn = 'turn' in event ? { turn: event.turn } : {}
  const by = 'by' in event && event.by !== undefined ? { by: event.by } : {}
  switch (event.type) {
    case 'turn.failed': {
      const { code, message } = event.error
      const text = hasText ? { message: bounded(redact(message)) } : {}
      return { ...turn, error: { code, ...text } }
    }
    case 'turn.done':
      return { ...turn, ...textual(hasText, 'text', around.answer, redact) }
    case 'turn.cancelled':
    case 'turn.interrupted':
    case 'session.closed':
      return { ...turn, ...by, reason: WORD.test(event.reason) ? event.reason : null }
    case 'ask.opened':
      return { ...turn, ask: askData(event, around) }
    case 'ask.settled':
      return { ...turn, ...settledData(event, hasText, redact) }
    default:
      return { ...turn, ...by }
  }
}

/** A text in a field of its own, if there is one and it is wanted. */
function textual(
  isWanted: boolean,
  field: string,
  text: string | null | undefined,
  redact: (text: string) => string,
): object {
  return isWanted && typeof text === 'string' ? { [field]: bounded(redact(text)) } : {}
}

function askData(event: EventOf<'ask.opened'>, around: Surroundings): object {
  const { include, redact, isDecided = false, link = null } = around
  const ask = openedAsk(event)
  const { id, kind, deadline, detail = {} } = ask
  const { tool, kind: toolKind } = detail
  return {
    id,
    kind,
    deadline,
    ...(tool === undefined ? {} : { tool: bounded(tool) }),
    ...(toolKind === undefined ? {} : { toolKind }),
    isDecided,
    ...(include.includes('text') ? askText(ask, redact) : {}),
    ...(include.includes('diff') ? askDiff(detail, redact) : {}),
    ...(link === null ? {} : { link }),
  }
}

function askText({ question, options, detail = {} }: Ask, redact: (text: string) => string) {
  const { command, cwd, url, paths, reason } = detail
  const texts = Object.entries({ command, cwd, url, reason }).flatMap(([name, text]) =>
    text === undefined ? [] : [[name, bounded(redact(text))]],
  )
  const shown = paths?.slice(0, ITEMS_MAX).map((path) => bounded(redact(path)))
  return {
    question: bounded(redact(question)),
    options:
      options?.slice(0, ITEMS_MAX).map(({ id, label }) => {
        return { id: bounded(id), label: bounded(redact(label)) }
      }) ?? null,
    ...Object.fromEntries(texts),
    ...(shown === undefined ? {} : { paths: shown }),
  }
}

function askDiff({ diff, input }: AskDetail, redact: (text: string) => string): object {
  const text = (diff ?? []).map(diffText).join('\n')
  return {
    ...(diff === undefined ? {} : { diff: bounded(redact(text), DIFF_CHARS_MAX) }),
    ...(input === undefined
      ? {}
      : { input: bounded(redact(JSON.stringify(input)), DIFF_CHARS_MAX) }),
  }
}

function diffText(diff: FileDiff): string {
  if ('unified' in diff) return `--- ${diff.path}\n${diff.unified}`
  const { path, before, after } = diff
  const lines = (text: string, sign: string): string =>
    text === '' ? '' : `${text.replaceAll(/^/gm, sign)}\n`
  return `--- ${path}\n${lines(before ?? '', '-')}${lines(after, '+')}`
}

function settledData(
  event: EventOf<'ask.settled'>,
  hasText: boolean,
  redact: (text: string) => string,
): object {
  const { ask: id, outcome } = event
  if (outcome !== 'answered') {
    const { rule } = event as { readonly rule?: string }
    return { ask: { id }, outcome, ...(rule === undefined ? {} : { rule }) }
  }
  const { by, rule, answer } = event
  const text = typeof answer === 'string' ? answer : JSON.stringify(answer)
  const decided = rule === undefined ? {} : { rule }
  return { ask: { id }, outcome, by, ...decided, ...textual(hasText, 'answer', text, redact) }
}

function bounded(text: string, charsMax = TEXT_CHARS_MAX): string {
  const shown = text.length <= charsMax ? text : `${text.slice(0, charsMax)}…`
  return shown.toWellFormed()
}

/** What looks like a secret in a text that nobody wrote for others to read. */
const SECRETS: readonly (readonly [RegExp, string])[] = [
  [/-----BEGIN [A-Z ]*PRIVATE KEY-----[^]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g, '[key]'],
  [
    /\b(?:sk|rk|pk|whsec|hft|hfa|glpat|npm|ghp|gho|ghu|ghs|ghr|github_pat)[-_][\w-]{12,}/g,
    '[secret]',
  ],
  [/\bxox[a-z]-[\w-]{10,}/g, '[secret]'],
  [/\b(?:AKIA|ASIA)[A-Z\d]{16}\b/g, '[secret]'],
  // Once for each run of its characters, and only if a dot follows: else a long run takes forever.
  [/(?<![\w-])(?=[\w-]+\.[\w-]+\.)(?:[\w-]*-)?eyJ[\w-]{8,}\.[\w-]+\.[\w-]*/g, '[token]'],
  [/\b(bearer|basic)\s+[\w.~+/=-]{8,}/gi, '$1 [secret]'],
  [/(:\/\/[^\s/:@]*:)[^\s/@]+@/g, '$1[secret]@'],
  [
    /((?:passw(?:or)?d|secret|token|api[-_]?key|credential)s?["']?\s*[:=]\s*["']?)[^\s"'&,;]{4,}/gi,
    '$1[secret]',
  ],
]

export function withoutSecrets(text: string): string {
  return SECRETS.reduce((left, [pattern, instead]) => left.replace(pattern, instead), text)
}
