/** One ask by a link, as a notification has it: what is asked, and its answer. Nothing else. */
import { useEffect, useState } from 'preact/hooks'
import { ApiError, HttpApi } from '../../client/http-api.ts'
import { AskCard, type OpenAsk } from '../asks/ask-card.tsx'
import { AskDetailView } from '../asks/ask-detail.tsx'
import { recall } from '../shared/memory.ts'
import { address } from '../shared/router.ts'
import { shownText } from '../shared/shown-text.ts'

/** As `GET /v1/ask` has it. */
type LinkedAsk = {
  readonly ask: OpenAsk & { readonly people?: number; readonly approvals?: number }
  readonly state: 'open' | 'settled'
  readonly outcome: { readonly outcome: string; readonly answer?: unknown } | null
}

class AskLinkApi extends HttpApi {
  constructor() {
    super(new URL('.', location.href).href.replace(/\/$/, ''))
  }

  /** That of the link, whatever else this tab has. */
  override get token(): string | null {
    return recall('ask-link')
  }
}

const api = new AskLinkApi()

export function AskLinkView() {
  const [linked, setLinked] = useState<LinkedAsk | null>(null)
  const [problem, setProblem] = useState('')
  const load = async (): Promise<void> => {
    try {
      setLinked(await api.json<LinkedAsk>('/v1/ask'))
    } catch (error) {
      setProblem(problemOf(error as Error))
    }
  }
  // Another link may be opened in the same tab.
  const opened = address.value
  useEffect(() => {
    setLinked(null)
    setProblem('')
    void load()
  }, [opened])
  const answer = async (value: unknown): Promise<void> => {
    try {
      await api.json('/v1/ask', 'POST', { answer: value })
    } catch (error) {
      // Another person was faster: what came of it is shown.
      if (!(error instanceof ApiError && error.code === 'ask_settled')) throw error
    }
    await load()
  }
  if (linked === null) {
    return (
      <p role={problem === '' ? undefined : 'alert'}>{problem === '' ? 'Loading…' : problem}</p>
    )
  }
  const { ask, state } = linked
  if (state === 'settled') return <Settled linked={linked} />
  const { people = 1, approvals = 0 } = ask
  return (
    <AskCard ask={ask} session="link" answer={answer} mayAnswer mayEdit={false}>
      {people > 1 ? (
        <p class="muted">
          {approvals} of {people} people have allowed this.
        </p>
      ) : null}
    </AskCard>
  )
}

function Settled({ linked: { ask, outcome } }: { readonly linked: LinkedAsk }) {
  return (
    <section class="ask" data-ask={ask.id} aria-label="Question, settled">
      <p class="ask-question">{shownText(ask.question)}</p>
      {ask.detail === undefined ? null : <AskDetailView detail={ask.detail} />}
      <p role="status">{shownText(outcomeWords(ask, outcome))}</p>
    </section>
  )
}

function outcomeWords({ options }: OpenAsk, outcome: LinkedAsk['outcome']): string {
  if (outcome === null) return 'This is settled.'
  if (outcome.outcome !== 'answered')
    return `This is over: ${outcome.outcome.replaceAll('_', ' ')}.`
  const { answer } = outcome
  const chosen = typeof answer === 'object' && answer !== null && 'option' in answer
  const id = chosen ? answer.option : answer
  const label = options?.find((option) => option.id === id)?.label
  return label === undefined ? 'This is answered.' : `Answered: ${label}`
}

function problemOf(error: Error): string {
  if (!(error instanceof ApiError)) return error.message
  if (error.code === 'unauthorized') return 'This link is not good, or no longer.'
  return error.code === 'ask_unknown' ? 'This question is gone.' : error.message
}
