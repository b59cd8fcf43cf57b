/** What a door offers: one table drives the routing, the refusals and the OpenAPI document. */
import type { SessionRef } from '../core/index.ts'
import type { Exchange } from './exchange.ts'
import type { Query } from './query.ts'
import { OPERATIONS, type Operation } from './scopes.ts'

export const METHODS = ['GET', 'POST', 'DELETE'] as const
export type Method = (typeof METHODS)[number]

/** A JSON Schema, as OpenAPI 3.1 takes it. */
export type Schema = { readonly [keyword: string]: unknown }

/** A header that a route reads. */
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
  /** Names the operation in the OpenAPI document. */
  readonly name: string
  readonly summary: string
  /** What it does, which says what a token must allow. */
  readonly operation: Operation
  /** Unless it says so, none; null: it is not looked at. */
  readonly query?: Query | null
  readonly headers?: readonly Header[]
  readonly body?: Schema
  /** What a body may hold besides a turn's input: a history that a client sends along. */
  readonly historyBytesMax?: number
  readonly answers: Readonly<Record<number, RouteAnswer>>
  /** The statuses it refuses with, besides those that every route has. */
  readonly refusals?: readonly number[]
  /**
   * The session that a request is about, where only its owner can answer: the server forwards it
   * there before `handle` runs. Null, or left out: any node can answer.
   */
  readonly session?: (exchange: Exchange) => SessionRef | null | Promise<SessionRef | null>
  readonly handle: (exchange: Exchange) => Promise<void> | void
}

/** Whether it is open to every client that reaches the server. */
export function isPublic({ operation }: Pick<Route, 'operation'>): boolean {
  return OPERATIONS[operation] === null
}

/** An answer that is JSON. */
export function json(description: string, schema: Schema): RouteAnswer {
  return { description, content: { 'application/json': schema } }
}
