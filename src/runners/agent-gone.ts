/** How requests to a child fail. */
import { HoldfastError, type RunnerOutput } from '../core/index.ts'
import type { Child } from '../platform/child.ts'

/** The child has ended; the diagnosis says how. */
export class AgentGone extends Error {
  readonly diagnosis: RunnerOutput

  constructor(message: string, child: Child) {
    super(message)
    this.diagnosis = child.diagnosis(message)
  }
}

/** The agent cannot continue the session that it is bound to. */
export function backendLost(backend: string, why: string): HoldfastError {
  const message = `the agent cannot open its session ${backend} again: ${why}`
  return new HoldfastError('backend_lost', message, { backend })
}

/** The agent cannot continue a conversation that was begun elsewhere. */
export function cannotAdopt(why: string): HoldfastError {
  return new HoldfastError('capability_missing', `the agent ${why}`, { capability: 'adopt' })
}

/** The agent cannot begin another conversation there. */
export function cannotFork(why: string): HoldfastError {
  return new HoldfastError('capability_missing', `the agent ${why}`, { capability: 'fork' })
}
