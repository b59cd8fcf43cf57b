/** The browsers' front door, for the CDP door and the command line. */
export type {
  BrowserConnection,
  CdpError,
  CdpEvent,
  CdpReply,
  ConnectionEvents,
  MessageParts,
  Params,
  ReadReply,
} from './connection.ts'
export { BROWSER_LIMITS, type BrowserLimits } from './limits.ts'
export { BrowserPool, memoryOf, type BrowserSpec, type PoolOptions } from './pool.ts'
