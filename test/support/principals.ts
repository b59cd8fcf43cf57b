/**
 * Callers of one server and what each may do with a session of Alice's: she herself, principals and
 * a group that it is shared with, a stranger and an administrator.
 */
import { createHash } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openTokenFile } from 'holdfast/server'
import { expect } from 'vitest'
import { withIncluded, type Scope } from '../../src/core/access.ts'
import { openTestDatabase, type TestDatabase } from './postgres.ts'
import type { Endpoint } from './endpoint.ts'
import { serve, type Answer, type TestServer, type TestServerOptions } from './server.ts'

export type CallerName =
  | 'alice'
  | 'phone'
  | 'keeper'
  | 'watcher'
  | 'talker'
  | 'member'
  | 'stranger'
  | 'admin'

/** Alice owns what is tried; she has three tokens. */
export const CALLERS: Readonly<Record<CallerName, object>> = {
  alice: { principal: 'alice', scopes: ['talk', 'answer', 'manage'] },
  phone: { principal: 'alice', scopes: ['talk', 'answer', 'manage'] },
  keeper: { principal: 'alice', scopes: ['manage'] },
  watcher: { principal: 'wendy', scopes: ['talk', 'answer', 'manage'] },
  talker: { principal: 'tom', scopes: ['talk', 'answer', 'manage'] },
  member: { principal: 'mia', groups: ['team'], scopes: ['talk', 'answer', 'manage'] },
  stranger: { principal: 'mallory', groups: ['others'], scopes: ['talk', 'answer', 'manage'] },
  admin: { principal: 'root', scopes: ['admin'] },
}
export const NAMES = Object.keys(CALLERS) as CallerName[]
export const SHARES = [
  { with: 'wendy', scopes: ['watch'] },
  { with: 'tom', scopes: ['talk'] },
  { with: '@team', scopes: ['watch', 'answer'] },
]

/** What each may do with Alice's session. */
const ALL: readonly Scope[] = withIncluded(['talk', 'answer', 'manage'])
export const SCOPES_ON: Readonly<Record<CallerName, readonly Scope[]>> = {
  alice: ALL,
  phone: ALL,
  keeper: ['watch', 'manage'],
  watcher: ['watch'],
  talker: ['watch', 'talk'],
  member: ['watch', 'answer'],
  stranger: [],
  admin: withIncluded(['admin']),
}

export const secretOf = (name: string): string => `hf_secret-of-${name}`
export const bearer = (name: string) => ({ authorization: `Bearer ${secretOf(name)}` })

/** A token of the file, whose secret is `secretOf` its name. */
export function tokenEntry(name: string, more: object): object {
  const sha256 = createHash('sha256').update(secretOf(name)).digest('hex')
  return { name, sha256, ...more }
}

/** The tokens of all callers. */
export const ENTRIES = Object.entries(CALLERS).map(([name, more]) => tokenEntry(name, more))

/** Files with tokens, in a folder that is removed at the end. */
export class TokenFiles {
  readonly folder: string

  constructor(folder: string) {
    this.folder = folder
  }

  static async make(): Promise<TokenFiles> {
    return new TokenFiles(await mkdtemp(join(tmpdir(), 'holdfast-principals-')))
  }

  async write(name: string, tokens: readonly object[]): Promise<string> {
    const file = join(this.folder, name)
    await writeFile(file, JSON.stringify({ version: 3, tokens }), { mode: 0o600 })
    return file
  }

  /** Those of all callers. */
  async open(): Promise<Awaited<ReturnType<typeof openTokenFile>>> {
    return openTokenFile(await this.write('tokens.json', ENTRIES))
  }

  remove(): Promise<void> {
    return rm(this.folder, { recursive: true })
  }
}

/** A session of Alice's, held by `server`, with one turn. */
export async function sharedSession(server: Endpoint, shares: readonly object[] = SHARES) {
  const headers = bearer('alice')
  const { body } = await server.call('POST', '/v1/sessions', { headers, body: {} })
  const path = `/v1/sessions/${body.id}`
  const turn = await server.call('POST', `${path}/turns`, { headers, body: { input: 'x' } })
  for (const share of shares) {
    const answer = await server.call('POST', `${path}/shares`, { headers, body: share })
    expect(answer.status).toBe(200)
  }
  return { id: body.id as string, path, turn: turn.body.turn.id as string }
}

/** What an answer tells, without what differs between any two. */
export function toldBy({ status, headers, body }: Answer, id: string): string {
  const rest = [...headers].filter(([name]) => name !== 'date')
  return JSON.stringify([status, rest, body]).replaceAll(id, 'ID')
}

/** One server by itself, and two nodes on one database, all with the tokens of all callers. */
export class Servers {
  readonly files: TokenFiles
  readonly single: TestServer
  readonly far: TestServer
  readonly near: TestServer
  readonly #database: TestDatabase

  constructor(files: TokenFiles, database: TestDatabase, all: readonly TestServer[]) {
    this.files = files
    this.#database = database
    const [single, far, near] = all as [TestServer, TestServer, TestServer]
    this.single = single
    this.far = far
    this.near = near
  }

  static async open(options: TestServerOptions): Promise<Servers> {
    const [files, database] = await Promise.all([TokenFiles.make(), openTestDatabase()])
    const store = database.freshUrl()
    const all: TestServer[] = []
    for (const more of [{}, { store, isNode: true }, { store, isNode: true }]) {
      all.push(await serve({ ...options, ...more, tokens: await files.open() }))
    }
    return new Servers(files, database, all)
  }

  async close(): Promise<void> {
    await Promise.all([this.single, this.near, this.far].map((server) => server.close()))
    await this.#database.close()
    await this.files.remove()
  }
}

/** The server that owns a session, and the one that is asked about it. */
export const WHERE: Readonly<
  Record<string, (servers: Servers) => readonly [TestServer, TestServer]>
> = {
  'on one server': ({ single }) => [single, single],
  'through the node that does not own it': ({ far, near }) => [far, near],
}
