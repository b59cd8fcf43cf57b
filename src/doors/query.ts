/** Queries by their schemas: numbers and flags as such, no unknown name, each name once. */
import { Type, type Static, type TProperties } from '../schema/typebox.ts'
import { invalid } from '../core/index.ts'
import { contract, EXACT, optional } from '../schema/contract.ts'

export type Query<Fields extends TProperties = TProperties> = {
  readonly fields: Fields
  /** The text of a query, or its parameters one by one. */
  readonly read: (search: string | Iterable<readonly [string, string]>) => {
    readonly [Name in keyof Fields]?: Static<Fields[Name]>
  }
}

/** A query of these parameters, none of which must be there. */
export function query<Fields extends TProperties>(fields: Fields): Query<Fields> {
  const check = contract(Type.Object(optional(fields), EXACT), 'is no query parameter here')
  return { fields, read: (search) => (search === '' ? {} : check(valuesOf(search, fields))) }
}

export const NO_QUERY = query({})

function valuesOf(
  search: Parameters<Query['read']>[0],
  fields: TProperties,
): Readonly<Record<string, unknown>> {
  const values: Record<string, unknown> = {}
  for (const [name, text] of typeof search === 'string' ? new URLSearchParams(search) : search) {
    if (Object.hasOwn(values, name)) throw invalid(name, 'must be there only once')
    const type: unknown = Object.hasOwn(fields, name) ? fields[name]?.['type'] : undefined
    if (type === 'integer' && /^\d{1,15}$/.test(text)) values[name] = Number(text)
    else if (type === 'boolean' && /^(true|false)$/.test(text)) values[name] = text === 'true'
    else values[name] = text
  }
  return values
}
