/** The commands that `decide` takes: what callers, runners and timers want of a session. */
import type {
  Principal,
  Activity,
  Ask,
  Connected,
  Input,
  Link,
  Reply,
  RequestKey,
  TurnError,
} from './state.ts'

export type Command = LifeCommand | TurnCommand | AskCommand | AttachmentCommand | LinkCommand

/** What a decision depends on besides the session and the command. */
export type Moment = {
  /** The time of the events that are decided. */
  readonly at: number
  /** What the running turn has said since its last message, or null. */
  readonly said: () => string | null
}

export type LifeCommand =
  | { readonly type: 'bind'; readonly backend: string }
  | { readonly type: 'close'; readonly reason: string; readonly by: Principal | null }
  /** Close if it has been idle past its time to live. */
  | { readonly type: 'expire' }
  /** A new owner took over: what depended on the last one is over. */
  | { readonly type: 'recover'; readonly reason: string; readonly answerGraceMs: number }

/** A turn that is admitted in the moment in which it starts. */
export type NewTurn = {
  readonly input: Input
  readonly keys: readonly RequestKey[]
  /** Of all requests that were collected in it, the first one first. */
  readonly by: readonly Principal[]
  /** When the first of them began to wait; null if none had to. */
  readonly queuedAt: number | null
}

/** How a turn ends. A reply that was cut short is kept as a partial message. */
export type TurnEnd =
  | { readonly state: 'done'; readonly reply: Reply | null }
  | { readonly state: 'failed'; readonly error: TurnError; readonly reply: Reply | null }
  | {
      readonly state: 'cancelled'
      readonly reason: string
      readonly by: Principal | null
      readonly reply: Reply | null
    }
  | { readonly state: 'expired' }

export type TurnCommand =
  /** Record a turn that waits. */
  | {
      readonly type: 'submit'
      readonly input: Input
      readonly keys: readonly RequestKey[]
      readonly collect: boolean
      /** The turn directly before it: to join any other would be to overtake a request. */
      readonly joins: string | null
      readonly expiresAt: number | null
      /** When it began to wait, if it waited outside the log before. */
      readonly queuedAt: number | null
      readonly by: Principal | null
    }
  /** Run a turn: one that waits, by its id, or a new one. */
  | { readonly type: 'start'; readonly turn: string | NewTurn }
  | { readonly type: 'message'; readonly turn: string; readonly reply: Reply }
  | { readonly type: 'output'; readonly turn: string; readonly text: string }
  | { readonly type: 'activity'; readonly turn: string; readonly activity: Activity }
  /** Cancel a turn that still waits; one that runs is stopped by its run, and then finished. */
  | {
      readonly type: 'cancel'
      readonly turn: string
      readonly reason: string
      readonly by: Principal | null
    }
  | { readonly type: 'finish'; readonly turn: string; readonly end: TurnEnd }

export type AskCommand =
  | { readonly type: 'ask'; readonly ask: Omit<Ask, 'id'> }
  | {
      readonly type: 'answer'
      readonly ask: string
      readonly answer: unknown
      readonly by: Principal
      /** The attachment that answers, or null for an answer that came without one. */
      readonly attachment: string | null
    }
  | { readonly type: 'timeout'; readonly ask: string }
  /** The time has come at which no client may be left to answer some ask (`unanswerableAt`). */
  | { readonly type: 'unanswerable'; readonly at: number }
  /** The turn is about to stop: it does not wait for answers any more. */
  | { readonly type: 'withdraw'; readonly turn: string }

export type AttachmentCommand =
  | {
      readonly type: 'attach'
      /** Fresh and unguessable (I6). */
      readonly attachment: string
      readonly answers: readonly string[]
      readonly token: string | null
      /** Checked when this is decided: a link may be used up or revoked just before. */
      readonly link: string | null
      /** The use of the link that it came in by before, as a watcher. */
      readonly use?: string | undefined
      /** Take an exclusive session over from its live driver. */
      readonly take: boolean
      readonly by: Principal
    }
  /** A connection is gone without a goodbye; an older one than the present changes nothing. */
  | ({ readonly type: 'lose'; readonly answerGraceMs: number } & Connected)
  | {
      readonly type: 'resume'
      readonly attachment: string
      /** Null: the same kinds as before. */
      readonly answers: readonly string[] | null
      /** Digests of the token shown and of the next one; null for an attachment without tokens. */
      readonly shown: string | null
      readonly token: string | null
      readonly by: Principal
    }
  /** These clients have received the tokens of these connections. */
  | { readonly type: 'confirm'; readonly clients: readonly Connected[] }
  /** Ends for good, with a goodbye. */
  | { readonly type: 'leave'; readonly attachment: string; readonly reason: string }
  /** This grace time is over; nothing happens if it came back, and perhaps was lost anew. */
  | { readonly type: 'lapse'; readonly attachment: string; readonly graceUntil: number }

export type LinkCommand =
  | { readonly type: 'link'; readonly link: Link; readonly by: Principal }
  /** `by` null: its time is over. */
  | { readonly type: 'unlink'; readonly link: string; readonly by: Principal | null }
  /** A watcher comes in, by a link or not. `use`: fresh, or one that it came in by before. */
  | {
      readonly type: 'watch'
      readonly link: string | null
      readonly use: string
      readonly by: Principal
    }
