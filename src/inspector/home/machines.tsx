/** The nodes and browsers in a line each, if there are any to speak of. */
import { BROWSERS_MS, bytes, readBrowsers } from '../browsers/browser-list.ts'
import { useNodes } from '../nodes/node-list.ts'
import { plural } from '../shared/moment.ts'
import { Tag } from '../shared/parts.tsx'
import { usePolled } from '../shared/polled.ts'
import { href } from '../shared/router.ts'
import { shownName } from '../shared/shown-text.ts'

export function Machines() {
  const nodes = useNodes() ?? []
  const { value } = usePolled(() => readBrowsers(), BROWSERS_MS)
  const browsers = value?.browsers ?? []
  return (
    <>
      {nodes.length < 2 ? null : (
        <Lines title="Nodes" name="nodes">
          {nodes.map(({ id, isAlive, sessions }) => (
            <li key={id}>
              <span class="mono">{shownName(id)}</span>
              {isAlive ? <Tag tone="good">alive</Tag> : <Tag tone="bad">lease over</Tag>}
              <span class="muted">{sessions === null ? '' : plural(sessions, 'open session')}</span>
            </li>
          ))}
        </Lines>
      )}
      {browsers.length === 0 ? null : (
        <Lines title="Browsers" name="browsers">
          {browsers.map(({ name, startedAt, sessions, pages, memoryBytes, health }) => (
            <li key={`${name} ${startedAt}`}>
              <span>{shownName(name)}</span>
              {health === 'good' ? null : <Tag tone="bad">does not answer</Tag>}
              <span class="muted">
                {plural(sessions, 'session')} · {plural(pages, 'page')}
                {memoryBytes === null ? '' : ` · ${bytes(memoryBytes)}`}
              </span>
            </li>
          ))}
        </Lines>
      )}
    </>
  )
}

type LinesProps = { readonly title: string; readonly name: string; readonly children: unknown }

function Lines({ title, name, children }: LinesProps) {
  return (
    <section class="home-rows">
      <h2>
        <a href={href([name])}>{title}</a>
      </h2>
      <ul class="lines">{children as string}</ul>
    </section>
  )
}
