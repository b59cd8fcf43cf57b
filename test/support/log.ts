/** What every log must be, whatever happened to the server that wrote it. */
export type LoggedEvent = {
  readonly seq: number
  readonly type: string
  readonly turn?: string
  readonly ask?: string
  readonly keys?: readonly { readonly key: string }[]
  readonly text?: string
  readonly input?: unknown
}

const ENDS = ['turn.done', 'turn.failed', 'turn.cancelled', 'turn.interrupted', 'turn.expired']

/**
 * The invariants that one log can break by itself: I2 one turn at a time, I3 one end for each, I4 no gap
 * and nothing after the end, I8 one outcome for each ask, I11 one turn for each request key.
 * `atRest`: nothing may be left running or waiting.
 */
export function brokenInLog(events: readonly LoggedEvent[], atRest: boolean): string[] {
  const broken: string[] = []
  const turns = new Map<string, 'queued' | 'running' | 'over'>()
  const asks = new Map<string, 'open' | 'settled'>()
  const keys = new Map<string, string>()
  let running: string | null = null
  events.forEach((event, index) => {
    const { seq, type, turn = '', ask = '' } = event
    if (seq !== index + 1) broken.push(`I4: seq ${seq} stands at place ${index + 1}`)
    if (index > 0 && events[index - 1]?.type === 'session.closed')
      broken.push(`I4: ${seq} after the end`)
    if (type === 'turn.queued') turns.set(turn, 'queued')
    if (type === 'turn.started') {
      if (running !== null) broken.push(`I2: ${turn} started while ${running} ran`)
      if (turns.get(turn) === 'running' || turns.get(turn) === 'over') {
        broken.push(`I3: ${turn} started twice`)
      }
      running = turn
      turns.set(turn, 'running')
    }
    for (const { key } of event.keys ?? []) {
      if (keys.has(key) && keys.get(key) !== turn) broken.push(`I11: key ${key} has two turns`)
      keys.set(key, turn)
    }
    if (type === 'message.added' && running !== turn) broken.push(`I3: ${turn} spoke out of turn`)
    if (ENDS.includes(type)) {
      if (!turns.has(turn) || turns.get(turn) === 'over') broken.push(`I3: ${turn} ended twice`)
      if (running === turn) running = null
      turns.set(turn, 'over')
    }
    if (type === 'ask.opened') asks.set(ask, 'open')
    if (type === 'ask.settled') {
      if (asks.get(ask) !== 'open') broken.push(`I8: ask ${ask} settled twice`)
      asks.set(ask, 'settled')
    }
  })
  if (!atRest) return broken
  for (const [turn, state] of turns)
    if (state !== 'over') broken.push(`I3: ${turn} is still ${state}`)
  for (const [ask, state] of asks) if (state === 'open') broken.push(`I8: ask ${ask} is still open`)
  return broken
}
