/** The browsers' front door, for the CDP door and the command line. */
export * from './connection.ts'
export { folderBytes } from './disk.ts'
export { EgressRule, type EgressOption } from '../platform/egress.ts'
export type { ResolveHost } from '../platform/resolver.ts'
export { BROWSER_LIMITS, type BrowserLimits } from './limits.ts'
export { BrowserPool, memoryOf, type BrowserSpec, type PoolOptions } from './pool.ts'
