/** What the processes of the socket measurements tell each other, and what they send over sockets. */

/**
 * `each`: bare `ws`, a send per message. `together`: bare `ws`, a tick's messages encoded once and sent
 * as one. `socketio`: Socket.IO with connection state recovery. `holdfast`: the server as users start it.
 */
export const KINDS = ['each', 'together', 'socketio', 'holdfast'] as const
export type Kind = (typeof KINDS)[number]

export type ServerOrder =
  /** Produces so many messages, `burst` in a tick, as fast as it can; answers when it has begun. */
  | { readonly type: 'produce'; readonly messages: number; readonly burst: number }
  /** Produces messages at this rate until it is told to stop; answers with their number. */
  | { readonly type: 'flow'; readonly perSecond: number }
  | { readonly type: 'stop' }
  | { readonly type: 'usage' }

export type ServerUsage = { readonly cpuMicros: number; readonly rss: number }

export type ClientOrder =
  /** Opens so many sockets; answers when all are in. */
  | { readonly type: 'open'; readonly count: number }
  /** Answers, with the time, when every socket has message `n`. `counts`: most only look at numbers. */
  | { readonly type: 'await'; readonly n: number; readonly counts: boolean }
  /** Drops all at once; answers when all are back and have heard something that is newer. */
  | { readonly type: 'drop' }
  /** What was heard since `open`: messages missed and doubled, by all sockets together. */
  | { readonly type: 'judge' }

export type Judgement = { readonly lost: number; readonly doubled: number; readonly heard: number }

/** A message as all of them send it: its number and time, and something to carry. */
export type Message = { type: 'delta'; turn: string; n: number; text: string }

const LOAD = 'x'.repeat(64)

export function textOf(n: number): string {
  return `${n} ${nowMs()} ${LOAD}`
}

/** The same clock in every process of this machine. */
export function nowMs(): number {
  return Number(process.hrtime.bigint() / 1_000n) / 1_000
}
