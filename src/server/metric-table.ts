/**
 * All metrics of `/metrics`, by their names. Nothing is printed that is not here, and
 * `docs/reference/metrics.md` has this table. No label names a session or a principal: their number
 * is open.
 */
export type MetricRow = {
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly help: string
  readonly labels?: readonly string[]
  /** When it is there; without it, always. */
  readonly only?: string
}

const NODES = 'several nodes'
const BROWSERS = 'browsers'
const WEBHOOKS = 'webhooks'

function counter(help: string, labels: readonly string[] = [], only?: string): MetricRow {
  return { type: 'counter', help, labels, ...(only !== undefined && { only }) }
}

function gauge(help: string, labels: readonly string[] = [], only?: string): MetricRow {
  return { type: 'gauge', help, labels, ...(only !== undefined && { only }) }
}

function histogram(help: string, labels: readonly string[] = [], only?: string): MetricRow {
  return { type: 'histogram', help, labels, ...(only !== undefined && { only }) }
}

const TABLE = {
  holdfast_turns_started_total: counter('Turns that started'),
  holdfast_turns_ended_total: counter('Turns that ended, in any way'),
  holdfast_turns_done_total: counter('Turns that ended well'),
  holdfast_turns_failed_total: counter('Turns that failed'),
  holdfast_turns_cancelled_total: counter('Turns that were cancelled, while they waited too'),
  holdfast_turns_interrupted_total: counter('Turns that a crash or a stop of the server ended'),
  holdfast_turns_expired_total: counter('Turns that waited too long'),
  holdfast_turns_refused_total: counter('Requests for a turn that were refused with 429'),
  holdfast_quota_refusals_total: counter('Requests refused because a quota was reached'),
  holdfast_budget_refusals_total: counter('Requests refused because a budget was used up'),
  holdfast_budget_ends_total: counter('Turns that were ended because a budget was used up'),
  holdfast_queue_wait_seconds: histogram('From the request of a turn to its start'),
  holdfast_first_output_seconds: histogram(
    'From the start of a turn to the first text of its answer',
    ['agent'],
  ),
  holdfast_turn_duration_seconds: histogram('From the start of a turn to its end', [
    'agent',
    'end',
  ]),
  holdfast_turns: gauge('Turns that run, or wait in a queue', ['state']),
  holdfast_tokens_total: counter(
    'Tokens that agents have reported; cached ones are among the input',
    ['agent', 'kind'],
  ),
  holdfast_cost_usd_total: counter('Cost that agents have reported, in US dollars', ['agent']),
  holdfast_asks_opened_total: counter('Asks that were opened'),
  holdfast_asks_settled_total: counter('Asks that were settled'),
  holdfast_ask_duration_seconds: histogram('From an ask to its outcome', ['outcome']),
  holdfast_asks: gauge('Asks that wait for an answer'),
  holdfast_sessions_created_total: counter('Sessions that were created'),
  holdfast_sessions_closed_total: counter('Sessions that were closed'),
  holdfast_sessions_retired_total: counter('Closed sessions that retention has erased'),
  holdfast_sessions_archived_total: counter('Sessions that went into the archive before'),
  holdfast_sessions_loaded_total: counter('Sessions that were loaded into memory'),
  holdfast_sessions_evicted_total: counter('Idle sessions that were let go to save memory'),
  holdfast_sessions_lost_total: counter(
    'Sessions let go because the store refused or failed an append',
  ),
  holdfast_sessions_held: gauge('Sessions held in memory'),
  holdfast_sessions: gauge('Sessions held in memory, by what they do', ['state']),
  holdfast_attachments: gauge('Clients that take part in held sessions', ['state']),
  holdfast_watchers: gauge('Clients that watch held sessions'),
  holdfast_sockets: gauge('Sockets that are open'),
  holdfast_resume_duration_seconds: histogram(
    'From the hello of a client that comes back to its welcome',
  ),
  holdfast_outputs_late_total: counter('Outputs of agents after the end of their turn: dropped'),
  holdfast_activities_dropped_total: counter('Activities of turns beyond the limit'),
  holdfast_commits_total: counter('Commits to the store'),
  holdfast_appends_total: counter('Appends to logs; many may share a commit'),
  holdfast_events_total: counter('Events that were recorded'),
  holdfast_commit_duration_seconds: histogram('How long commits took'),
  holdfast_commit_appends: histogram('Appends in one commit'),
  holdfast_http_answers_total: counter('HTTP answers that were begun', ['status']),
  holdfast_event_loop_lag_seconds: histogram(
    'How late the event loop was, looked at 50 times a second',
  ),
  holdfast_event_loop_delay_seconds: gauge('The same since the last scrape', ['quantile']),
  holdfast_draining: gauge('1 while the server is about to stop'),
  holdfast_build_info: gauge('1; the labels say which version this is', ['version', 'node']),
  holdfast_sessions_owned: gauge('Open sessions that this node owns, held or not', [], NODES),
  holdfast_sessions_taken_over_total: counter('Sessions taken over from nodes whose lease ended'),
  holdfast_leases_lost_total: counter('How often this node lost its lease and let go of all'),
  holdfast_lease_age_seconds: gauge('Since the lease was last renewed', [], NODES),
  holdfast_lease_remaining_seconds: gauge(
    'Until this node stops by itself unless the lease is renewed; 0: it has',
    [],
    NODES,
  ),
  holdfast_forwards_total: counter(
    'Requests and sockets that came to the wrong node, by what became of them',
    ['outcome'],
    NODES,
  ),
  holdfast_forward_duration_seconds: histogram(
    'From a request to another node to the head of its answer',
    [],
    NODES,
  ),
  holdfast_browsers: gauge('Browsers that run', [], BROWSERS),
  holdfast_browser_sessions: gauge('Browser sessions that have a part of one', [], BROWSERS),
  holdfast_browser_clients: gauge('Clients of browsers, connected or waited for', [], BROWSERS),
  holdfast_browser_pages: gauge('Pages that are open', [], BROWSERS),
  holdfast_cdp_sessions: gauge('CDP sessions of clients with browsers and targets', [], BROWSERS),
  holdfast_cdp_commands_waiting: gauge('CDP commands that have no reply yet', [], BROWSERS),
  holdfast_webhook_attempts_total: counter(
    'Attempts to deliver an event to a webhook, by what became of them',
    ['webhook', 'outcome'],
    WEBHOOKS,
  ),
  holdfast_webhook_failing_seconds: gauge(
    'For how long a webhook has failed; 0: it has not',
    ['webhook'],
    WEBHOOKS,
  ),
  holdfast_webhook_paused: gauge('1: the webhook is paused', ['webhook'], WEBHOOKS),
  process_resident_memory_bytes: gauge('Resident memory'),
  process_uptime_seconds: gauge('How long the process has run'),
  nodejs_heap_size_used_bytes: gauge('JavaScript heap in use'),
} as const satisfies Readonly<Record<string, MetricRow>>

export type MetricName = keyof typeof TABLE
export const METRICS: Readonly<Record<MetricName, MetricRow>> = TABLE
