/** The OpenAPI 3.1 document, made from the very table that routes requests. */
import { Kind, Type } from '../schema/typebox.ts'
import * as native from '../doors/native/schemas.ts'
import { isOpenAiPath } from '../doors/openai/errors.ts'
import * as openai from '../doors/openai/schemas.ts'
import { NO_QUERY, type Query, type Route, type Schema } from '../doors/route.ts'
import { OPERATIONS } from '../doors/scopes.ts'
import * as bodies from '../wire/bodies.ts'
import { PROBLEM_TYPE } from '../wire/problem.ts'
import { VERSION } from '../wire/version.ts'

/** The statuses that any route may refuse with. */
const COMMON_REFUSALS = [400, 403, 422, 429, 500, 503] as const

const text = Type.String()
export const Problem = Type.Object({
  type: text,
  title: text,
  status: Type.Integer(),
  code: Type.String({ description: 'What programs branch on.' }),
  detail: Type.String({ description: 'One sentence for people.' }),
  position: Type.Optional(
    Type.Integer({ description: 'With session_busy: the place in the queue.' }),
  ),
  retryAfterMs: Type.Optional(Type.Integer()),
})

/** Exported schemas have a name in the document, that of the export. */
const NAMED = Object.entries<object>({ ...bodies, ...native, ...openai, Problem }).filter(
  ([, exported]) => Kind in exported,
)
const NAMES = new Map<unknown, string>(NAMED.map(([name, schema]) => [schema, name]))

export function openApiDocument(routes: readonly Route[]): Schema {
  const paths: Record<string, Record<string, Schema>> = {}
  for (const route of routes) {
    const path = route.path.replace(/:(\w+)/g, '{$1}')
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operation(route) }
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Holdfast',
      version: VERSION,
      description: 'The session authority: sessions, turns, events and asks.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    paths: withReferences(paths),
    components: {
      schemas: Object.fromEntries(
        NAMED.map(([name, schema]) => [name, withReferences({ ...schema })]),
      ),
      securitySchemes: { token: { type: 'http', scheme: 'bearer' } },
    },
  }
}

/** The same JSON, with a reference in place of each schema that has a name. */
function withReferences(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value
  const name = NAMES.get(value)
  if (name !== undefined) return { $ref: `#/components/schemas/${name}` }
  if (Array.isArray(value)) return value.map(withReferences)
  return Object.fromEntries(
    Object.entries(value).map(([keyword, part]) => [keyword, withReferences(part)]),
  )
}

function operation(route: Route): Schema {
  const { name, summary, operation, path, headers = [], body } = route
  const { fields }: Query = route.query ?? NO_QUERY
  const scope = OPERATIONS[operation]
  const guarded = scope === null ? [] : [401]
  const statuses = [...COMMON_REFUSALS, ...guarded, ...(route.refusals ?? [])]
  const refused = statuses.map((status) => [status, refusal(status, path)] as const)
  const answered = Object.entries(route.answers).map(([status, answer]) => {
    const { description, content = {} } = answer
    const media = Object.entries(content).map(([type, schema]) => [type, { schema }])
    return [status, { description, content: Object.fromEntries(media) as Schema }] as const
  })
  return {
    operationId: name,
    summary,
    // A server without tokens asks for none.
    security: scope === null ? [] : [{ token: [scope] }, {}],
    parameters: [
      ...Array.from(path.matchAll(/:(\w+)/g), ([, parameter]) => {
        return { name: parameter, in: 'path', required: true, schema: { type: 'string' } }
      }),
      ...Object.entries(fields).map(([field, { description, ...schema }]) => {
        return { name: field, in: 'query', description, required: false, schema }
      }),
      ...headers.map((header) => {
        return { ...header, in: 'header', required: false, schema: { type: 'string' } }
      }),
    ],
    ...(body && {
      requestBody: { required: true, content: { 'application/json': { schema: body } } },
    }),
    responses: Object.fromEntries([...refused, ...answered]),
  }
}

function refusal(status: number, path: string): Schema {
  const content = isOpenAiPath(path)
    ? { 'application/json': { schema: openai.OpenAiError } }
    : { [PROBLEM_TYPE]: { schema: Problem } }
  return { description: `Refused with ${status}.`, content }
}
