/** What a door offers: one table drives the routing, the refusals and the OpenAPI document. */
import { invalid, type ListLabel, type SessionHandle, type SessionRef } from '../core/index.ts'
import { contract, EXACT, optional, PROBLEM } from '../schema/contract.ts'
import { Type, type Static, type TProperties } from '../schema/typebox.ts'
import { EVENT_STREAM_TYPE } from '../wire/server-sent-events.ts'
import type { Exchange } from './exchange.ts'
import { OPERATIONS, type Operation } from '../core/access.ts'

export const METHODS = ['GET', 'POST', 'PATCH', 'DELETE'] as const
export type Method = (typeof METHODS)[number]

/** A JSON Schema, as OpenAPI 3.1 takes it. */
export type Schema = { readonly [keyword: string]: unknown }

export type Header = { readonly name: string; readonly description: string }

/** An answer: what it means, and its body by media type. */
export type RouteAnswer = {
  readonly description: string
  readonly content?: Readonly<Record<string, Schema>>
}

export type Route = {
  readonly method: Method
  /** `:name` stands for one part of the path, in which anything may be percent-encoded. */
  readonly path: string
  readonly name: string
  readonly summary: string
  /** What it does, which says what a token must allow. */
  readonly operation: Operation
  /** Unless it says so, none; null: it is not looked at. */
  readonly query?: Query | null
  readonly headers?: readonly Header[]
  readonly body?: Schema
  /** By default JSON. */
  readonly bodyType?: string
  /** What a body may hold besides a turn's input: a history that a client sends along. */
  readonly historyBytesMax?: number
  /** Its body may have images and files. */
  readonly takesParts?: boolean
  readonly answers: Readonly<Record<number, RouteAnswer>>
  /** The statuses it refuses with, besides those that every route has. */
  readonly refusals?: readonly number[]
  /**
   * The session that a request is about, where only its owner can answer: the server forwards it
   * there before `handle` runs. Null, or left out: any node can answer.
   */
  readonly session?: (exchange: Exchange) => SessionRef | null | Promise<SessionRef | null>
  /** The node that a request is for, if only that one can answer it: any other refuses it. */
  readonly node?: (exchange: Exchange) => string | null
  readonly handle: (exchange: Exchange) => Promise<void> | void
}

/** Routes by method and path, as in `GET /v1/sessions/:id`. */
export function routes(
  table: Readonly<Record<`${Method} /${string}`, Omit<Route, 'method' | 'path'>>>,
): readonly Route[] {
  return Object.entries(table).map(([name, route]) => {
    const [method, path] = name.split(' ') as [Method, string]
    return { method, path, ...route }
  })
}

/** The session of a route whose path names it first. */
export function sessionOfPath({ session, operation }: Exchange): ReturnType<typeof visibleRef> {
  return visibleRef(session, operation)
}

/**
 * A session by its id. Whether the caller may see it is found out here: a request is not forwarded
 * to the owner of a session that does not exist for its caller.
 */
export function visibleRef(
  session: SessionHandle,
  operation: Operation | null,
): SessionRef | Promise<SessionRef> {
  const found = { id: session.id }
  if (session.access === null || operation === null) return found
  return session.assertMay(operation).then(() => found)
}

export function isPublic({ operation }: Pick<Route, 'operation'>): boolean {
  return OPERATIONS[operation] === null
}

export function json(description: string, schema: Schema): RouteAnswer {
  return { description, content: { 'application/json': schema } }
}

/** An answer that is JSON, or a stream if `Accept` asks for one. */
export function jsonOrEvents(description: string, schema: Schema): RouteAnswer {
  const events = { type: 'string', description: 'Server-sent events.' }
  return { description, content: { 'application/json': schema, [EVENT_STREAM_TYPE]: events } }
}

/**
 * A query by its schema: numbers and flags as such, no unknown name, each name once unless it is a
 * list.
 */
export type Query<Fields extends TProperties = TProperties> = {
  readonly fields: Fields
  /** The text of a query, or its parameters one by one. */
  readonly read: (search: string | Iterable<readonly [string, string]>) => {
    readonly [Name in keyof Fields]?: Static<Fields[Name]>
  }
}

/** A query of these parameters, none of which must be there. `others`: those of other names. */
export function query<Fields extends TProperties>(
  fields: Fields,
  others: 'refused' | 'ignored' = 'refused',
): Query<Fields> {
  const options = others === 'refused' ? EXACT : {}
  const check = contract(Type.Object(optional(fields), options), 'is no query parameter here')
  return {
    fields,
    read: (search) => {
      if (search === '') return {}
      const all = typeof search === 'string' ? new URLSearchParams(search) : search
      const counted =
        others === 'refused' ? all : [...all].filter(([name]) => Object.hasOwn(fields, name))
      return check(valuesOf(counted, fields))
    },
  }
}

export const NO_QUERY = query({})

/** The parameter that lists by a label. */
export const LABEL = Type.String({
  pattern: '^[^:]+:',
  [PROBLEM]: 'must be name:value',
  description: 'Only those of sessions with this label, as name:value.',
})

export function labelOf(label: string): ListLabel {
  const [, name = '', value = ''] = /^([^:]*):(.*)$/s.exec(label) ?? []
  return { name, value }
}

export function labelFilter(label: string | undefined) {
  return label === undefined ? {} : { label: labelOf(label) }
}

/** The cursor of a list, which the caller may have got encrypted. */
export async function givenCursor({ positions }: Exchange, cursor: string | undefined) {
  if (cursor === undefined) return {}
  return { cursor: positions === null ? cursor : await positions.revealCursor(cursor) }
}

export async function shownCursor({ positions }: Exchange, cursor: string | null) {
  return positions === null || cursor === null ? cursor : positions.hideCursor(cursor)
}

export const LAST_EVENT_ID = {
  name: 'Last-Event-ID',
  description: 'On a stream: the id of the last event that was seen.',
}

function valuesOf(
  search: Iterable<readonly [string, string]>,
  fields: TProperties,
): Readonly<Record<string, unknown>> {
  const values: Record<string, unknown> = {}
  for (const [name, text] of search) {
    const type: unknown = Object.hasOwn(fields, name) ? fields[name]?.['type'] : undefined
    if (type === 'array') {
      values[name] = [...((values[name] as string[] | undefined) ?? []), text]
      continue
    }
    if (Object.hasOwn(values, name)) throw invalid(name, 'must be there only once')
    if (type === 'integer' && /^\d{1,15}$/.test(text)) values[name] = Number(text)
    else if (type === 'boolean' && /^(true|false)$/.test(text)) values[name] = text === 'true'
    else values[name] = text
  }
  return values
}
