import type { EarlierMessage } from '../core/index.ts'

/** A message in an agent's own file, with the agent's id of it or of its turn. */
export type LoggedMessage = EarlierMessage & { readonly id: string }
