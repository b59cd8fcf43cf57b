/** The native contract: each route stands beside its handler. */
import type { Route } from '../route.ts'
import { logRoutes } from './log.ts'
import { sessionRoutes } from './sessions.ts'
import { turnRoutes } from './turns.ts'

export const NATIVE_ROUTES: readonly Route[] = [...sessionRoutes, ...turnRoutes, ...logRoutes]
