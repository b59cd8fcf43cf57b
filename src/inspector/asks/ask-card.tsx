/** An open ask: what it is about, and its options. The first answer of any client counts. */
import type { ComponentChildren } from 'preact'
import { useRef, useState } from 'preact/hooks'
import type { Ask } from '../../client/index.ts'
import { objectIn } from '../../wire/answers.ts'
import { printableJson } from '../../wire/printable.ts'
import { useDraft } from '../shared/memory.ts'
import { duration, now } from '../shared/moment.ts'
import { Button } from '../shared/parts.tsx'
import { shownText } from '../shared/shown-text.ts'
import { AskDetailView } from './ask-detail.tsx'

export type OpenAsk = Omit<Ask, 'turn'>

type AskCardProps = {
  readonly ask: OpenAsk
  /** The session that asks, so that what is typed is kept. */
  readonly session: string
  readonly answer: (value: unknown) => Promise<void>
  /** False: this page may not answer. */
  readonly mayAnswer: boolean
  readonly mayEdit: boolean
  readonly children?: ComponentChildren
}

export function AskCard({ ask, session, answer, mayAnswer, mayEdit, children }: AskCardProps) {
  const { id, kind, question, detail, deadline, accepts = [] } = ask
  const [isSending, setSending] = useState(false)
  const [problem, setProblem] = useState('')
  const name = `ask:${session}:${id}`
  const send = (value: unknown): void => {
    setSending(true)
    setProblem('')
    answer(value).catch((error: Error) => {
      setSending(false)
      setProblem(error.message)
    })
  }
  const isEdited = mayEdit && accepts.includes('input') && detail?.input !== undefined
  const left = `${duration(Math.max(0, deadline - now.value))} left`
  return (
    <section class="ask" data-ask={id} data-row tabIndex={-1} aria-label={`Question, ${kind}`}>
      {children}
      <p class="ask-question">
        <span class="ask-words">{shownText(question)}</span>{' '}
        <span class="muted" data-left aria-live="off">
          {left}
        </span>{' '}
        <span class="problem" role="alert">
          {problem}
        </span>
      </p>
      {detail === undefined ? null : <AskDetailView detail={detail} />}
      {mayAnswer ? (
        <Answers
          ask={ask}
          name={name}
          send={send}
          fail={setProblem}
          isEdited={isEdited}
          isSending={isSending}
        />
      ) : (
        <p class="muted">You may see this ask, and not answer it.</p>
      )}
    </section>
  )
}

type AnswersProps = {
  readonly ask: OpenAsk
  readonly name: string
  readonly send: (value: unknown) => void
  readonly fail: (problem: string) => void
  readonly isEdited: boolean
  readonly isSending: boolean
}

/** Every form in which the ask takes an answer. Without options it takes any text. */
function Answers(props: AnswersProps) {
  const { ask, name, send, isSending } = props
  const { options, accepts = [] } = ask
  if (options === null) {
    return <TextAnswer label="Answer" name={name} send={send} isSending={isSending} />
  }
  const own = (text: string): void => send({ text })
  return (
    <>
      {accepts.includes('several') ? <SeveralAnswers {...props} /> : <OneAnswer {...props} />}
      {accepts.includes('text') ? (
        <TextAnswer label="Your own words" name={name} send={own} isSending={isSending} />
      ) : null}
    </>
  )
}

function OneAnswer({ ask, name, send, fail, isEdited, isSending }: AnswersProps) {
  const message = useDraft(`${name}:message`)
  const edited = useRef<HTMLTextAreaElement>(null)
  const asked = editedText(ask.detail?.input)
  // Some agents name first what allows more than is asked.
  const once = ask.options?.find(({ means, id }) => means === 'allow' || id === 'allow')
  const suggested = once ?? ask.options?.[0]
  const choose = (id: string): void => {
    const words = message.value.trim()
    const input = edited.current === null ? undefined : changedInput(edited.current.value, asked)
    if (input === null) return fail('The arguments must be a JSON object.')
    const more = { ...(words && { message: words }), ...(input && { input }) }
    send(Object.keys(more).length === 0 ? id : { option: id, ...more })
  }
  return (
    <>
      {isEdited ? (
        <details class="edit">
          <summary>Change the arguments</summary>
          <textarea ref={edited} name="input" rows={6} aria-label="Arguments as JSON">
            {asked}
          </textarea>
        </details>
      ) : null}
      {ask.accepts?.includes('message') === true ? (
        <input
          name="message"
          aria-label="Words for the agent"
          placeholder="Words for the agent"
          autocomplete="off"
          value={message.value}
          onInput={(event) => (message.value = event.currentTarget.value)}
        />
      ) : null}
      <div class="buttons">
        {ask.options?.map(({ id, label }) => (
          <Button
            key={id}
            kind={id === suggested?.id ? 'primary' : undefined}
            data-option={id}
            disabled={isSending}
            onClick={() => choose(id)}
          >
            {shownText(label)}
          </Button>
        ))}
      </div>
    </>
  )
}

/** The arguments of what is asked, to be changed. */
function editedText(input: unknown): string {
  const lines = (JSON.stringify(input, null, 2) ?? '').split('\n')
  return lines.map(printableJson).join('\n')
}

/** Undefined: they are as they were; null: they are no JSON object. */
function changedInput(text: string, asked: string): object | null | undefined {
  return text === asked ? undefined : objectIn(text)
}

function SeveralAnswers({ ask, send, isSending }: AnswersProps) {
  const chosen = useRef(new Set<string>())
  return (
    <form
      class="several"
      onSubmit={(event) => {
        event.preventDefault()
        send((ask.options ?? []).map(({ id }) => id).filter((id) => chosen.current.has(id)))
      }}
    >
      {ask.options?.map(({ id, label }) => (
        <label key={id} class="check">
          <input
            type="checkbox"
            value={id}
            onChange={({ currentTarget }) => {
              if (currentTarget.checked) chosen.current.add(id)
              else chosen.current.delete(id)
            }}
          />{' '}
          {shownText(label)}
        </label>
      ))}
      <Button type="submit" disabled={isSending}>
        Answer
      </Button>
    </form>
  )
}

type TextAnswerProps = {
  readonly label: string
  readonly name: string
  readonly send: (text: string) => void
  readonly isSending: boolean
}

function TextAnswer({ label, name, send, isSending }: TextAnswerProps) {
  const text = useDraft(`${name}:answer`)
  return (
    <form
      class="buttons text-answer"
      onSubmit={(event) => {
        event.preventDefault()
        send(text.value)
      }}
    >
      <input
        name="answer"
        aria-label={label}
        placeholder={label === 'Answer' ? undefined : label}
        autocomplete="off"
        value={text.value}
        onInput={(event) => (text.value = event.currentTarget.value)}
      />
      <Button type="submit" disabled={isSending}>
        Answer
      </Button>
    </form>
  )
}
