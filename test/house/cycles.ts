/** Import cycles: the groups of files, or of rooms, that all reach each other by imports. */
import { posix } from 'node:path'
import { imports, isNoTest, layerOf, type File } from './syntax.ts'

/** What each imports. */
export type Graph = ReadonlyMap<string, ReadonlySet<string>>

export type Cycle = {
  /** Its members, in alphabetical order. */
  readonly members: readonly string[]
  /** How many imports there are between them: one more is one more cycle. */
  readonly imports: number
}

/**
 * Which file imports which; tests are left out. Type imports count unless told otherwise: the compiler
 * erases them, a reader has to follow them.
 */
export function fileGraph(all: readonly File[], importsOf = imports): Graph {
  const imported = (file: File): string[] =>
    importsOf(file)
      .filter((specifier) => specifier.startsWith('.'))
      .map((specifier) => posix.join(posix.dirname(file.path), specifier))
  return new Map(all.filter(isNoTest).map((file) => [file.path, new Set(imported(file))]))
}

export function roomGraph(files: Graph): Graph {
  const rooms = new Map<string, Set<string>>()
  for (const [path, imported] of files) {
    const room = layerOf(path)
    const others = rooms.get(room) ?? new Set()
    for (const other of imported) if (layerOf(other) !== room) others.add(layerOf(other))
    rooms.set(room, others)
  }
  return rooms
}

export function cycles(graph: Graph): Cycle[] {
  const reached = new Map([...graph.keys()].map((member) => [member, reachedFrom(graph, member)]))
  const found = new Map<string, Cycle>()
  for (const [member, others] of reached) {
    if (!others.has(member)) continue
    const members = [...others].filter((other) => reached.get(other)?.has(member)).sort()
    const inside = members.flatMap((from) => members.filter((to) => graph.get(from)?.has(to)))
    found.set(members.join(' '), { members, imports: inside.length })
  }
  return [...found.values()].sort((one, other) => other.members.length - one.members.length)
}

function reachedFrom(graph: Graph, start: string): ReadonlySet<string> {
  const reached = new Set<string>()
  const next = [...(graph.get(start) ?? [])]
  for (let member = next.pop(); member !== undefined; member = next.pop()) {
    if (reached.has(member)) continue
    reached.add(member)
    next.push(...(graph.get(member) ?? []))
  }
  return reached
}

/** One line that names the whole cycle. */
export function cycleLine({ members, imports }: Cycle): string {
  return `${members.length} members, ${imports} imports: ${members.join(' ')}`
}
