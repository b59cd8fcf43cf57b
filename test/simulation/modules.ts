/** The code under simulation, passed in: the real one, or one with a bug planted in it. */
import * as core from '../../src/core/index.ts'
import { MemoryStore } from '../../src/stores/memory.ts'

export type Modules = {
  readonly core: Pick<typeof core, 'AttachmentHandle' | 'Holdfast' | 'HoldfastError'>
  readonly MemoryStore: typeof MemoryStore
}

export const REAL: Modules = { core, MemoryStore }
