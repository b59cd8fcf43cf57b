/** The server's front door: `holdfast/server`. */
export type { Facts, Logger } from './logger.ts'
export { HoldfastServer, startServer, type ServerOptions } from './server.ts'
