/** The ACP door over streamable HTTP: all that a client has over WebSockets. */
import { StockClient } from '../support/acp-client.ts'

StockClient.transport = 'http'
await import('./acp-door.test.ts')
