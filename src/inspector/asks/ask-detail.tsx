/** What an ask is about: the command, the diff, the URL, the files, the arguments. */
import type { Ask } from '../../client/index.ts'
import { Diff } from '../shared/diff.tsx'
import { shownText } from '../shared/shown-text.ts'

type Detail = NonNullable<Ask['detail']>

export function AskDetailView({ detail }: { readonly detail: Detail }) {
  const { tool, kind, command, cwd, url, paths, diff, plan, reason, input, truncated } = detail
  const name = tool ?? kind
  const isShown = [command, url, diff, plan].some((part) => part !== undefined)
  return (
    <div class="detail">
      <div class="facts-line">
        <Fact name="Tool" text={name} />
        <Fact name="In" text={cwd} />
        <Fact name="Reason" text={reason} />
      </div>
      <Block name="Command" text={command} />
      <Fact name="URL" text={url} />
      {diff === undefined ? <Block name="Files" text={paths?.join('\n')} /> : null}
      <Block name="Plan" text={plan} />
      {diff?.map((change, index) => (
        <Diff key={index} change={change} />
      ))}
      {isShown || input === undefined ? null : (
        <Block name="Arguments" text={JSON.stringify(input, null, 2)} />
      )}
      {truncated === true ? <p class="muted">Shortened: the whole is too large.</p> : null}
    </div>
  )
}

function Fact({ name, text }: { readonly name: string; readonly text: string | undefined }) {
  if (text === undefined || text === '') return null
  return (
    <p class="fact">
      <span class="muted">{name}</span> {shownText(text)}
    </p>
  )
}

function Block({ name, text }: { readonly name: string; readonly text: string | undefined }) {
  if (text === undefined || text === '') return null
  return (
    <pre aria-label={name} tabIndex={0}>
      {shownText(text)}
    </pre>
  )
}
