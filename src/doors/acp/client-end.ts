/** A connection as the sessions on it, and its requests, see it: `connection.ts` is one. */
import type { Capabilities, Holdfast, HoldfastError, TurnClients } from '../../core/index.ts'
import type { Hub } from '../connect/hub.ts'
import type { HiddenPositions } from '../exchange.ts'
import type { AskedClient } from './questions.ts'
import type { Opening } from './schemas.ts'

export type ClientEnd = AskedClient & {
  readonly hub: Hub
  /** How the client names itself, the same whenever it comes back; else one of this connection. */
  readonly clientId: string
  /** It said that it comes back: its places can be taken up again. */
  readonly isReturning: boolean
  readonly isOver: boolean
  readonly offers: ReadonlySet<string>
  readonly turnClients: TurnClients
  /** Aborted when the connection is over. */
  readonly signal: { readonly aborted: boolean }
  /** Of a prompt that the client gave none, or of a request to it: no other has it. */
  newName(): string
  capabilitiesOf(agent: string): Capabilities
  /** Null if it leaves at once; else when it has left. */
  send(text: string): Promise<void> | null
  isAlive(): Promise<boolean>
  /** Says why, and closes. */
  refuse(error: HoldfastError): void
  /** What the client did wrong, or what failed, where it cannot be told. */
  report(error: HoldfastError): void
  /** Ends the connection with what was thrown. */
  readonly fail: (thrown: unknown) => void
  forget(attachment: { readonly session: { readonly id: string } }): void
}

/** What the address of a connection says of the sessions that are opened on it. */
export type ConnectionDefaults = Pick<Opening, 'key' | 'agent' | 'role' | 'replay'>

/** What the client said of itself in `initialize`. */
export type ClientFacts = {
  readonly clientId: string | null
  readonly takesForms: boolean
  /** What it answers of the requests of an agent. */
  readonly offers: ReadonlySet<string>
}

export type RequestContext<Attachment> = ClientEnd & {
  /** Bound to the caller. */
  readonly holdfast: Holdfast
  /** How cursors are shown to the caller; null: as they are. */
  readonly positions: HiddenPositions | null
  readonly defaults: ConnectionDefaults
  /** By the ids of their sessions. */
  readonly attachments: Map<string, Attachment>
  /** The server begins nothing any more. */
  readonly isDraining: () => boolean
  /** Sessions that are being opened: they count like those that are open. */
  opening: number
  /** The first `initialize` counts; one that names another client is refused. */
  introduce(facts: ClientFacts, params: unknown): void
}
