/**
 * Which files of the server one operation goes through: those of `dist` with a function that was called
 * between the request and a moment after its reply, on a server that has done the same before. What
 * happens by the clock alone is left out: a file counts if it was used in each of several rounds.
 */
import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort } from '../support/server-process.ts'
import { openTestDatabase } from '../support/postgres.ts'
import { RawCdp } from '../support/raw-cdp.ts'
import { dial, type WireClient } from '../support/wire-client.ts'
import { MeasuredServer } from './measured-server.ts'

/** The files, or why there are none. */
export type Crossing = { readonly operation: string } & (
  | { readonly files: readonly string[] }
  | { readonly notMeasured: string }
)

const ROUNDS = { warm: 3, measured: 4 } as const
const TURN = { input: 'hello' }
const MEMORY = ['--port', '0', '--store', 'memory:']

type Measure = (root: string) => Promise<readonly string[]>

const OPERATIONS: readonly {
  readonly operation: string
  readonly measure: Measure
  /** What has to be installed for it: then it is measured with `--all` only. */
  readonly needs?: string
}[] = [
  { operation: 'native turn', measure: nativeTurn },
  { operation: 'resume', measure: resume },
  { operation: 'OpenAI stream', measure: openAiStream },
  { operation: 'CDP command', measure: cdpCommand, needs: 'Chromium' },
  { operation: 'forwarded turn', measure: forwardedTurn, needs: 'PostgreSQL' },
]

/** Which operations are measured: those that need nothing installed, all of them, or none. */
export type Extent = 'usual' | 'all' | 'none'

export async function crossingsOf(root: string, extent: Extent): Promise<Crossing[]> {
  const found: Crossing[] = []
  for (const { operation, measure, needs } of OPERATIONS) {
    if (extent === 'none' || (needs !== undefined && extent !== 'all')) {
      const notMeasured = extent === 'none' ? 'by --static' : `needs ${needs}: --all`
      found.push({ operation, notMeasured })
      continue
    }
    try {
      found.push({ operation, files: [...(await measure(root))].sort() })
    } catch (error) {
      // A commit that does not speak this protocol yet, or a program that is missing.
      found.push({ operation, notMeasured: (error as Error).message })
    }
  }
  return found
}

/** `prepare` is not measured; the servers' files are counted once for all of them. */
async function rounds(
  servers: readonly MeasuredServer[],
  operate: () => Promise<void>,
  prepare: () => Promise<void> = async () => undefined,
): Promise<string[]> {
  const taken = async (): Promise<string[]> =>
    (await Promise.all(servers.map((server) => server.taken()))).flat()
  const found: Set<string>[] = []
  for (let round = 0; round < ROUNDS.warm + ROUNDS.measured; round += 1) {
    await prepare()
    await taken()
    await operate()
    const files = await taken()
    if (round >= ROUNDS.warm) found.push(new Set(files))
  }
  const [first = new Set<string>()] = found
  const always = [...first].filter((file) => found.every((files) => files.has(file)))
  if (always.length === 0) throw new Error('no file was used: nothing was measured')
  return always
}

async function withServer<Value>(
  root: string,
  flags: readonly string[],
  use: (server: MeasuredServer) => Promise<Value>,
): Promise<Value> {
  const server = await MeasuredServer.start(root, flags)
  try {
    return await use(server)
  } finally {
    await server.stop()
  }
}

function nativeTurn(root: string): Promise<readonly string[]> {
  return withServer(root, MEMORY, (server) =>
    rounds([server], async () => void (await server.post('/v1/keys/house/turns', TURN))),
  )
}

function openAiStream(root: string): Promise<readonly string[]> {
  const body = { model: 'echo', stream: true, messages: [{ role: 'user', content: 'hello' }] }
  return withServer(root, MEMORY, (server) =>
    rounds([server], async () => {
      const headers = { 'x-session-key': 'house' }
      const text = await server.post('/v1/chat/completions', body, headers)
      if (!text.includes('[DONE]')) throw new Error(`no stream: ${text}`)
    }),
  )
}

/** A driver's connection is lost before each round; the round is its return, up to the welcome. */
function resume(root: string): Promise<readonly string[]> {
  return withServer(root, MEMORY, async (server) => {
    let client = dial(server.url, { key: 'house', options: { reconnect: 'resume' } })
    let welcome = await greeted(client)
    const lose = async (): Promise<void> => client.cut()
    const comeBack = async (): Promise<void> => {
      const { session, attachment, resume: token } = welcome
      const auth = { resume: { attachment: attachment as string, token: token as string } }
      client = dial(server.url, { session: session.id as string, auth, after: welcome['after'] })
      welcome = await greeted(client)
      if (welcome['attachment'] !== attachment) throw new Error('another attachment: no resume')
    }
    try {
      return await rounds([server], comeBack, lose)
    } finally {
      await client.cut()
    }
  })
}

async function greeted(client: WireClient) {
  const welcome = await client.frame('welcome')
  client.send({ type: 'ready', epoch: welcome['epoch'] as number })
  return welcome
}

/** `Runtime.evaluate` on a page. */
function cdpCommand(root: string): Promise<readonly string[]> {
  return withServer(root, [...MEMORY, '--browser', 'chromium'], async (server) => {
    const client = await RawCdp.open(`${server.url.replace('http:', 'ws:')}/cdp/chromium`)
    try {
      const { targetId } = await client.send('Target.createTarget', { url: 'about:blank' })
      const attach = { targetId: targetId as string, flatten: true }
      const { sessionId } = await client.send('Target.attachToTarget', attach)
      return await rounds([server], async () => {
        await client.send('Runtime.evaluate', { expression: '1 + 1' }, sessionId as string)
      })
    } finally {
      client.close()
    }
  })
}

/** Of two nodes: the one that gets the request, and the one that has the session. */
async function forwardedTurn(root: string): Promise<readonly string[]> {
  const database = await openTestDatabase()
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-house-'))
  const secret = join(folder, 'secret')
  writeFileSync(secret, randomBytes(32).toString('hex'), { mode: 0o600 })
  const store = database.freshUrl()
  const flags = async (): Promise<string[]> => {
    const port = String(await freePort())
    const cluster = ['--advertise', `http://127.0.0.1:${port}`, '--cluster-secret-file', secret]
    return ['--port', port, '--store', store, ...cluster]
  }
  try {
    return await withServer(root, await flags(), async (owner) => {
      await owner.post('/v1/keys/house/turns', TURN)
      return withServer(root, await flags(), (other) =>
        rounds([other, owner], async () => void (await other.post('/v1/keys/house/turns', TURN))),
      )
    })
  } finally {
    rmSync(folder, { recursive: true })
    await database.close()
  }
}
