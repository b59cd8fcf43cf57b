/// <reference types="node" preserve="true" />
/** The server's front door: `holdfast/server`. */
export type { BrowserLimits, BrowserSpec, EgressOption, ResolveHost } from '../browsers/index.ts'
export type { CdpLimits } from '../doors/cdp/limits.ts'
export type { CopilotLimits } from '../doors/copilot/limits.ts'
export type { AccessOptions } from './access.ts'
export type { JwtIssuer } from '../schema/jwt.ts'
export type { ClusterOptions } from './forwarding/forwarder.ts'
export type { CloseOptions, HandlerOptions } from './handler.ts'
export type { JwtLimits } from './limits.ts'
export { openJwtTokens, type JwtOptions, type JwtTokens } from './jwt.ts'
export {
  createHandler,
  HoldfastServer,
  startServer,
  type HoldfastHandler,
  type MountOptions,
  type ServerOptions,
} from './server.ts'
export { openTokenFile, type TokenFile, type TokenSource } from './tokens.ts'
