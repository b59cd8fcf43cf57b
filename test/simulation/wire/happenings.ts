/** What is recorded of a world with sockets in it, besides what happens to its node and store. */
import type { Place } from '../history.ts'

export type WireHappening =
  /** A socket reached the server: `by` is the page, or the thief, that opened it. */
  | {
      readonly type: 'wire.opened'
      readonly link: number
      readonly by: string
      readonly node: string
    }
  /** The server took a message from it. */
  | { readonly type: 'wire.heard'; readonly link: number; readonly text: string }
  /** The server sent a message into it. */
  | { readonly type: 'wire.said'; readonly link: number; readonly text: string }
  /** The server is done with it, because it closed it or because it noticed its end. */
  | { readonly type: 'wire.ended'; readonly link: number; readonly how: string }
  /** The server sent something into a socket that it had closed. */
  | { readonly type: 'wire.late'; readonly link: number; readonly text: string }
  /** From now on what it carries may be late, or lost. */
  | { readonly type: 'wire.mishap'; readonly link: number; readonly what: string }
  /** The gatekeeper was told of somebody who showed a bad secret. */
  | { readonly type: 'gate.failed'; readonly address: string }
  | {
      readonly type: 'page.begun'
      readonly page: string
      readonly tab: string
      readonly key: string
      readonly role: 'driver' | 'watcher'
      readonly kinds: readonly string[]
      readonly presence: boolean
      /** Where its stream begins. */
      readonly from: Place
      /** The page before it in this tab, if it goes on where that one was. */
      readonly continues: string | null
    }
  /** Somebody else may have its token from now on: a copy, or an old one of its own. */
  | { readonly type: 'tab.copied'; readonly tab: string; readonly why: string }
  | {
      readonly type: 'page.state'
      readonly page: string
      readonly state: string
      readonly code: string | null
      /** The one that it was let into last. */
      readonly session: string | null
      /** Of a live one: where the log was at its welcome, and the asks that wait. */
      readonly seq: number
      readonly asks: readonly string[]
    }
  /** An event or a delta that a handler was called with. */
  | {
      readonly type: 'page.told'
      readonly page: string
      readonly seq: number
      readonly delta: number
      readonly what: string
      readonly turn: string | null
      readonly json: string
    }
  | { readonly type: 'page.ask'; readonly page: string; readonly ask: string }
  | {
      readonly type: 'page.asks'
      readonly page: string
      readonly seq: number
      readonly asks: readonly string[]
    }
  /** It has left, and must not hear of anything again. */
  | { readonly type: 'page.left'; readonly page: string }
  | { readonly type: 'page.died'; readonly page: string }
  /** A moment after its end: what does it still have in hand? */
  | {
      readonly type: 'page.over'
      readonly page: string
      readonly timers: number
      readonly sockets: number
      readonly wishes: number
    }
  | {
      readonly type: 'wish.begun'
      readonly wish: number
      readonly page: string
      readonly kind: 'turn' | 'cancel' | 'answer' | 'close' | 'takeOver'
      /** A turn's input, an ask's answer, or the turn to cancel. */
      readonly text: string
      readonly ask: string | null
      readonly onDisconnect: 'continue' | 'cancel' | null
    }
  | { readonly type: 'wish.ended'; readonly wish: number; readonly outcome: WishOutcome }
  /** All is done and everybody is gone; what does the server still have in hand? */
  | {
      readonly type: 'server.quiet'
      readonly node: string
      readonly timers: number
      readonly connections: number
      readonly presences: number
      readonly watchers: number
    }

/** What is recorded of held connections: messages have numbers, one row for each direction. */
export type HeldHappening =
  /** A program opened a connection. */
  | { readonly type: 'held.begun'; readonly client: string; readonly reconnect: string }
  | { readonly type: 'held.state'; readonly client: string; readonly state: string }
  /** The program sent message `n`; the browser took it for the attachment's client. */
  | { readonly type: 'held.sent'; readonly client: string; readonly n: number }
  | {
      readonly type: 'held.taken'
      readonly attachment: string
      readonly client: string
      readonly n: number
    }
  /** The browser sent message `n`; the program was told it. */
  | { readonly type: 'held.emitted'; readonly attachment: string; readonly n: number }
  | {
      readonly type: 'held.told'
      readonly client: string
      readonly attachment: string
      readonly n: number
    }
  /** A moment after its end: what does it still have in hand? */
  | {
      readonly type: 'held.over'
      readonly client: string
      readonly timers: number
      readonly sockets: number
    }
  /** All programs are gone; what does the server still have in hand? */
  | {
      readonly type: 'held.quiet'
      readonly node: string
      readonly timers: number
      readonly clients: number
    }

export type WishOutcome =
  | {
      readonly ok: true
      readonly turn: string | null
      readonly state: string | null
      readonly reply: string | null
      /** What came of iterating the turn; null if nobody did. */
      readonly iterated: string | null
    }
  | { readonly ok: false; readonly code: string }
