/** `holdfast asks`, `answer` and `grants`: what waits for an answer, what answers have allowed. */
import { systemClock } from '../platform/clock.ts'
import { objectIn } from '../wire/answers.ts'
import { sessionPath, type OpenAskView, type SettledAskView } from '../wire/views.ts'
import { defineCommand, ONE_SESSION, repeated, text, toggle, UsageError } from './command.ts'
import { followStream } from './event-streams.ts'
import { durationText, paintFor, printable, printJson, printTable, say } from './output.ts'
import { askName, askPerson, describeAsk, readAnswer } from './prompt.ts'
import { Remote, REMOTE_FLAGS } from './remote.ts'

export const asks = defineCommand({
  name: 'asks',
  summary: 'Lists what waits for an answer in all sessions, the longest waiting first.',
  flags: {
    follow: toggle('keep running, and show what is asked and settled from now on'),
    answers: repeated('KIND', 'with --follow: count as a client that answers asks of this kind'),
    session: text('SESSION', 'only asks of this session, by its id or key'),
    kind: text('KIND', 'only asks of this kind, as permission or question'),
    label: text('NAME:VALUE', 'only asks of sessions with this label'),
    json: toggle('one JSON object per line, for programs'),
    ...REMOTE_FLAGS,
  },
  async run({ follow, answers, session, kind, label, json, ...values }) {
    if (answers.length > 0 && !follow) throw new UsageError('--answers needs --follow')
    const remote = new Remote(values)
    const id = session === null ? null : await remote.find(session)
    const query = new URLSearchParams(answers.map((name): [string, string] => ['answers', name]))
    for (const [name, value] of Object.entries({ session: id, kind, label })) {
      if (value !== null) query.set(name, value)
    }
    if (follow) return followAsks(remote, query, json)
    let count = 0
    for await (const ask of remote.asks(query)) {
      if (json) printJson([ask])
      else console.log(`${count === 0 ? '' : '\n'}${askText(ask)}`)
      count += 1
    }
    if (count === 0 && !json) console.log('nothing waits for an answer')
  },
})

async function followAsks(remote: Remote, query: URLSearchParams, json: boolean): Promise<void> {
  const shown = new Set<string>()
  for await (const { event, data } of followStream(remote, `/v1/asks?${query.toString()}`, null)) {
    if (event === 'asks.listed') continue
    if (json) printJson([{ type: event, ...(JSON.parse(data) as object) }])
    else if (event === 'ask.opened') {
      const ask = JSON.parse(data) as OpenAskView
      // After a lost connection an ask may be sent again.
      if (!shown.has(askName(ask))) console.log(`${askText(ask)}\n`)
      shown.add(askName(ask))
    } else console.log(`${settledText(JSON.parse(data) as SettledAskView)}\n`)
  }
}

function askText(ask: OpenAskView): string {
  const { kind, deadline, session } = ask
  const left = `${durationText(deadline - systemClock.now())} left`
  const head = [askName(ask), kind, session.agent, left].map(printable).join('  ')
  return `${head}\n${describeAsk(ask, paintFor(process.stdout))}`
}

function settledText(settled: SettledAskView): string {
  const { outcome } = settled
  const answer = outcome === 'answered' ? `: ${JSON.stringify(settled.answer)}` : ''
  return printable(`${askName(settled)}  ${outcome.replaceAll('_', ' ')}${answer}`)
}

export const answer = defineCommand({
  name: 'answer',
  operands: {
    usage: 'ASK|KEY [OPTION…]',
    takes: 'an ASK (as holdfast asks shows it) or a KEY, and OPTIONs',
    min: 1,
    max: 33,
  },
  summary:
    'Answers an ask: by its name as holdfast asks lists it, or by the id or key of its session ' +
    'if only one waits there. Without an OPTION it shows the ask and prompts for the answer.',
  flags: {
    message: text('TEXT', 'words for the agent, beside the option'),
    text: text('TEXT', 'an answer in your own words, instead of an option'),
    input: text('JSON', 'other arguments for what is asked; needs the scope edit'),
    json: toggle('print the result as JSON'),
    ...REMOTE_FLAGS,
  },
  async run({ message, text: words, input, json, ...values }, [name = '', ...given]) {
    const remote = new Remote(values)
    const ask = await findAsk(remote, name)
    const value =
      given.length === 0 && words === null
        ? withMore(await prompted(ask), { message, input: objectOf(input) })
        : answerOf(ask, { given, message, words, input: objectOf(input) })
    if (value === undefined) return 1
    const path = `${sessionPath(ask.session.id)}/asks/${ask.id}`
    const body = await remote.json(path, 'POST', { answer: value })
    if (json) printJson([body])
    else say(`${printable(askName(ask))} is answered`)
  },
})

async function findAsk(remote: Remote, name: string): Promise<OpenAskView> {
  const [, session = name, id = null] = /^(.+)\/(a\d+)$/.exec(name) ?? []
  const isAsk = id === null && /^a\d+$/.test(name)
  const query = new URLSearchParams()
  if (!isAsk) query.set('session', await remote.find(session))
  const found: OpenAskView[] = []
  const wanted = isAsk ? name : id
  for await (const ask of remote.asks(query)) {
    if (wanted === null || ask.id === wanted) found.push(ask)
  }
  const [ask, ...others] = found
  if (ask === undefined) throw new Error(`nothing waits for an answer as ${name}`)
  if (others.length === 0) return ask
  throw new Error(`several asks wait: name one of ${found.map(askName).join(', ')}`)
}

type GivenAnswer = {
  readonly given: readonly string[]
  readonly message: string | null
  readonly words: string | null
  readonly input: object | null
}

/** In the form that says no more than was given. */
function answerOf(ask: OpenAskView, { given, words, ...more }: GivenAnswer): unknown {
  if (words !== null) {
    if (given.length > 0) throw new UsageError('--text is instead of an OPTION')
    return ask.options === null ? words : { text: words }
  }
  const chosen = given.map((option) => optionOf(ask, option))
  return withMore(chosen.length === 1 ? chosen[0] : chosen, more)
}

function optionOf(ask: OpenAskView, given: string): unknown {
  const option = readAnswer(ask, given)
  if (option !== undefined) return option
  const ids = (ask.options ?? []).map(({ id }) => printable(id)).join(', ')
  throw new UsageError(`${given} is not one of the options: ${ids}`)
}

function withMore(
  option: unknown,
  { message, input }: Pick<GivenAnswer, 'message' | 'input'>,
): unknown {
  if (option === undefined || (message === null && input === null)) return option
  return { option, ...(message === null ? {} : { message }), ...(input === null ? {} : { input }) }
}

function objectOf(json: string | null): object | null {
  const value = json === null ? null : objectIn(json)
  if (value !== null || json === null) return value
  throw new UsageError('--input must be a JSON object')
}

async function prompted(ask: OpenAskView): Promise<unknown> {
  const { stdin: input, stderr: output } = process
  if (!input.isTTY || !output.isTTY) {
    const ids = ask.options?.map(({ id }) => printable(id)).join(', ')
    throw new UsageError(`answer needs ${ids === undefined ? '--text' : `an OPTION: ${ids}`}`)
  }
  const onInterrupt = (): never => process.exit(130)
  const person = { input, output, onInterrupt, mayEdit: true }
  return askPerson(person, ask, new AbortController().signal)
}

type GrantRow = { readonly id: string; readonly label: string }

export const grants = defineCommand({
  name: 'grants',
  operands: ONE_SESSION,
  summary:
    'Lists what people have always allowed the agent of a session, or takes some of it back.',
  flags: {
    revoke: repeated('GRANT', 'take this back instead, by its id or label'),
    json: toggle('one JSON object per line, for programs'),
    ...REMOTE_FLAGS,
  },
  async run({ revoke, json, ...values }, [name = '']) {
    const remote = new Remote(values)
    const path = `${sessionPath(await remote.find(name))}/grants`
    const list = async () => (await remote.json<{ grants: readonly GrantRow[] }>(path)).grants
    const found = await list()
    const given = revoke.map((one) => grantOf(found, one))
    for (const { id, label } of given) {
      await remote.json(`${path}/${encodeURIComponent(id)}`, 'DELETE')
      if (!json) say(`not allowed any more: ${printable(label)}`)
    }
    if (json) return printJson(revoke.length === 0 ? found : await list())
    if (revoke.length > 0) return
    if (found.length === 0) return console.log('nothing is always allowed')
    printTable(found, { ID: ({ id }) => id, ALLOWED: ({ label }) => label })
  },
})

function grantOf(found: readonly GrantRow[], given: string): GrantRow {
  const [grant, ...others] = found.filter(({ id, label }) => id === given || label === given)
  if (grant === undefined) throw new Error(`nothing is always allowed as ${given}`)
  if (others.length === 0) return grant
  throw new Error(`several are called ${given}: name one of them by its id`)
}
