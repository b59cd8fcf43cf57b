import { describe, expect, it } from 'vitest'
import { assertDescribed } from '../../test/support/described.ts'
import { openApiDocument, serverRoutes } from './routes.ts'

type Document = {
  readonly paths: Record<string, Record<string, { operationId: string }>>
  readonly components: { readonly schemas: Record<string, unknown> }
}

const routes = serverRoutes({} as never)
const document = openApiDocument(routes) as Document

describe('the OpenAPI document', () => {
  it('has every route, and no other', () => {
    const documented = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method} ${path}`),
    )
    const routed = routes.map(
      ({ method, path }) => `${method.toLowerCase()} ${path.replace(/:(\w+)/g, '{$1}')}`,
    )
    expect(documented.toSorted()).toEqual(routed.toSorted())
    expect(new Set(routed).size).toBe(routed.length)
  })

  it('gives every operation a name of its own', () => {
    const names = routes.map(({ name }) => name)
    expect(new Set(names).size).toBe(names.length)
  })

  it('refers only to schemas that it has, and has none that nothing refers to', () => {
    const text = JSON.stringify(document)
    const used = Array.from(text.matchAll(/#\/components\/schemas\/(\w+)/g), ([, name]) => name)
    expect([...new Set(used)].toSorted()).toEqual(
      Object.keys(document.components.schemas).toSorted(),
    )
  })

  it('is compared with real answers: one that differs is an error', () => {
    const request = { method: 'DELETE', path: '/v1/sessions/a' }
    const answer = { id: 'a', state: 'closed', erased: false, left: [] }
    expect(() => assertDescribed(request, 200, answer)).not.toThrow()
    expect(() => assertDescribed(request, 200, { ...answer, erased: 0 })).toThrow('/erased')
    expect(() => assertDescribed(request, 202, answer)).toThrow('answers 202, undescribed')
  })
})
