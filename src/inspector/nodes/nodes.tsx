/** The nodes that share the store: their leases, sessions, forwards and failovers. */
import { may } from '../shared/me.ts'
import { duration, fullTime, now } from '../shared/moment.ts'
import { Ago, Tag } from '../shared/parts.tsx'
import { href } from '../shared/router.ts'
import { shownName } from '../shared/shown-text.ts'
import { useNodes, type NodeRow } from './node-list.ts'

export function Nodes() {
  const nodes = useNodes()
  return (
    <div class="page nodes">
      <header class="view-head">
        <h1>Nodes</h1>
        {nodes === null ? null : (
          <span class="muted" role="status">
            {nodes.filter(({ isAlive }) => isAlive).length} alive
          </span>
        )}
      </header>
      {may('admin') === false ? (
        <p class="muted">The list of nodes needs a token with the scope admin.</p>
      ) : null}
      {nodes === null ? null : <NodeTable nodes={nodes} />}
      {nodes?.length === 1 && nodes[0]?.leaseUntil === null ? (
        <p class="muted">
          A server on SQLite or in memory is the only node of its store, and its lease never ends.
          Several nodes share a PostgreSQL database.
        </p>
      ) : null}
    </div>
  )
}

/** "–" where only another node knows, or nothing is counted. */
const known = (count: number | null): string => (count === null ? '–' : count.toLocaleString())

function NodeTable({ nodes }: { readonly nodes: readonly NodeRow[] }) {
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label="Nodes">
      <table class="node-table">
        <thead>
          <tr>
            <th scope="col">Node</th>
            <th scope="col">Lease</th>
            <th scope="col" class="number">
              Sessions owned
            </th>
            <th scope="col" class="number" title="Requests and sockets that it sent to other nodes">
              Forwards
            </th>
            <th scope="col" class="number" title="Sessions that it took over from other nodes">
              Failovers
            </th>
            <th scope="col">Started</th>
            <th scope="col">Version</th>
          </tr>
        </thead>
        <tbody>
          {nodes.map((node) => (
            <Row key={node.id} node={node} />
          ))}
        </tbody>
      </table>
      <p class="muted small">
        Forwards and failovers are counted by each node itself: ask it for its own.
      </p>
    </div>
  )
}

function Row({ node }: { readonly node: NodeRow }) {
  const { id, url, isSelf, sessions, forwards, failovers, startedAt, version } = node
  return (
    <tr data-node={id}>
      <th scope="row">
        <a class="mono" href={href([''], { node: isSelf ? undefined : id })}>
          {shownName(id)}
        </a>{' '}
        {isSelf ? <Tag>this one</Tag> : null}
        {url === null ? null : <div class="muted small">{shownName(url)}</div>}
      </th>
      <td>
        <Lease node={node} />
      </td>
      <td class="number">{known(sessions)}</td>
      <td class="number">{known(forwards)}</td>
      <td class="number">{known(failovers)}</td>
      <td>
        <Ago at={startedAt} />
      </td>
      <td>{shownName(version)}</td>
    </tr>
  )
}

function Lease({ node: { isAlive, leaseUntil } }: { readonly node: NodeRow }) {
  if (leaseUntil === null) return <Tag tone="good">never ends</Tag>
  const left = leaseUntil - now.value
  return (
    <span title={fullTime(leaseUntil)}>
      {isAlive ? <Tag tone="good">alive</Tag> : <Tag tone="bad">over</Tag>}{' '}
      <span class="muted small">
        {isAlive ? `${duration(Math.max(0, left))} left` : `for ${duration(Math.max(0, -left))}`}
      </span>
    </span>
  )
}
