/** One chaos: a world, a load, clients, faults one after the other, and what the checker says. */
import { setTimeout } from 'node:timers/promises'
import { Random } from '../simulation/random.ts'
import { check, type History } from './check.ts'
import { AttachedClient, StreamingClient, type Client, type Company } from './clients.ts'
import { historyOf } from './history.ts'
import { Load } from './load.ts'
import { FAULTS, World, type Bug, type Fault } from './world.ts'

export type ChaosOptions = {
  readonly seed: number
  readonly faults: number
  readonly bug?: Bug
  /** Only these, else all. */
  readonly kinds?: readonly Fault[]
  readonly tell?: (line: string) => void
}

export type ChaosReport = {
  readonly problems: readonly string[]
  readonly faults: readonly string[]
  readonly counts: ReturnType<typeof countsOf>
}

const NODES = 3
const KEYS = ['a-long', 'b-long', 'c-long', 'd', 'e', 'f']
/** Of each more than so many, else there was not enough to go wrong. */
export const ENOUGH = { acknowledged: 20, asks: 5, answered: 0, resumed: 0 } as const
/** A run that was frozen may tick once or twice before it learns that it is over. */
const LATE_TICKS_MAX = 2

export async function chaos(options: ChaosOptions): Promise<ChaosReport> {
  const { seed, faults, bug = 'none', kinds = FAULTS, tell = () => undefined } = options
  const world = await World.create({ seed, bug, nodes: NODES })
  const company: Company = { urls: world.urls, answers: [], sent: [] }
  const clients = clientsOf(company, seed)
  try {
    const load = new Load(world.urls, { seed, keys: KEYS })
    const isEnough = (): boolean => isEventful([...load.sent, ...company.sent], company, clients)
    for (let done = 0; done < faults || !isEnough(); done += 1) {
      await setTimeout(world.random.between(200, 800))
      // Each kind in turn, so that a short chaos has them all; which node, how long: by chance.
      await world.suffer(kinds[done % kinds.length]!)
      tell(world.faults.at(-1) ?? '')
    }
    await Promise.all([load.end(), ...clients.map((client) => client.hush())])
    const { looks } = load
    const { answers } = company
    const said = { keys: KEYS, sent: [...load.sent, ...company.sent], looks, answers, clients }
    const history = await historyOf(world, { ...said, lateTicksMax: LATE_TICKS_MAX })
    return { problems: check(history), faults: world.faults, counts: countsOf(history) }
  } finally {
    for (const client of clients) client.leave()
    await world.close()
  }
}

/** Whether there was something to go wrong. On a slow machine that takes more than so many faults. */
function isEventful(
  sent: History['sent'],
  { answers }: Company,
  clients: readonly Client[],
): boolean {
  const told = clients.flatMap(({ seen }) =>
    seen.events.map(({ seq, type }) => ({ type, place: `${seen.session} ${seq}` })),
  )
  const places = (name: string): number =>
    new Set(told.filter(({ type }) => type === name).map(({ place }) => place)).size
  return (
    sent.filter(({ answer }) => answer !== null).length > ENOUGH.acknowledged &&
    answers.filter(({ isTaken }) => isTaken === true).length > ENOUGH.answered &&
    places('ask.opened') > ENOUGH.asks &&
    places('attachment.resumed') > ENOUGH.resumed
  )
}

/** Two for each session, of either kind. */
function clientsOf(company: Company, seed: number): readonly Client[] {
  return KEYS.flatMap((key, index) => [
    new AttachedClient(`socket-${key}`, key, company, new Random(seed + 100 + index)),
    new StreamingClient(`stream-${key}`, key, company, new Random(seed + 200 + index)),
  ])
}

/** How much there was to go wrong. */
function countsOf({ sent, looks, answers, clients, logs }: History) {
  const events = [...logs.values()].flat()
  const acknowledged = sent.filter(({ answer }) => answer !== null).length
  const outcome = (name: string): number => events.filter((event) => event.outcome === name).length
  return {
    acknowledged,
    unknown: sent.length - acknowledged,
    events: events.length,
    asks: events.filter(({ type }) => type === 'ask.opened').length,
    answered: outcome('answered'),
    timedOut: outcome('timed_out'),
    withdrawn: outcome('withdrawn'),
    answersRefused: answers.filter(({ isTaken }) => isTaken === false).length,
    clients: clients.length,
    resumed: events.filter(({ type }) => type === 'attachment.resumed').length,
    looks: looks.length,
  }
}
