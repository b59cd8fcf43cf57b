/** The commands that `decide` takes: what callers, runners and timers want of a session. */
import type {
  Principal,
  Activity,
  Ask,
  Connected,
  Grant,
  Input,
  Link,
  Note,
  Reply,
  RequestKey,
  Ruling,
  Settings,
  Share,
  TurnError,
} from './state.ts'

export type Command = LifeCommand | TurnCommand | AskCommand | AttachmentCommand | LinkCommand

/** What a decision depends on besides the session and the command. */
export type Moment = {
  /** The time of the events that are decided. */
  readonly at: number
  /** What the running turn has said since its last message, or null. */
  readonly said: () => string | null
  /** Whether a follower of all asks counts as a client to ask for this kind. */
  readonly hasFollower: (kind: string) => boolean
}

/** Settings to change; null takes one back. */
export type SettingsChange = { readonly [Name in keyof Settings]?: Settings[Name] | null }

export type LifeCommand = Readonly<
  | { type: 'bind'; backend: string }
  /** `by` null: the agent changed them itself. */
  | { type: 'configure'; settings: SettingsChange; by: Principal | null }
  | { type: 'share'; share: Share; by: Principal }
  | { type: 'unshare'; with: string; by: Principal }
  | { type: 'ungrant'; grant: Grant; by: Principal }
  | { type: 'note'; note: Note; by: Principal }
  | { type: 'close'; reason: string; by: Principal | null }
  /** Close if it has been idle past its time to live. */
  | { type: 'expire' }
  /** A new owner took over: what depended on the last one is over. */
  | { type: 'recover'; reason: string; answerGraceMs: number }
>

/** A turn that is admitted in the moment in which it starts. */
export type NewTurn = {
  readonly input: Input
  readonly keys: readonly RequestKey[]
  /** Of all requests that were collected in it, the first one first. */
  readonly by: readonly Principal[]
  /** When the first of them began to wait; null if none had to. */
  readonly queuedAt: number | null
  /** Of this turn alone. */
  readonly settings?: Settings | null
}

/** How a turn ends. A reply that was cut short is kept as a partial message. */
export type TurnEnd = Readonly<
  | { state: 'done'; reply: Reply | null }
  | { state: 'failed'; error: TurnError; reply: Reply | null }
  | { state: 'cancelled'; reason: string; by: Principal | null; reply: Reply | null }
  | { state: 'expired' }
>

export type TurnCommand = Readonly<
  /** Record a turn that waits. */
  | {
      type: 'submit'
      input: Input
      keys: readonly RequestKey[]
      collect: boolean
      /** The turn directly before it: to join any other would be to overtake a request. */
      joins: string | null
      expiresAt: number | null
      /** When it began to wait, if it waited outside the log before. */
      queuedAt: number | null
      settings?: Settings | null
      /** The turn that was to take it, and did not. */
      refusedBy?: string | null
      by: Principal | null
    }
  /** Record a further message for the running turn; then that the agent has taken it. */
  | {
      type: 'steer'
      turn: string
      input: Input
      keys: readonly RequestKey[]
      by: Principal | null
    }
  | { type: 'steered'; turn: string; steering: number; input: Input; by: Principal | null }
  /** Give a turn that waits another of its principal's places: before `before`, or the last. */
  | { type: 'move'; turn: string; before: string | null; by: Principal }
  /** Run a turn: one that waits, by its id, or a new one. */
  | { type: 'start'; turn: string | NewTurn }
  | { type: 'message'; turn: string; reply: Reply }
  | { type: 'output'; turn: string; text: string }
  | { type: 'activity'; turn: string; activity: Activity }
  /** Cancel a turn that still waits; one that runs is stopped by its run, and then finished. */
  | { type: 'cancel'; turn: string; reason: string; by: Principal | null }
  | { type: 'finish'; turn: string; end: TurnEnd }
>

/** What the one who answers is to the session, for rules that say whose answers are taken. */
export type Standing = { readonly isOwner: boolean; readonly isMember: boolean }

export type AskCommand = Readonly<
  /** `ruling`: what rules have decided; null: people are asked. */
  | { type: 'ask'; ask: Omit<Ask, 'id'>; ruling?: Ruling | null }
  /**
   * `attachment`: the one that answers, or null for an answer that came without one. `mayEdit`:
   * whether the caller may answer with edited arguments. `standing`: without it, it is no one.
   */
  | {
      type: 'answer'
      ask: string
      answer: unknown
      by: Principal
      attachment: string | null
      mayEdit?: boolean
      standing?: Standing
    }
  | { type: 'timeout'; ask: string }
  /** The time has come at which no client may be left to answer some ask (`unanswerableAt`). */
  | { type: 'unanswerable'; at: number }
  /** The turn is about to stop: it does not wait for answers any more. */
  | { type: 'withdraw'; turn: string; ask?: string }
>

export type AttachmentCommand = Readonly<
  | {
      type: 'attach'
      /** Fresh and unguessable (I6). */
      attachment: string
      answers: readonly string[]
      token: string | null
      /** Checked when this is decided: a link may be used up or revoked just before. */
      link: string | null
      /** The use of the link that it came in by before, as a watcher. */
      use?: string | undefined
      /** Take an exclusive session over from its live driver. */
      take: boolean
      by: Principal
    }
  /** A connection is gone without a goodbye; an older one than the present changes nothing. */
  | ({ type: 'lose'; answerGraceMs: number } & Connected)
  | {
      type: 'resume'
      attachment: string
      /** Null: the same kinds as before. */
      answers: readonly string[] | null
      /** Digests of the token shown and of the next one; null for an attachment without tokens. */
      shown: string | null
      token: string | null
      by: Principal
    }
  /** These clients have received the tokens of these connections. */
  | { type: 'confirm'; clients: readonly Connected[] }
  /** Ends for good, with a goodbye. */
  | { type: 'leave'; attachment: string; reason: string }
  /** This grace time is over; nothing happens if it came back, and perhaps was lost anew. */
  | { type: 'lapse'; attachment: string; graceUntil: number }
>

export type LinkCommand = Readonly<
  | { type: 'link'; link: Link; by: Principal }
  /** `by` null: its time is over. */
  | { type: 'unlink'; link: string; by: Principal | null }
  /** A watcher comes in, by a link or not. `use`: fresh, or one that it came in by before. */
  | { type: 'watch'; link: string | null; use: string; by: Principal }
>
