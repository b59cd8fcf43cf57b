/** A tool call: what it does on one line, and its input, change and output when it is opened. */
import { useState } from 'preact/hooks'
import type { ToolCall } from '../../../wire/tool-calls.ts'
import { toolTitle } from '../../../wire/tool-title.ts'
import { CodeBlock, Value } from '../../shared/code-block.tsx'
import { Diff } from '../../shared/diff.tsx'
import { duration, now } from '../../shared/moment.ts'
import { shownName, shownText } from '../../shared/shown-text.ts'

type ToolCardProps = {
  readonly call: ToolCall
  readonly startedAt: number
  readonly endedAt: number | null
  readonly isRunning: boolean
}

export function ToolCard({ call, startedAt, endedAt, isRunning }: ToolCardProps) {
  const { kind = 'other', status = 'pending', diff, locations, input, output } = call
  const [isOpen, setOpen] = useState(false)
  // A change is what a reader looks for: it is shown without a click.
  const hasDiff = Array.isArray(diff) && diff.length > 0
  return (
    <div class="tool note" data-status={status} data-kind={kind}>
      <details
        open={isOpen}
        onToggle={(event) => setOpen(event.currentTarget.open)}
        aria-label={`Tool call: ${shownName(toolTitle(call))}`}
      >
        <summary>
          <span class="tool-kind">{shownName(kind)}</span>
          <span class="tool-title mono">{shownText(toolTitle(call))}</span>
          <span class="tool-state">
            {shownName(status)}
            <ToolTime startedAt={startedAt} endedAt={endedAt} isRunning={isRunning} />
          </span>
        </summary>
        {isOpen ? (
          <div class="tool-body">
            {locations?.map(({ path, line }, index) => (
              <p class="fact mono" key={index}>
                {shownName(line === undefined ? path : `${path}:${line}`)}
              </p>
            ))}
            <Section name="Input" value={input} />
            <Section name="Output" value={output} />
          </div>
        ) : null}
      </details>
      {hasDiff ? diff.map((change, index) => <Diff key={index} change={change} />) : null}
    </div>
  )
}

function ToolTime({
  startedAt,
  endedAt,
  isRunning,
}: {
  readonly startedAt: number
  readonly endedAt: number | null
  readonly isRunning: boolean
}) {
  if (endedAt === null && !isRunning) return null
  const ms = (endedAt ?? Math.max(startedAt, now.value)) - startedAt
  return <span class="muted"> · {duration(ms)}</span>
}

function Section({ name, value }: { readonly name: string; readonly value: unknown }) {
  if (value === undefined || value === null || value === '') return null
  const command = name === 'Input' ? commandOf(value) : null
  return (
    <section class="tool-section">
      <h4>{name}</h4>
      {command === null ? (
        <Value value={value} label={name} />
      ) : (
        <CodeBlock text={command} language="sh" label="Command" />
      )}
    </section>
  )
}

/** The command, if the arguments are nothing else. */
function commandOf(input: unknown): string | null {
  if (typeof input !== 'object' || input === null) return null
  const { command, description: _description, ...others } = input as Record<string, unknown>
  return typeof command === 'string' && Object.keys(others).length === 0 ? command : null
}
