/** Answers of the native API as the OpenAPI document describes them: what differs is an error. */
import { Value } from './typebox-value.ts'
import type { TSchema } from '@sinclair/typebox'
import { NATIVE_ROUTES, Problem } from '../../src/server/routes.ts'

/** As `fetch`; a JSON answer of a native route is checked. */
export async function fetchDescribed(url: string, init: RequestInit = {}): Promise<Response> {
  const response = await fetch(url, init)
  const type = response.headers.get('content-type') ?? ''
  if (/^application\/(problem\+)?json$/.test(type)) {
    const request = { method: init.method ?? 'GET', path: new URL(url).pathname }
    assertDescribed(request, response.status, await response.clone().json())
  }
  return response
}

export function assertDescribed(
  { method, path }: { readonly method: string; readonly path: string },
  status: number,
  body: unknown,
): void {
  const route = NATIVE_ROUTES.find((one) => one.method === method && pattern(one.path).test(path))
  if (route === undefined) return
  const schema = status >= 400 ? Problem : route.answers[status]?.content?.['application/json']
  if (schema === undefined) throw new Error(`${method} ${path} answers ${status}, undescribed`)
  const error = Value.Errors(schema as TSchema, body).First()
  if (error === undefined) return
  throw new Error(`${method} ${path} answers ${status} with another ${error.path} than described`)
}

function pattern(path: string): RegExp {
  return new RegExp(`^${path.replace(/:\w+/g, '[^/]+')}$`)
}
