/** The code under simulation, passed in: the real one, or one with a bug planted in it. */
import { HeldConnection } from '../../src/cdp/connection.ts'
import { connect } from '../../src/client/index.ts'
import * as core from '../../src/core/index.ts'
import { HeldConnection as HeldEntry } from '../../src/doors/cdp/held-entry.ts'
import { Seat } from '../../src/doors/cdp/seat.ts'
import { Connection } from '../../src/doors/connect/connection.ts'
import { Hub } from '../../src/doors/connect/hub.ts'
import { MemoryStore } from '../../src/stores/memory.ts'

export type Modules = {
  readonly core: Pick<typeof core, 'AttachmentHandle' | 'Holdfast' | 'HoldfastError'>
  readonly MemoryStore: typeof MemoryStore
  readonly Hub: typeof Hub
  readonly Connection: typeof Connection
  readonly connect: typeof connect
  readonly HeldConnection: typeof HeldConnection
  readonly HeldEntry: typeof HeldEntry
  readonly Seat: typeof Seat
}

export const REAL: Modules = {
  ...{ core, MemoryStore, Hub, Connection, connect },
  ...{ HeldConnection, HeldEntry, Seat },
}
