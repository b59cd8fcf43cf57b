/** The client of a command: its own WebSocket, and the token of the command line. */
import { WebSocket } from 'ws'
import { connect, type Client, type ClientSocketClass } from '../client/index.ts'
import type { Remote } from './remote.ts'

export function connectTo({ url, token }: Remote): Client {
  const webSocket = WebSocket as unknown as ClientSocketClass
  return connect({ url, webSocket, token: token ?? undefined })
}
