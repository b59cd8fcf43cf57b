/** From a method and a path to a route. */
import { HoldfastError } from '../core/index.ts'
import { isPublic, type Route } from '../doors/route.ts'

/** What `next` has for any segment: no segment holds a slash. */
const ANY = '/'

class Segment {
  readonly next = new Map<string, Segment>()
  readonly routes = new Map<string, Route>()
}

/** From a method and a path to a route: a tree of path segments, made once from the table. */
export class Router {
  readonly #root = new Segment()

  constructor(routes: readonly Route[]) {
    for (const route of routes) this.#add(route)
  }

  #add(route: Route): void {
    let segment = this.#root
    for (const part of segmentsOf(route.path)) {
      const name = part.startsWith(':') ? ANY : part
      const next = segment.next.get(name) ?? new Segment()
      segment.next.set(name, next)
      segment = next
    }
    if (segment.routes.has(route.method)) throw new Error(`${route.method} ${route.path} twice`)
    segment.routes.set(route.method, route)
  }

  /**
   * The route, what the path has in place of its parameters, and the query. Throws `route_unknown`,
   * or `method_not_allowed` with the methods that are.
   */
  match(method: string, target: string) {
    const question = target.indexOf('?')
    const path = question === -1 ? target : target.slice(0, question)
    const params: string[] = []
    const routes = this.#find(path, params)?.routes
    if (routes === undefined || routes.size === 0) {
      throw new HoldfastError('route_unknown', 'there is nothing at this path')
    }
    // Public routes answer HEAD too, which load balancers use.
    const looked = method === 'HEAD' ? routes.get('GET') : undefined
    const route = routes.get(method) ?? (looked && isPublic(looked) ? looked : undefined)
    if (route === undefined) {
      const allowed = [...routes.keys()]
      throw new HoldfastError('method_not_allowed', `${method} is not possible here`, { allowed })
    }
    return { route, params, search: question === -1 ? '' : target.slice(question + 1) }
  }

  #find(path: string, params: string[]): Segment | null {
    if (!path.startsWith('/')) return null
    let segment = this.#root
    for (const part of segmentsOf(path)) {
      let next = segment.next.get(part)
      if (next === undefined && part !== '') {
        next = segment.next.get(ANY)
        if (next !== undefined) params.push(decode(part))
      }
      if (next === undefined) return null
      segment = next
    }
    return segment
  }
}

function segmentsOf(path: string): readonly string[] {
  return path.slice(1).split('/')
}

function decode(part: string): string {
  if (!part.includes('%')) return part
  try {
    return decodeURIComponent(part)
  } catch {
    throw new HoldfastError('bad_request', 'the path has a malformed percent-encoding')
  }
}
