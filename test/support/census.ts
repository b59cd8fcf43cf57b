/**
 * What a living object holds: every map, set and list that can be reached from it, private ones
 * too, with the number of its entries. For tests that nothing grows with traffic.
 */
import { Session } from 'node:inspector/promises'
import type { Runtime } from 'node:inspector'

/** What is not looked into: others' things, and bytes. */
const FOREIGN =
  /Socket|Stream|Server|Process$|Handle$|Holdfast|Authority|Timeout|Buffer|Array\(\d+\)$/

type Found = { readonly value: Runtime.RemoteObject; readonly path: string }

/** What the inspector tells of an object; its declaration leaves the private fields out. */
type Told = Runtime.GetPropertiesReturnType & {
  readonly privateProperties?: readonly {
    readonly name: string
    readonly value?: Runtime.RemoteObject
  }[]
}

export type Census = Readonly<Record<string, number>>

/** Sums by the path: `CdpDoor.#tenants` holds so many entries. */
export async function census(root: object): Promise<Census> {
  const inspector = new Session()
  inspector.connect()
  const counts: Record<string, number> = {}
  const place = { root, seen: new Set<object>() }
  Object.assign(globalThis, { census: place })
  try {
    const { result } = await inspector.post('Runtime.evaluate', { expression: 'census.root' })
    const found: Found[] = [{ value: result, path: nameOf(result) }]
    for (let next = found.pop(); next !== undefined; next = found.pop()) {
      found.push(...(await look(inspector, next, counts)))
    }
  } finally {
    Reflect.deleteProperty(globalThis, 'census')
    inspector.disconnect()
  }
  return Object.fromEntries(Object.entries(counts).toSorted(([a], [b]) => (a < b ? -1 : 1)))
}

function nameOf({ className = '', description = '' }: Runtime.RemoteObject): string {
  return className === '' ? description : className
}

async function look(
  inspector: Session,
  { value, path }: Found,
  counts: Record<string, number>,
): Promise<readonly Found[]> {
  const { objectId, subtype } = value
  if (objectId === undefined || !(await isNew(inspector, objectId))) return []
  const name = nameOf(value)
  const isCollection = subtype === 'map' || subtype === 'set' || subtype === 'array'
  const own = isCollection || name === 'Object' || subtype === 'promise' ? path : name
  if (isCollection) counts[own] = (counts[own] ?? 0) + (await sizeOf(inspector, objectId))
  const asked = { objectId, ownProperties: true }
  const answer: unknown = await inspector.post('Runtime.getProperties', asked)
  const told = answer as Told
  const fields = [...told.result, ...(told.privateProperties ?? [])]
  const found = fields.flatMap(({ name: field, value: held }) =>
    held === undefined ? [] : [{ value: held, path: isCollection ? own : `${own}.${field}` }],
  )
  for (const { name: kind, value: held } of told.internalProperties ?? []) {
    const isHeld = kind === '[[Entries]]' || kind === '[[PromiseResult]]'
    if (isHeld && held !== undefined) found.push(...(await entries(inspector, held, own)))
  }
  return found.filter(({ value: { type, ...held } }) => type === 'object' && isOurs(held))
}

/** What a map or a set has, or what a promise came to. */
async function entries(
  inspector: Session,
  { objectId, className }: Runtime.RemoteObject,
  path: string,
): Promise<Found[]> {
  if (objectId === undefined) return []
  const list = await inspector.post('Runtime.getProperties', { objectId, ownProperties: true })
  const inner = list.result.flatMap(({ value }) => (value === undefined ? [] : [value]))
  const found: Found[] = []
  for (const value of className === 'Array' ? inner : []) {
    const id = value.objectId
    if (id === undefined) continue
    const pair = await inspector.post('Runtime.getProperties', { objectId: id })
    for (const { value: held } of pair.result)
      if (held !== undefined) found.push({ value: held, path })
  }
  if (className !== 'Array') found.push({ value: { type: 'object', objectId }, path })
  return found
}

function isOurs({ className = '', description = '' }: Omit<Runtime.RemoteObject, 'type'>): boolean {
  return !FOREIGN.test(className) && !/^(Uint8Array|Buffer)/.test(description)
}

async function isNew(inspector: Session, objectId: string): Promise<boolean> {
  const body = 'const { seen } = census; const had = seen.has(this); seen.add(this); return !had'
  return (await called(inspector, objectId, body)) === true
}

async function sizeOf(inspector: Session, objectId: string): Promise<number> {
  return Number(await called(inspector, objectId, 'return this.size ?? this.length'))
}

async function called(inspector: Session, objectId: string, body: string): Promise<unknown> {
  const functionDeclaration = `function () { ${body} }`
  const asked = { objectId, functionDeclaration, returnByValue: true }
  const told: unknown = await inspector.post('Runtime.callFunctionOn', asked)
  return (told as Runtime.CallFunctionOnReturnType).result.value
}
