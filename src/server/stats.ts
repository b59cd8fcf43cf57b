/** The routes of what the server has measured, and of the nodes of its store. */
import { invalid, type NodeRow } from '../core/index.ts'
import { json, query, routes, type Route } from '../doors/route.ts'
import type { Exchange } from '../doors/exchange.ts'
import { orNull } from '../schema/contract.ts'
import { Type } from '../schema/typebox.ts'
import { VERSION } from '../wire/version.ts'
import type { Recorder } from './recorder.ts'

const count = Type.Integer()
const text = Type.String()
const ms = orNull(Type.Number(), { description: 'Milliseconds; null: there was nothing.' })
const Percentiles = Type.Object({ p50: ms, p95: ms, p99: ms })

const Stats = Type.Object({
  node: text,
  since: Type.Integer({ description: 'When it started.' }),
  minutes: Type.Array(
    Type.Object({
      at: Type.Integer({ description: 'When the minute began.' }),
      turns: Type.Object({
        ...{ started: count, done: count, failed: count },
        ...{ cancelled: count, interrupted: count },
      }),
      refused: Type.Integer({ description: 'Turns that were refused with 429.' }),
      asks: Type.Object({ opened: count, settled: count }),
      errors: Type.Integer({ description: 'HTTP answers with status 500 and above.' }),
      wait: Percentiles,
      duration: Percentiles,
    }),
    { description: 'The last 60 minutes, oldest first; the last one is not over.' },
  ),
  now: Type.Object({
    running: Type.Integer({ description: 'Turns that run.' }),
    queued: Type.Integer({ description: 'Turns that wait in queues.' }),
    waiting: Type.Integer({ description: 'Sessions whose turn waits for an answer to an ask.' }),
    asks: Type.Integer({ description: 'Asks that wait for an answer.' }),
    sessionsHeld: Type.Integer({ description: 'Sessions in memory.' }),
    attachments: Type.Integer({ description: 'Drivers, live or detached.' }),
    watchers: count,
    sockets: count,
    eventLoopDelayMs: Type.Number({
      description: 'The 99th percentile of the last minute or two.',
    }),
    rssBytes: count,
  }),
})

const NodeList = Type.Object({
  nodes: Type.Array(
    Type.Object({
      id: text,
      url: orNull(text, { description: 'Where other nodes reach it.' }),
      isSelf: Type.Boolean({ description: 'It is the node that answers.' }),
      isAlive: Type.Boolean({ description: 'Its lease goes on.' }),
      leaseUntil: orNull(count, { description: 'Null: it never ends.' }),
      sessions: orNull(count, { description: 'Open sessions that it owns; null: not counted.' }),
      forwards: orNull(count, {
        description: 'Requests and sockets that it has forwarded; null: only that node knows.',
      }),
      failovers: orNull(count, {
        description: 'Sessions that it has taken over; null: only that node knows.',
      }),
      startedAt: count,
      version: text,
    }),
  ),
})

const STATS_QUERY = query({
  node: Type.String({ description: 'The node whose figures are wanted; by default, any.' }),
})

export function statsRoutes(recorder: Recorder): readonly Route[] {
  return routes({
    'GET /v1/stats': {
      name: 'getStats',
      summary: 'What a node has measured in the last hour, and what it does now',
      operation: 'server.measure',
      query: STATS_QUERY,
      answers: { 200: json('Of one node.', Stats) },
      node: ({ search }) => STATS_QUERY.read(search).node ?? null,
      handle: (exchange) => {
        const { node } = exchange.context.holdfast.authority
        const wanted = STATS_QUERY.read(exchange.search).node ?? node
        if (wanted !== node) throw invalid('node', 'is no node that can be reached')
        exchange.reply(200, statsOf(exchange, recorder))
      },
    },
    'GET /v1/nodes': {
      name: 'listNodes',
      summary: 'The nodes that share the store',
      operation: 'server.measure',
      answers: { 200: json('All of them; one, where only one can be.', NodeList) },
      handle: async (exchange) => exchange.reply(200, { nodes: await nodesOf(exchange, recorder) }),
    },
  })
}

function statsOf({ context }: Exchange, recorder: Recorder) {
  const { load, heldCount, node } = context.holdfast.authority
  const { turns, sessions, attachments, watchers, asks } = load
  return {
    node,
    since: recorder.startedAt,
    minutes: recorder.minutes,
    now: {
      ...turns,
      waiting: sessions.waiting,
      asks,
      sessionsHeld: heldCount,
      attachments: attachments.live + attachments.detached,
      watchers,
      sockets: context.sockets(),
      eventLoopDelayMs: recorder.recentDelayMs,
      rssBytes: process.memoryUsage.rss(),
    },
  }
}

async function nodesOf({ context }: Exchange, { startedAt }: Recorder) {
  const { store, node, clock, counters } = context.holdfast.authority
  const forwards = context.forwards ?? {}
  const own = {
    forwards: (forwards['passedOn'] ?? 0) + (forwards['sockets'] ?? 0),
    failovers: counters.sessionsTakenOver,
  }
  if (store.cluster === undefined) {
    const alone = { id: node, url: null, isSelf: true, isAlive: true, leaseUntil: null }
    return [{ ...alone, sessions: null, ...own, startedAt, version: VERSION }]
  }
  const now = clock.now()
  return (await store.cluster.nodes()).map(({ name, leaseMs, ...row }: NodeRow) => ({
    id: name,
    url: row.url,
    isSelf: name === node,
    isAlive: leaseMs > 0,
    leaseUntil: Math.round(now + leaseMs),
    sessions: row.sessions,
    ...(name === node ? own : { forwards: null, failovers: null }),
    startedAt: row.startedAt,
    version: row.version,
  }))
}
