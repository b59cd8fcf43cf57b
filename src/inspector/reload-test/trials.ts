/** What can happen to a page, and the outcome that each reconnect policy promises. */
import type { SimulatedTab } from './simulated-tab.ts'

export const POLICIES = ['none', 'early', 'resume', 'reopen'] as const
export type Policy = (typeof POLICIES)[number]

export const GRACE_MS = 4_000

export type Trial = {
  readonly name: string
  readonly title: string
  readonly does: string
  readonly exclusive?: true
  readonly expected: Readonly<Record<Policy, string>>
  /** Resolves with the outcome, in the words of `expected`. */
  readonly run: (tab: SimulatedTab) => Promise<string>
}

const BACK = 'resumed, works'
const REATTACHED = 'attached again, works'
const ENDED = 'ended, user told'
const COMPLETE = 'resumed, complete'
const REFUSED = 'copy refused'
const TAKEN_OVER = 'taken over'
const BOTH = 'both work'

const TEXT = 'one two three four five six seven eight'

const beforeWork = { none: ENDED, early: BACK, resume: BACK, reopen: BACK }
const afterWork = { none: ENDED, early: ENDED, resume: BACK, reopen: BACK }
const forAll = (all: string) => ({ none: all, early: all, resume: all, reopen: all })

export const TRIALS: readonly Trial[] = [
  {
    name: 'reload',
    title: 'Reload, before work',
    does: 'The page is reloaded before any turn has run.',
    expected: beforeWork,
    run: (tab) => outcomeOf(tab.reload()),
  },
  {
    name: 'reload-after-work',
    title: 'Reload, after work',
    does: 'A turn runs, then the page is reloaded and runs another.',
    expected: afterWork,
    run: async (tab) => {
      await work(tab)
      return outcomeOf(tab.reload())
    },
  },
  {
    name: 'reload-mid-turn',
    title: 'Reload, in the middle of a turn',
    does: 'The page is reloaded while an answer is coming.',
    expected: { none: ENDED, early: ENDED, resume: COMPLETE, reopen: COMPLETE },
    run: async (tab) => {
      // The reload interrupts it.
      void tab.session.turn({ text: TEXT, ms: 900 }).catch(() => undefined)
      await tab.until(() => tab.deltas.length > 1)
      return lookForMessage(tab.reload())
    },
  },
  {
    name: 'drop',
    title: 'Drop',
    does: 'A turn runs, then the network closes the socket.',
    expected: afterWork,
    run: async (tab) => {
      await work(tab)
      tab.drop()
      await tab.until(() => tab.state.name !== 'live')
      return outcomeOf(tab)
    },
  },
  {
    name: 'half-open',
    title: 'Half-open',
    does: 'Reloaded, but the old connection still seems open to the server.',
    exclusive: true,
    expected: beforeWork,
    run: (tab) => outcomeOf(tab.reload(true)),
  },
  {
    name: 'clone',
    title: 'Clone of an exclusive session',
    does: 'A copied tab sends the same resume token while the first is live.',
    exclusive: true,
    expected: forAll(REFUSED),
    run: async (tab) => {
      const copy = await tab.copy().settled()
      const refused = copy.state.name === 'ended' && copy.state.code === 'in_use'
      return refused && (await works(tab)) ? REFUSED : describe(copy)
    },
  },
  {
    name: 'take-over',
    title: 'Clone that takes over',
    does: 'The copy is refused, and a person decides to take over.',
    exclusive: true,
    expected: forAll(TAKEN_OVER),
    run: async (tab) => {
      const copy = await tab.copy().settled()
      await copy.session.takeOver()
      await tab.until(() => tab.state.name === 'ended')
      const isReported = tab.state.name === 'ended' && tab.state.code === 'superseded'
      return isReported && (await works(copy)) ? TAKEN_OVER : `first: ${describe(tab)}`
    },
  },
  {
    name: 'clone-shared',
    title: 'Clone of a shared session',
    does: 'The same, where many clients may drive.',
    expected: forAll(BOTH),
    run: async (tab) => {
      const copy = await tab.copy().settled()
      const work = (await works(tab)) && (await works(copy))
      return work && attachments(copy) === 2 ? BOTH : describe(copy)
    },
  },
  {
    name: 'close-and-reopen',
    title: 'Close and reopen',
    does: 'The page leaves for good; then its address is opened in a new tab.',
    expected: { none: ENDED, early: ENDED, resume: ENDED, reopen: REATTACHED },
    run: async (tab) => {
      await work(tab)
      tab.close()
      return outcomeOf(tab.copy())
    },
  },
  {
    name: 'past-grace',
    title: 'Past the grace time',
    does: `The page is away for longer than ${GRACE_MS / 1000} s, then comes back.`,
    expected: { none: ENDED, early: ENDED, resume: ENDED, reopen: REATTACHED },
    run: async (tab) => {
      tab.unload()
      await new Promise((resolve) => setTimeout(resolve, GRACE_MS + 2_000))
      return outcomeOf(tab.again())
    },
  },
]

async function work(tab: SimulatedTab): Promise<void> {
  await tab.session.turn({ text: 'first', ms: 0 })
}

async function works(tab: SimulatedTab): Promise<boolean> {
  if (tab.state.name === 'ended') return false
  const { state, reply } = await tab.session.turn({ text: 'again', ms: 0 })
  return state === 'done' && reply?.text === 'again'
}

async function outcomeOf(tab: SimulatedTab): Promise<string> {
  await tab.settled()
  if (tab.state.name === 'ended') return describe(tab)
  if (!(await works(tab))) return 'live, but cannot run a turn'
  return attachments(tab) === 1 ? BACK : REATTACHED
}

async function lookForMessage(tab: SimulatedTab): Promise<string> {
  await tab.settled()
  if (tab.state.name === 'ended') return describe(tab)
  await tab.until(() => tab.events.some(({ type }) => type === 'turn.done'))
  const messages = tab.events.flatMap((event) => (event.type === 'message.added' ? [event] : []))
  const parts = tab.deltas.map(({ text }) => text).join('')
  // The last deltas are not sent if the message, which contains them, arrives at the same time.
  const isComplete = messages.length === 1 && messages[0]?.text === TEXT && TEXT.startsWith(parts)
  return isComplete ? COMPLETE : `${messages.length} messages, parts: ${parts}`
}

function attachments(tab: SimulatedTab): number {
  return tab.events.filter(({ type }) => type === 'attachment.opened').length
}

function describe({ state }: SimulatedTab): string {
  if (state.name !== 'ended') return state.name
  const hasEnded = ['session_closed', 'work_started', 'connection_lost'].includes(state.code)
  return hasEnded ? ENDED : `refused: ${state.reason}`
}
