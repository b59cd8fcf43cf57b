/** Checking what an operator wrote: every problem is told with the path of the field it is in. */
import { invalid } from '../core/index.ts'

/** Throws, naming `path`, if the value is not what it should be. */
export type Check = (value: unknown, path: string) => void
export type Fields = Readonly<Record<string, Check>>
export type Entries = Readonly<Record<string, unknown>>

/** An object with these fields and no others, those in `required` among them. */
export function readFields(
  value: unknown,
  path: string,
  { fields, required = [] }: { readonly fields: Fields; readonly required?: readonly string[] },
): Entries {
  const entries = readObject(value, path)
  for (const [name, field] of Object.entries(entries)) {
    const check = Object.hasOwn(fields, name) ? fields[name] : undefined
    if (check === undefined) {
      throw invalid(at(path, name), `is no field; there are: ${Object.keys(fields).join(', ')}`)
    }
    if (field !== undefined) check(field, at(path, name))
  }
  for (const name of required) {
    if (entries[name] === undefined) throw invalid(at(path, name), 'is missing')
  }
  return entries
}

export function readObject(value: unknown, path: string): Entries {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Entries
  throw invalid(path === '' ? 'the configuration' : path, 'must be an object')
}

/** `agents` and `claude` are `agents.claude`. */
export function at(path: string, name: string): string {
  return path === '' ? name : `${path}.${name}`
}

export const text: Check = (value, path) => {
  if (typeof value !== 'string' || value === '') throw invalid(path, 'must be a text, not empty')
}

export const texts: Check = (value, path) => {
  const isTexts = Array.isArray(value) && value.every((one) => typeof one === 'string')
  if (!isTexts) throw invalid(path, 'must be a list of texts')
}

/** Variables of an environment. */
export const variables: Check = (value, path) => {
  for (const [name, one] of Object.entries(readObject(value, path))) {
    if (name === '' || /[=\0]/.test(name)) throw invalid(at(path, name), 'is no name of a variable')
    if (typeof one !== 'string') throw invalid(at(path, name), 'must be a text')
  }
}

export const flag: Check = (value, path) => {
  if (typeof value !== 'boolean') throw invalid(path, 'must be true or false')
}

/** A whole number from 1 on. */
export const count: Check = (value, path) => {
  if (Number.isSafeInteger(value) && Number(value) >= 1) return
  throw invalid(path, 'must be a whole number from 1 on')
}

/** The longest time that a timer takes, about 25 days. */
const MILLISECONDS_MAX = 2_147_483_647

export const milliseconds: Check = (value, path) => {
  count(value, path)
  if (Number(value) <= MILLISECONDS_MAX) return
  throw invalid(path, `must be at most ${MILLISECONDS_MAX}`)
}

export function oneOf(values: readonly string[]): Check {
  return (value, path) => {
    if (typeof value === 'string' && values.includes(value)) return
    throw invalid(path, `must be one of ${values.join(', ')}`)
  }
}
