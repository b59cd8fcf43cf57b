/**
 * A turn that a session is to be created for. A refusal has no effect (I11): what the turn would be
 * refused for is checked before there is a session. What only the session itself can tell, since
 * others may use up a quota meanwhile, is undone by `Authority.discard`.
 */
import { assertMayDo, scopesOn, type Caller } from './access.ts'
import type { CoreContext } from './context.ts'
import { assertTakes, firstBytes } from './parts.ts'
import { drainingError } from './queued-request.ts'
import type { ResolveRequest, TurnRequest } from './requests.ts'
import type { Runner } from './runner.ts'
import { assertHonoured } from './settings.ts'

type FirstTurnContext = Pick<CoreContext, 'limits' | 'usage'> & {
  readonly draining: boolean
  runner(agent: string): Runner | null
}

/** `isThere`: whether there is a session already, which has to decide itself. */
export async function assertAdmissible(
  context: FirstTurnContext,
  { turn, session }: { readonly turn: TurnRequest | null; readonly session: ResolveRequest },
  isThere: () => Promise<boolean>,
): Promise<void> {
  try {
    const bytes = assertPossible(context, turn, session)
    const { access, principal } = session
    const owner = context.usage.ofOwner(access, principal)
    const caller = context.usage.ofCaller(access)
    if ((owner === null && caller === null) || (await isThere())) return
    await owner?.measuring()
    await caller?.measuringBudget()
    owner?.assertRoom(Math.max(1, bytes))
    caller?.assertTurn()
  } catch (refusal) {
    if (!(await isThere())) throw refusal
  }
}

/** Returns how many bytes the turn has. */
function assertPossible(
  context: FirstTurnContext,
  turn: TurnRequest | null,
  session: ResolveRequest,
): number {
  if (context.draining) throw drainingError()
  const { agent } = session
  const runner = context.runner(agent)
  assertMayDo(scopesOn(session satisfies Caller, { ...session, id: '', shares: [] }), 'turn.run')
  if (turn === null) return 0
  const { input, blobs, settings } = turn
  assertTakes(agent, runner, input)
  if (settings !== null) assertHonoured(agent, runner, settings)
  return blobs === null ? 0 : firstBytes(blobs, context.limits)
}
