/**
 * Held connections: every message arrives once and in order, both ways, over any number of sockets.
 * One whose connection has ended has a beginning of them; a live one has all.
 */
import { checkAttachments } from '../check-life.ts'
import { checkLogs, checkStore } from '../check-log.ts'
import { checkRest, type Violation } from '../checker.ts'
import { gather, grouped } from '../facts.ts'
import type { History } from '../history.ts'

export function checkHeld(history: History): readonly Violation[] {
  const facts = gather(history)
  return [
    ...checkStore(facts),
    ...checkLogs(facts),
    ...checkAttachments(facts),
    ...checkRest(facts),
    ...checkMessages(history),
    ...checkLeft(history),
  ]
}

function* checkMessages(history: History): Generator<Violation> {
  const taken = grouped(history.of('held.taken'), ({ attachment }) => attachment)
  for (const [attachment, messages] of taken) {
    yield* checkRow(`the browser, from ${attachment},`, messages, ({ client }) => client)
  }
  const told = grouped(history.of('held.told'), ({ client }) => client)
  for (const [client, messages] of told) {
    yield* checkRow(client, messages, ({ attachment }) => attachment)
  }
}

/** 1, 2, 3 and so on, all from one sender. */
function* checkRow<Message extends { readonly n: number }>(
  who: string,
  messages: readonly Message[],
  senderOf: (message: Message) => string,
): Generator<Violation> {
  const senders = new Set(messages.map(senderOf))
  if (senders.size > 1) {
    yield { invariant: 'I7', message: `${who} got messages of ${[...senders].join(' and ')}` }
  }
  const wrong = messages.findIndex(({ n }, index) => n !== index + 1)
  if (wrong === -1) return
  const message = `${who} got message ${messages[wrong]?.n} after ${wrong}`
  yield { invariant: 'I4', message }
}

function* checkLeft(history: History): Generator<Violation> {
  for (const { client, timers, sockets } of history.of('held.over')) {
    if (timers + sockets === 0) continue
    const message = `${client} is over and still has ${timers} timers and ${sockets} sockets`
    yield { invariant: 'I9', message }
  }
  for (const { node, timers, clients } of history.of('held.quiet')) {
    // The lease (twice), the sweep and the look for silence go on.
    if (timers <= 4 && clients === 0) continue
    const message = `all programs are gone and ${node} has ${timers} timers and ${clients} clients`
    yield { invariant: 'I9', message }
  }
  for (const { link, text } of history.of('wire.late')) {
    yield { invariant: 'I9', message: `link ${link} was sent ${text} after its end` }
  }
}
