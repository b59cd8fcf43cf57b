/** The small parts that views are made of. */
import type { ComponentChildren } from 'preact'
import { useRef, useState } from 'preact/hooks'
import { age, fullTime, now } from './moment.ts'
import { shownName } from './shown-text.ts'

type ButtonProps = {
  readonly onClick?: () => void
  readonly kind?: 'primary' | 'plain' | 'danger'
  readonly type?: 'button' | 'submit'
  readonly disabled?: boolean
  readonly title?: string
  readonly label?: string
  readonly class?: string
  readonly children: ComponentChildren
  readonly [data: `data-${string}`]: string | undefined
}

export function Button({ kind, type = 'button', label, children, ...rest }: ButtonProps) {
  const classes = ['button', kind, rest.class].filter(Boolean).join(' ')
  return (
    <button {...rest} type={type} class={classes} aria-label={label}>
      {children}
    </button>
  )
}

export function Tag({
  children,
  tone,
  title,
}: {
  readonly children: ComponentChildren
  readonly tone?: string
  readonly title?: string
}) {
  return (
    <span class="tag" data-tone={tone} title={title}>
      {children}
    </span>
  )
}

const STATUS_WORDS: Readonly<Record<string, string>> = {
  waiting: 'waiting for an answer',
}

/** What a session or a turn is doing: a dot and a word, since a colour alone says nothing. */
export function Status({
  status,
  children,
}: {
  readonly status: string
  readonly children?: ComponentChildren
}) {
  return (
    <span class="status" data-status={status}>
      <span class="dot" aria-hidden="true" />
      <span class="word">{children ?? STATUS_WORDS[status] ?? status}</span>
    </span>
  )
}

/** How long ago, in words that keep up; the exact time on hovering. */
export function Ago({ at }: { readonly at: number }) {
  return (
    <time dateTime={new Date(at).toISOString()} title={fullTime(at)}>
      {age(now.value - at)}
    </time>
  )
}

export function Empty({ children }: { readonly children: ComponentChildren }) {
  return <p class="empty">{children}</p>
}

/** Said aloud by screen readers when it appears. */
export function Problem({ children }: { readonly children: ComponentChildren }) {
  return (
    <p class="problem" role="alert">
      {children}
    </p>
  )
}

export function Field({
  name,
  hint,
  children,
}: {
  readonly name: string
  readonly hint?: string
  readonly children: ComponentChildren
}) {
  return (
    <label class="field">
      <span class="field-name">{name}</span>
      {children}
      {hint === undefined ? null : <span class="field-hint">{hint}</span>}
    </label>
  )
}

type SelectProps = {
  readonly name?: string
  readonly disabled?: boolean
  readonly 'aria-label'?: string
  readonly options: readonly (readonly [value: string, label: string])[]
  readonly value: string
  readonly onChange: (value: string) => void
}

export function Select({ options, onChange, ...rest }: SelectProps) {
  return (
    <select {...rest} onChange={(event) => onChange(event.currentTarget.value)}>
      {options.map(([value, label]) => (
        <option key={value} value={value}>
          {label}
        </option>
      ))}
    </select>
  )
}

const COPIED_MS = 1_500

/** Copies a text, and says that it did. */
export function CopyButton({
  text,
  children,
  label,
  kind = 'plain',
}: {
  readonly text: string | (() => string)
  readonly children: ComponentChildren
  readonly label?: string
  readonly kind?: 'plain' | 'primary'
}) {
  const [state, setState] = useState<'ready' | 'copied' | 'failed'>('ready')
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined)
  const copy = (): void => {
    const settle = (next: 'copied' | 'failed'): void => {
      setState(next)
      clearTimeout(timer.current)
      timer.current = setTimeout(() => setState('ready'), COPIED_MS)
    }
    copyText(typeof text === 'string' ? text : text()).then(
      () => settle('copied'),
      (_error: unknown) => settle('failed'),
    )
  }
  const words = { ready: children, copied: 'Copied', failed: 'Not copied' }[state]
  return (
    <Button kind={kind} label={state === 'ready' ? label : undefined} onClick={copy} class="copy">
      {words}
    </Button>
  )
}

/** Without `navigator.clipboard`, which a page without TLS on another host does not have. */
async function copyText(text: string): Promise<void> {
  if (navigator.clipboard !== undefined) return navigator.clipboard.writeText(text)
  throw new Error('this page may not write to the clipboard')
}

/** Key and id of a session as its name. */
export function SessionName({ id, name }: { readonly id: string; readonly name: string | null }) {
  if (name === null) return <span class="mono unnamed">{shownName(id)}</span>
  return <bdi class="session-name">{shownName(name)}</bdi>
}

export function Labels({ labels }: { readonly labels: Readonly<Record<string, string>> }) {
  return (
    <>
      {Object.entries(labels).map(([name, value]) => (
        <span class="label" key={name} title={shownName(`${name}: ${value}`)}>
          <span class="label-name">{shownName(name)}</span>
          {value === '' ? null : <bdi>{shownName(value)}</bdi>}
        </span>
      ))}
    </>
  )
}
