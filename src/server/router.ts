/** From a method and a path to a route: a tree of path segments, made once from the table. */
import { HoldfastError } from '../core/index.ts'
import { isPublic, type Route } from '../doors/route.ts'

class Segment {
  readonly named = new Map<string, Segment>()
  any: Segment | null = null
  readonly routes = new Map<string, Route>()
}

export type Match = {
  readonly route: Route
  readonly params: readonly string[]
  /** The query, without its question mark. */
  readonly search: string
}

export class Router {
  readonly #root = new Segment()

  constructor(routes: readonly Route[]) {
    for (const route of routes) this.#add(route)
  }

  #add(route: Route): void {
    let segment = this.#root
    for (const part of segmentsOf(route.path)) {
      const isParameter = part.startsWith(':')
      const next = (isParameter ? segment.any : segment.named.get(part)) ?? new Segment()
      if (isParameter) segment.any = next
      else segment.named.set(part, next)
      segment = next
    }
    if (segment.routes.has(route.method)) throw new Error(`${route.method} ${route.path} twice`)
    segment.routes.set(route.method, route)
  }

  /** Throws `route_unknown`, or `method_not_allowed` with the methods that are. */
  match(method: string, target: string): Match {
    const question = target.indexOf('?')
    const path = question === -1 ? target : target.slice(0, question)
    const params: string[] = []
    const segment = this.#find(path, params)
    if (segment === null) throw new HoldfastError('route_unknown', 'there is nothing at this path')
    const route = segment.routes.get(method) ?? headRoute(method, segment)
    if (route === undefined) throw notAllowed(method, [...segment.routes.keys()])
    return { route, params, search: question === -1 ? '' : target.slice(question + 1) }
  }

  #find(path: string, params: string[]): Segment | null {
    let segment: Segment | null | undefined = this.#root
    if (!path.startsWith('/')) return null
    for (const part of segmentsOf(path)) {
      const named: Segment | undefined = segment.named.get(part)
      if (named === undefined && part !== '' && segment.any !== null) {
        params.push(decode(part))
        segment = segment.any
      } else if (named === undefined) {
        return null
      } else {
        segment = named
      }
    }
    return segment.routes.size === 0 ? null : segment
  }
}

/** Public routes answer HEAD too, which load balancers use. */
function headRoute(method: string, { routes }: Segment): Route | undefined {
  const route = method === 'HEAD' ? routes.get('GET') : undefined
  return route !== undefined && isPublic(route) ? route : undefined
}

function segmentsOf(path: string): readonly string[] {
  return path.slice(1).split('/')
}

function notAllowed(method: string, allowed: readonly string[]): HoldfastError {
  return new HoldfastError('method_not_allowed', `${method} is not possible here`, { allowed })
}

function decode(part: string): string {
  if (!part.includes('%')) return part
  try {
    return decodeURIComponent(part)
  } catch {
    throw new HoldfastError('bad_request', 'the path has a malformed percent-encoding')
  }
}
