/** The code under simulation, passed in: the real one, or one with a bug planted in it. */
import { HeldConnection } from '../../src/cdp/connection.ts'
import { connect } from '../../src/client/index.ts'
import * as core from '../../src/core/index.ts'
import { heldService } from '../../src/doors/cdp/held.ts'
import { AttachedClient } from '../../src/doors/cdp/attached-client.ts'
import { Connection } from '../../src/doors/connect/connection.ts'
import { connectService } from '../../src/doors/connect/entry.ts'
import { Hub } from '../../src/doors/connect/hub.ts'
import { MemoryStore } from '../../src/stores/memory.ts'

export type Modules = {
  readonly core: Pick<typeof core, 'AttachmentHandle' | 'Holdfast' | 'HoldfastError'>
  readonly MemoryStore: typeof MemoryStore
  readonly Hub: typeof Hub
  readonly Connection: typeof Connection
  readonly connectService: typeof connectService
  readonly connect: typeof connect
  readonly HeldConnection: typeof HeldConnection
  readonly heldService: typeof heldService
  readonly AttachedClient: typeof AttachedClient
}

export const REAL: Modules = {
  ...{ core, MemoryStore, Hub, Connection, connectService, connect },
  ...{ HeldConnection, heldService, AttachedClient },
}
