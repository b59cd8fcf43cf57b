/**
 * What a server was configured with, as the audit keeps it: the paths of its settings, and which of
 * them differ from those of the last start.
 *
 * 1. No value appears. Of each there are 16 bits of a salted digest: enough to notice a change, too
 *    few to confirm a guess.
 * 2. The salt stays the same from start to start: with each further one, a reader would learn
 *    further bits of the same value.
 */
import { createHash, createHmac } from 'node:crypto'
import { inspect } from 'node:util'

/** What is compared with the next start. */
export type Fingerprint = {
  readonly salt: string
  /** By the path of a setting, like `agents.claude.command`. */
  readonly digests: Readonly<Record<string, string>>
}

/** Settings that are told apart; the rest counts as one. */
const SETTINGS_MAX = 1_000
const REST = '(more)'
const DEPTH_MAX = 8
/** Hexadecimal digits: 16 bits. */
const DIGITS = 4

/** `salt`: for a server without an earlier fingerprint. */
export function fingerprintOf(settings: object, salt: string): Fingerprint {
  const all = [...leavesOf(settings, '', 0)]
  const rest = all.splice(SETTINGS_MAX)
  if (rest.length > 0) all.push([REST, textOf(rest)])
  const digests = all.map(([path, text]) => {
    const digest = createHmac('sha256', salt).update(`${path}\n${text}`).digest('hex')
    return [path, digest.slice(0, DIGITS)] as const
  })
  return { salt, digests: Object.fromEntries(digests) }
}

/** The settings that were changed, added or removed, by their paths. */
export function changedBetween(before: Fingerprint, after: Fingerprint): readonly string[] {
  const paths = new Set([...Object.keys(before.digests), ...Object.keys(after.digests)])
  return [...paths].filter((path) => before.digests[path] !== after.digests[path]).toSorted()
}

/** The paths of the settings that two configurations differ in. */
export function changedSettings(before: object, after: object): readonly string[] {
  const known = new Map(leavesOf(before, '', 0))
  const now = new Map(leavesOf(after, '', 0))
  const paths = new Set([...known.keys(), ...now.keys()])
  return [...paths].filter((path) => known.get(path) !== now.get(path)).toSorted()
}

/** The same for the same settings. It says no more than the digests that it is made of. */
export function digestOf({ salt, digests }: Fingerprint): string {
  const sorted = Object.keys(digests).toSorted()
  const text = JSON.stringify([salt, sorted.map((path) => [path, digests[path]])])
  return createHash('sha256').update(text).digest('hex').slice(0, 16)
}

/** Every setting that has a value, as text: lists of texts and numbers are one setting. */
function* leavesOf(value: unknown, path: string, depth: number): Iterable<[string, string]> {
  if (value === null || value === undefined) return
  if (depth < DEPTH_MAX && isBranch(value)) {
    for (const [name, one] of Object.entries(value)) {
      yield* leavesOf(one, path === '' ? name : `${path}.${name}`, depth + 1)
    }
    return
  }
  // A module may have functions.
  yield [path, typeof value === 'function' ? String(value) : textOf(value)]
}

/** Also of a value that contains itself. */
function textOf(value: unknown): string {
  return inspect(value, { depth: 4, maxArrayLength: null, maxStringLength: null })
}

function isBranch(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false
  if (Array.isArray(value)) return value.length === 0 || value.some(isBranch)
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === null || prototype === Object.prototype
}
