/**
 * What answers a durable keyed turn over HTTP: Holdfast, the limits of this machine, Holdfast
 * without a part of what makes it safe, and what a user could pick instead. Each is a process of its
 * own that tells its port, with the settings that its documentation recommends.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { Child, type ChildOptions } from './child.ts'
import { INPUT } from './measure.ts'
import { NEWER_NODE } from './peers.ts'

export type Contender = {
  readonly name: string
  /** What it promises for a turn that it has answered. */
  readonly promise: string
  readonly script: string
  readonly path?: string
  readonly args?: (folder: string, sample: Sample) => readonly string[]
  readonly options?: ChildOptions
}

/** What Holdfast answers: the bare server answers the same bytes. */
export type Sample = { readonly headers: string; readonly body: string }

export const HOLDFAST: Contender = {
  name: 'Holdfast, SQLite',
  promise: 'on disk',
  script: 'holdfast-http',
  args: (folder) => [JSON.stringify({ store: `sqlite:${join(folder, 'holdfast.db')}` })],
}

export const BARE: Contender = {
  name: 'bare Node HTTP',
  promise: 'nothing',
  script: 'bare-http',
  args: (_, { headers, body }) => [headers, body],
}

/** A serial lane needs a commit for each of its turns, since none runs before its start is durable. */
export const BARE_COMMITS: Contender = {
  name: 'bare Node HTTP and SQLite',
  promise: 'on disk',
  script: 'bare-sqlite-http',
  args: (folder) => [join(folder, 'bare.db')],
}

/** In this folder a sync takes no time: it is memory. */
export const MEMORY_FOLDER = '/dev/shm'

export const LAYERS: readonly Contender[] = [
  {
    name: 'Holdfast, SQLite in memory files (no sync)',
    promise: 'survives a crash of the process',
    script: 'holdfast-http',
    args: () => {
      const folder = mkdtempSync(join(MEMORY_FOLDER, 'holdfast-bench-'))
      process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
      return [JSON.stringify({ store: `sqlite:${join(folder, 'holdfast.db')}` })]
    },
  },
  {
    name: 'Holdfast, memory store (no log on disk)',
    promise: 'nothing',
    script: 'holdfast-http',
    args: () => [JSON.stringify({ store: 'memory:' })],
  },
]

export const PEERS: readonly Contender[] = [
  {
    name: 'BullMQ lane, Redis',
    promise: 'on disk a second later (appendfsync everysec)',
    script: 'peer-bullmq',
  },
  {
    name: 'Restate virtual object, 2 partitions',
    promise: 'on disk',
    script: 'peer-restate',
    path: '/Session/KEY/turn',
    options: { execPath: NEWER_NODE },
  },
  {
    name: 'DBOS workflow, PostgreSQL',
    promise: 'on disk',
    script: 'peer-dbos',
    options: { flags: ['--no-deprecation'] },
  },
]

export async function sampleOf(port: number): Promise<Sample> {
  const answer = await fetch(`http://127.0.0.1:${port}/v1/keys/sample/turns`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ input: INPUT }),
  })
  const headers = Object.fromEntries(answer.headers)
  for (const name of ['connection', 'keep-alive', 'date']) delete headers[name]
  return { headers: JSON.stringify(headers), body: await answer.text() }
}

const NO_SAMPLE: Sample = { headers: '{}', body: '' }

export function start(
  { script, args, options }: Contender,
  folder: string,
  sample = NO_SAMPLE,
): Child {
  return new Child(script, args?.(folder, sample) ?? [], options)
}
