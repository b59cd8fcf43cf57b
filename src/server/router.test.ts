import { describe, expect, it } from 'vitest'
import type { Route } from '../doors/route.ts'
import { Router } from './router.ts'

function route(method: Route['method'], path: string): Route {
  return {
    method,
    path,
    name: path,
    summary: '',
    operation: 'server.look',
    answers: {},
    handle: () => undefined,
  }
}

const router = new Router([
  route('GET', '/'),
  route('GET', '/v1/sessions'),
  route('GET', '/v1/sessions/:id'),
  route('DELETE', '/v1/sessions/:id'),
  route('GET', '/v1/sessions/:id/turns/:turn'),
])

describe('the router', () => {
  it.each([
    ['/', '/', []],
    ['/v1/sessions', '/v1/sessions', []],
    ['/v1/sessions?a=/b', '/v1/sessions', []],
    ['/v1/sessions/x', '/v1/sessions/:id', ['x']],
    ['/v1/sessions/a%2Fb%20%C3%A9', '/v1/sessions/:id', ['a/b é']],
    ['/v1/sessions/x/turns/t2', '/v1/sessions/:id/turns/:turn', ['x', 't2']],
    ['/v1/sessions/__proto__', '/v1/sessions/:id', ['__proto__']],
  ])('takes %s to %s', (target, path, params) => {
    const match = router.match('GET', target)
    expect([match.route.path, match.params]).toEqual([path, params])
  })

  it.each([
    ['GET', '/v1', 'route_unknown'],
    ['GET', '/v1/sessions/', 'route_unknown'],
    ['GET', '/v1/sessions//turns/t2', 'route_unknown'],
    ['GET', 'http://localhost/v1/sessions', 'route_unknown'],
    ['GET', '*', 'route_unknown'],
    ['GET', '/constructor', 'route_unknown'],
    ['POST', '/v1/sessions/x', 'method_not_allowed'],
    ['GET', '/v1/sessions/%', 'bad_request'],
    ['GET', '/v1/sessions/%ff', 'bad_request'],
  ])('refuses %s %s with %s', (method, target, code) => {
    expect(() => router.match(method, target)).toThrow(expect.objectContaining({ code }))
  })

  it('takes HEAD for GET where everybody may look', () => {
    const open = route('GET', '/health')
    const own = new Router([open, { ...route('GET', '/v1/sessions'), operation: 'session.read' }])
    expect(own.match('HEAD', '/health').route).toBe(open)
    expect(() => own.match('HEAD', '/v1/sessions')).toThrow('HEAD is not possible here')
  })

  it('does not take a table with the same route twice', () => {
    const twice = [route('GET', '/a/:one'), route('GET', '/a/:other')]
    expect(() => new Router(twice)).toThrow('twice')
  })
})
