/** What the nodes wrote down about themselves, in the order in which it happened. */
import type { AskOutcome } from 'holdfast'

export type Testimony =
  /** The agent is at work. `run`: a process and a turn. */
  | { readonly type: 'tick'; readonly session: string; readonly run: string }
  /** What the agent was told about the question of its turn. */
  | {
      readonly type: 'told'
      readonly session: string
      readonly turn: string
      readonly outcome: AskOutcome
    }
  /** A node owns the session from here on. */
  | {
      readonly type: 'claim'
      readonly session: string
      readonly epoch: number
      readonly seq: number
    }
  /** A node has written the events after a position, under the epoch that it believed in. */
  | {
      readonly type: 'append'
      readonly session: string
      readonly epoch: number
      readonly after: number
    }

export type Kind = Testimony['type']

/** The lines of one kind. */
export function ofKind<Name extends Kind>(
  testimony: readonly Testimony[],
  kind: Name,
): readonly (Testimony & { type: Name })[] {
  return testimony.filter((line): line is Testimony & { type: Name } => line.type === kind)
}
