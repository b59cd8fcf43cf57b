/**
 * One schema per message: it is the type, the check, and what the reference says. A value that does
 * not fit is refused with the name of its first wrong field, and what that field must be.
 */
import type {
  SchemaOptions,
  Static,
  TOptional,
  TProperties,
  TSchema,
  TUnsafe,
} from '@sinclair/typebox'
import type { TypeCheck, ValueError } from '@sinclair/typebox/compiler'
import { invalid, type HoldfastError } from '../core/errors.ts'
import { Kind, Type, TypeCompiler, TypeRegistry, ValueErrorType } from './typebox.ts'

/** An option of objects: they have no other fields. */
export const EXACT = { additionalProperties: false } as const
/** An option of schemas: the problem with a value, where the keywords do not say it well. */
export const PROBLEM = Symbol('problem')
/** An option of objects and records: the problem with a name that they do not have. */
export const UNKNOWN_NAME = Symbol('unknown name')

/** How deep JSON of any shape may nest: more would overflow the stack when it is written. */
const NESTING_MAX = 64
/** Of how many errors the best is chosen: a large value may have as many as it has parts. */
const ERRORS_MAX = 16

TypeRegistry.Set<TSchema>('OneOf', (schema, value) => (schema['enum'] as unknown[]).includes(value))
TypeRegistry.Set<ListSchema>('List', isList)
TypeRegistry.Set('Limit', (_, value) => typeof value === 'number' && value >= 0)
TypeRegistry.Set('Anything', (_, value) => value !== undefined && !nestsTooDeep(value))
TypeRegistry.Set<TSchema>('Input', (_, value) => isInput(value) && !nestsTooDeep(value))

/** One of these texts. */
export function oneOf<const Value extends string>(
  values: readonly Value[],
  options: SchemaOptions = {},
): TUnsafe<Value> {
  return Type.Unsafe({ ...options, [Kind]: 'OneOf', type: 'string', enum: values })
}

type ListSchema = TSchema & {
  readonly items: { readonly enum?: readonly string[] }
  readonly minItems?: number
  readonly maxItems?: number
}

/** A list of texts, or of these texts; it is refused as a whole. */
export function list<const Value extends string>({
  values,
  ...options
}: SchemaOptions & { readonly values?: readonly Value[] } = {}): TUnsafe<readonly Value[]> {
  const items = values === undefined ? {} : { enum: values }
  return Type.Unsafe({
    ...options,
    [Kind]: 'List',
    [PROBLEM]: `must be a list of ${values === undefined ? 'texts' : values.join(', ')}`,
    type: 'array',
    items: { type: 'string', ...items },
  })
}

function isList({ items, minItems = 0, maxItems = Infinity }: ListSchema, value: unknown): boolean {
  if (!Array.isArray(value) || value.length < minItems || value.length > maxItems) return false
  return value.every((one) => typeof one === 'string' && (items.enum?.includes(one) ?? true))
}

/** A number that is not negative; in JavaScript also infinity. */
export function limit(options: SchemaOptions = {}): TUnsafe<number> {
  const words = { [PROBLEM]: 'must be a number that is not negative' }
  return Type.Unsafe({ ...options, ...words, [Kind]: 'Limit', type: 'number', minimum: 0 })
}

/** JSON of any shape that does not nest too deep. */
export function anything(options: SchemaOptions = {}): TUnsafe<unknown> {
  return Type.Unsafe({ ...options, [Kind]: 'Anything' })
}

/** A part of an input: `data` in requests, `bytes` in answers. The core checks it. */
const PART = {
  type: 'object',
  required: ['type'],
  properties: {
    type: { type: 'string', enum: ['text', 'image', 'file'] },
    text: { type: 'string' },
    name: { type: 'string' },
    mediaType: { type: 'string', examples: ['image/png'] },
    data: { type: 'string', contentEncoding: 'base64' },
    digest: { type: 'string', pattern: '^sha256:[0-9a-f]{64}$' },
    bytes: { type: 'integer' },
  },
}

/** The input of a turn. */
export function input<Input>(options: SchemaOptions = {}): TUnsafe<Input> {
  const text = { type: 'string' }
  const parts = { type: 'array', minItems: 1, items: PART }
  const object = {
    type: 'object',
    properties: { text, parts },
    anyOf: [{ required: ['text'] }, { required: ['parts'] }],
  }
  const words = { [PROBLEM]: 'must be a text, or an object with a text or parts' }
  return Type.Unsafe({ ...options, ...words, [Kind]: 'Input', anyOf: [text, object] })
}

export function orNull<Schema extends TSchema>(schema: Schema, options: SchemaOptions = {}) {
  return Type.Union([schema, Type.Null()], options)
}

/** The same fields, none of which must be there. */
export function optional<Fields extends TProperties>(fields: Fields) {
  const entries = Object.entries(fields).map(([name, field]) => [name, Type.Optional(field)])
  return Object.fromEntries(entries) as { [Name in keyof Fields]: TOptional<Fields[Name]> }
}

/** The field is empty where the value as a whole is refused. */
export type RefuseField = (field: string, problem: string) => HoldfastError

/** The check of a schema, which is compiled when it is first needed. */
export function contract<Schema extends TSchema>(
  schema: Schema,
  unknownName = 'is no field here',
): (value: unknown, refuse?: RefuseField) => Static<Schema> {
  let check: TypeCheck<Schema> | null = null
  return (value, refuse = invalid) => {
    check ??= TypeCompiler.Compile(schema)
    if (check.Check(value)) return value
    const error = mostUseful(check.Errors(value))
    throw refuse(fieldOf(error.path), problemOf(error, unknownName))
  }
}

/** An unknown name before what is missing: it may be the missing one, misspelt. */
function mostUseful(errors: Iterable<ValueError>): ValueError {
  const found: ValueError[] = []
  for (const error of errors) if (found.push(error) === ERRORS_MAX) break
  const unknown = found.find(({ type }) => type === ValueErrorType.ObjectAdditionalProperties)
  const best = unknown ?? found[0]
  if (best === undefined) throw new TypeError('a value that does not fit has no error')
  return best
}

/** `/agents/claude` is `agents.claude`. */
function fieldOf(pointer: string): string {
  const names = pointer.slice(1).split('/')
  return names.map((name) => name.replaceAll('~1', '/').replaceAll('~0', '~')).join('.')
}

function problemOf({ type, schema, value }: ValueError, unknownName: string): string {
  switch (type) {
    case ValueErrorType.ObjectAdditionalProperties: {
      const names = Object.keys((schema['properties'] ?? {}) as object).join(', ')
      return wordsOf(schema, UNKNOWN_NAME) ?? `${unknownName}; there are: ${names || 'none'}`
    }
    case ValueErrorType.ObjectRequiredProperty:
      return 'is missing'
    case ValueErrorType.IntegerMaximum:
      return `must be at most ${schema['maximum']}`
    default:
      return nestsTooDeep(value)
        ? `must not nest deeper than ${NESTING_MAX}`
        : (wordsOf(schema, PROBLEM) ?? `must be ${expectationOf(schema)}`)
  }
}

function wordsOf(schema: TSchema, about: symbol): string | undefined {
  return (schema as unknown as Record<symbol, string | undefined>)[about]
}

/** What a value must be, by the kind of its schema. */
const EXPECTATIONS: Readonly<Record<string, (schema: TSchema) => string>> = {
  String: ({ minLength }) => (Number(minLength) > 0 ? 'a text, not empty' : 'a text'),
  Boolean: () => 'true or false',
  Integer: ({ minimum }) => `a whole number from ${minimum} on`,
  OneOf: (schema) => `one of ${(schema['enum'] as string[]).join(', ')}`,
  Union: ({ anyOf }) => (anyOf as TSchema[]).map(expectationOf).join(', or '),
  Null: () => 'null',
}

function expectationOf(schema: TSchema): string {
  return EXPECTATIONS[schema[Kind]]?.(schema) ?? 'an object'
}

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return isObject(value) && !Array.isArray(value)
}

function isInput(value: unknown): boolean {
  if (!isRecord(value)) return typeof value === 'string'
  const { text, parts } = value
  return typeof text === 'string' || (text === undefined && Array.isArray(parts))
}

/** Level by level: recursion is what deep nesting would break. */
export function nestsTooDeep(value: unknown): boolean {
  let level: unknown[] = [value]
  for (let depth = 0; depth <= NESTING_MAX; depth += 1) {
    level = level.flatMap((one) => (isObject(one) ? Object.values(one) : [])).filter(isObject)
    if (level.length === 0) return false
  }
  return true
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null
}
