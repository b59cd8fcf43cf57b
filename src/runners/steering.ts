/** Messages for turns that run: a message waits until the agent has accepted its turn. */
import type { RunnerSession, RunnerTurn } from '../core/index.ts'

/** Gives the running turn a message; resolves with whether the agent has taken it. */
export type TakeMessage = (message: RunnerTurn) => Promise<boolean>

export const TAKE_NONE: TakeMessage = () => Promise.resolve(false)

type SteeredTurn = {
  readonly accepted: Promise<TakeMessage>
  /** The first call counts. */
  readonly accept: (take: TakeMessage) => void
}

export class Steering {
  /** The last turn of each session, until its end. */
  readonly #turns = new Map<string, SteeredTurn>()

  begin(session: string): SteeredTurn {
    let accept: SteeredTurn['accept'] = () => undefined
    const accepted = new Promise<TakeMessage>((resolve) => {
      accept = resolve
    })
    const turn = { accepted, accept }
    this.#turns.set(session, turn)
    return turn
  }

  end(session: string, turn: SteeredTurn): void {
    turn.accept(TAKE_NONE)
    if (this.#turns.get(session) === turn) this.#turns.delete(session)
  }

  async steer({ id }: RunnerSession, message: RunnerTurn): Promise<boolean> {
    const take = await this.#turns.get(id)?.accepted
    return take === undefined ? false : take(message)
  }
}
