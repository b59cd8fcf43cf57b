/**
 * Plots: for each guard of the protocol the very moment in which it alone stands between a fault and
 * a wrong. With the guard nothing goes wrong; without it the checker must object, every time.
 */
import { Agent, request } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import { PostgresServer } from '../support/postgres.ts'
import { check } from './check.ts'
import { historyOf } from './history.ts'
import type { Look, Sent } from './load.ts'
import { ofKind } from './witness.ts'
import { World, type Bug, type Seat } from './world.ts'

export type Plot = {
  readonly claim: string
  /** A function of the node (the default), or a program that it starts. */
  readonly agent?: 'ticking' | 'program'
  /** What the checker says when one of these guards is taken away. */
  readonly without: Partial<Record<Bug, RegExp>>
  readonly play: (stage: Stage) => Promise<void>
}

const KEY = 'plot'
/** How long something that must happen may take. */
const PATIENCE_MS = 20_000
/** How long a node may take to show a session: one that does not has shown nothing. */
const SHOW_MS = 3_000

/** Two nodes, one session, and everything that anybody was told. */
class Stage {
  readonly world: World
  readonly sent: Sent[] = []
  readonly looks: Look[] = []
  session = ''
  readonly #agent: string

  constructor(world: World, { agent = 'ticking' }: Plot) {
    this.world = world
    this.#agent = agent
  }

  get one(): Seat {
    return this.world.seats[0]!
  }

  get other(): Seat {
    return this.world.seats[1]!
  }

  /** The first node owns the session from its first turn on. */
  async begin(): Promise<void> {
    const answer = await this.turn(this.one, 'first 1')
    if (answer === null) throw new Error('the first turn was not answered')
    this.session = answer.session
  }

  /** Asks for a turn, once; null if nobody can say what became of it. */
  async turn({ url }: Seat, text: string): Promise<Sent['answer']> {
    const body = { input: text, agent: this.#agent }
    const answer = await post(`${url}/v1/keys/${KEY}/turns`, body).then(
      ({ status, body }) => (status === 200 ? answerOf(body) : null),
      () => null,
    )
    this.sent.push({ key: KEY, text, answer })
    return answer
  }

  /** Leaves a turn in the queue. */
  async submit({ url }: Seat, text: string): Promise<void> {
    const headers = { prefer: 'respond-async' }
    const { status } = await post(`${url}/v1/keys/${KEY}/turns`, { input: text }, headers)
    if (status !== 202) throw new Error(`${text} was not queued: ${status}`)
    this.sent.push({ key: KEY, text, answer: null })
  }

  /** The session as the node shows it; null if it does not, or not soon. */
  show({ url }: Seat, agent?: Agent): Promise<number | null> {
    return ask(`${url}/v1/sessions/${this.session}`, agent).then(
      ({ status, body }) => (status === 200 ? (body.seq as number) : null),
      () => null,
    )
  }

  /** Notes what somebody was shown who knew better. */
  look(known: number | null, seq: number | null): void {
    if (known === null) throw new Error('the owner does not show its session')
    if (seq !== null) this.looks.push({ session: this.session, known, seq })
  }

  /** When the agent has begun with so many turns, in whichever node. */
  async begun(turns: number): Promise<void> {
    const runs = (): Set<string> =>
      new Set(ofKind(this.world.testimony(), 'tick').map(({ run }) => run))
    await until(() => runs().size >= turns)
  }

  /** When every node that lives answers for the session again. */
  async isWell(): Promise<void> {
    const alive = this.world.seats.filter(({ process }) => process.isRunning)
    for (const seat of alive) {
      await until(async () => (await this.show(seat)) !== null)
    }
  }

  /** When a node has claimed the session for the how manieth time. */
  async claimed(epoch: number): Promise<void> {
    await until(async () => {
      // A session that nobody asks for is nobody's: so it is asked for.
      await fetch(`${this.other.url}/v1/sessions/${this.session}`).catch(() => undefined)
      return (await this.world.epochOf(this.session)) >= epoch
    })
  }
}

export const PLOTS: Readonly<Record<string, Plot>> = {
  'late append': {
    claim: 'an append that arrives after another node has claimed the session is refused',
    without: { 'no-fence': /stale append/, 'no-epoch': /stale append/ },
    play: async (stage) => {
      stage.one.toDatabase.cut('late')
      const late = stage.turn(stage.one, 'late 1')
      await stage.claimed(2)
      stage.one.toDatabase.heal()
      await late
      await stage.isWell()
      await stage.turn(stage.other, 'after 1')
    },
  },

  'cut off at work': {
    claim: 'a node that is cut off from the database has stopped its agent before another begins',
    without: { 'no-lease': /went on for \d+ ticks after the next had begun/ },
    play: cutOffAtWork,
  },

  'cut off, its program at work': {
    claim: 'a node that is cut off from the database has ended its program before another begins',
    agent: 'program',
    without: { 'no-lease': /went on for \d+ ticks after the next had begun/ },
    play: cutOffAtWork,
  },

  'cut off and asked': {
    claim: 'a node that is cut off from the database shows nobody a session as it once was',
    without: { 'no-lease': /was shown at \d+ when it was past/ },
    play: async (stage) => {
      stage.one.toDatabase.cut('silence')
      await stage.claimed(2)
      await stage.turn(stage.other, 'after 1')
      stage.look(await stage.show(stage.other), await stage.show(stage.one))
      stage.one.toDatabase.heal()
    },
  },

  'frozen and asked': {
    claim: 'a node that was frozen past its lease shows nobody a session as it once was',
    without: { 'no-lease': /was shown at \d+ when it was past/ },
    play: async (stage) => {
      // On a connection that is open: what comes over a new one is read after the node's timers.
      const agent = new Agent({ keepAlive: true, maxSockets: 1 })
      try {
        await stage.show(stage.one, agent)
        stage.one.process.pause()
        await stage.claimed(2)
        await stage.turn(stage.other, 'after 1')
        const known = await stage.show(stage.other)
        const shown = stage.show(stage.one, agent)
        await setTimeout(100)
        stage.one.process.resume()
        stage.look(known, await shown)
      } finally {
        agent.destroy()
      }
    },
  },

  'owner lives': {
    claim: 'a node leaves a session alone as long as the lease of its owner has not ended',
    without: { steal: /went on for \d+ ticks after the next had begun|started while/ },
    play: async (stage) => {
      await stage.submit(stage.one, 'long 2000')
      await stage.begun(2)
      await stage.turn(stage.other, 'other 1000')
    },
  },

  'owner lost in a forwarded turn': {
    claim: 'a request that the lost owner may have carried out is not passed on again',
    without: { 'no-doubt': /forwarded \d+ ran 2 times/ },
    play: async (stage) => {
      const forwarded = stage.turn(stage.other, 'forwarded 1000')
      await stage.begun(2)
      await stage.one.process.kill()
      await forwarded
    },
  },
}

async function cutOffAtWork(stage: Stage): Promise<void> {
  await stage.submit(stage.one, 'long 8000')
  await stage.submit(stage.one, 'next 1000')
  await stage.begun(2)
  stage.one.toDatabase.cut('silence')
  await stage.begun(3)
  await setTimeout(500)
  stage.one.toDatabase.heal()
}

/** What the checker has against the plot with this guard taken away. */
export async function playPlot(
  plot: Plot,
  bug: Bug,
  shared: PostgresServer,
): Promise<readonly string[]> {
  const world = await World.create({ seed: 1, bug, nodes: 2, shared })
  try {
    const stage = new Stage(world, plot)
    await stage.begin()
    await plot.play(stage)
    await stage.isWell()
    const { sent, looks } = stage
    return check(await historyOf(world, { keys: [KEY], sent, looks, lateTicksMax: 0 }))
  } finally {
    await world.close()
  }
}

/** Every plot, with and without its guards or this one; whether all came out as they should. */
export async function playAll(bug: Bug, tell: (line: string) => void): Promise<boolean> {
  const shared = await PostgresServer.start()
  let isRight = true
  try {
    for (const [name, plot] of Object.entries(PLOTS)) {
      const planted = Object.keys(plot.without) as Bug[]
      const all: Bug[] =
        bug === 'none' ? ['none', ...planted] : planted.filter((one) => one === bug)
      for (const one of all) {
        const problems = await playPlot(plot, one, shared)
        const isAsExpected = isExpected(plot, one, problems)
        isRight &&= isAsExpected
        const verdict = isAsExpected ? 'as it should be' : 'WRONG'
        tell(`${name} (${one}): ${verdict}${problems.map((line) => `\n  ${line}`).join('')}`)
      }
    }
    return isRight
  } finally {
    await shared.remove()
  }
}

function isExpected({ without }: Plot, bug: Bug, problems: readonly string[]): boolean {
  const expected = without[bug]
  if (expected === undefined) return problems.length === 0
  return problems.some((problem) => expected.test(problem))
}

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  for (const end = Date.now() + PATIENCE_MS; !(await condition());) {
    if (Date.now() > end) throw new Error('it does not happen')
    await setTimeout(25)
  }
}

type Answered = { readonly status: number; readonly body: any }

function answerOf({ session, turn }: any): Sent['answer'] {
  const { id, state, reply } = turn
  return { session, turn: id, reply: state === 'done' ? reply.text : `(${state})` }
}

async function post(
  url: string,
  body: object,
  headers: Record<string, string> = {},
): Promise<Answered> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(PATIENCE_MS),
  })
  return { status: response.status, body: await response.json() }
}

function ask(url: string, agent?: Agent): Promise<Answered> {
  return new Promise((resolve, reject) => {
    const asked = request(url, { agent, signal: AbortSignal.timeout(SHOW_MS) }, (answer) => {
      let text = ''
      answer.setEncoding('utf8')
      answer.on('data', (chunk) => (text += chunk))
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, body: JSON.parse(text) }))
    })
    asked.on('error', reject)
    asked.end()
  })
}
