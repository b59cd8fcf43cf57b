/**
 * On how many nodes the scenarios run: on one, unless configured otherwise. On two, each use of the
 * server's address names the other node, as a load balancer would have it. A call of the library
 * goes to either as well, and to its neighbour if that owns the session.
 */
import { randomBytes } from 'node:crypto'
import { openHoldfast, type Holdfast, type OpenOptions } from 'holdfast'
import { startServer, type HoldfastServer, type ServerOptions } from 'holdfast/server'
import { freePort } from './server-process.ts'

export type Traffic = {
  /** How often a node's address was asked for. */
  uses: number
  /** Requests and sockets that were passed on to the other node. */
  passedOn: number
  /** What shows the servers that they may tell. */
  readonly headers?: Readonly<Record<string, string>>
}

type Node = { readonly holdfast: Holdfast; readonly port: number }

const secret = randomBytes(32).toString('hex')
const nodesOf = new WeakMap<object, readonly Node[]>()
let traffic: Traffic | null = null

/** From now on every scenario has two nodes, and this is counted; null: one again. */
export function runOnTwoNodes(counted: Traffic | null): void {
  traffic = counted
}

/** What is counted while there are two nodes; null: there is one. */
export function trafficUnderTest(): Traffic | null {
  return traffic
}

/** Where nodes make no difference between several, the last stands for all through two of them. */
export function someOf<One>(all: readonly One[]): readonly One[] {
  return traffic === null ? all : all.slice(-1)
}

/** Opens Holdfast, twice if need be. */
export async function openUnderTest(options: OpenOptions): Promise<Holdfast> {
  if (traffic === null) return openHoldfast(options)
  const nodes: Node[] = []
  for (let made = 0; made < 2; made += 1) {
    const port = await freePort()
    const advertise = `http://127.0.0.1:${port}`
    nodes.push({ port, holdfast: await openHoldfast({ ...options, advertise }) })
  }
  const both = nodes.map(({ holdfast }) => holdfast)
  const facade = over(both[0]!, {
    resolve: inTurn(both),
    session: (id: string) => over({}, {}, eitherOf(both, id)),
    authority: over(both[0]!.authority, {}, sumOf(both)),
    close: async () => void (await Promise.all(both.map((holdfast) => holdfast.close()))),
  })
  nodesOf.set(facade, nodes)
  return facade
}

/** Starts a server for each node. */
export async function startUnderTest(options: ServerOptions): Promise<HoldfastServer> {
  const nodes = nodesOf.get(options.holdfast)
  const counted = traffic
  if (nodes === undefined || counted === null) return startServer(options)
  const servers = await Promise.all(
    nodes.map(({ holdfast, port }) =>
      startServer({ ...options, holdfast, port, cluster: { secret } }),
    ),
  )
  const closing = async (how?: Parameters<HoldfastServer['close']>[0]): Promise<void> => {
    for (const { url } of servers) counted.passedOn += await passedOnBy(url, counted.headers)
    await Promise.all(servers.map((server) => server.close(how)))
  }
  return over(servers[0]!, { close: closing }, (name) => {
    if (name !== 'url') return undefined
    counted.uses += 1
    return servers[counted.uses % 2]!.url
  })
}

/** The object, but for some of what it has. */
function over<Whole extends object>(
  whole: Whole,
  parts: Record<string, unknown>,
  computed: (name: string) => unknown = () => undefined,
): Whole {
  return new Proxy(whole, {
    get(target, name) {
      const found = typeof name === 'string' ? (parts[name] ?? computed(name)) : undefined
      if (found !== undefined) return found
      const value: unknown = Reflect.get(target, name, target)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

/** One after the other, until it is known where the session of a key is. */
function inTurn(both: readonly Holdfast[]): (options?: Keyed) => Promise<unknown> {
  const owners = new Map<string, Holdfast>()
  let calls = 0
  return (options) => {
    const key = options?.key ?? ''
    calls += 1
    const one = owners.get(key) ?? both[(calls + 1) % 2]!
    const resolveAt = async (node: Holdfast): Promise<unknown> => {
      const session = await node.resolve(options)
      if (key !== '') owners.set(key, node)
      return session
    }
    const other = both.find((node) => node !== one)!
    return elsewhereIfRefused(
      () => resolveAt(one),
      () => resolveAt(other),
    )
  }
}

type Keyed = { readonly key?: string }

/** The steps of a session that may be taken wherever it is. */
function eitherOf(both: readonly Holdfast[], id: string): (name: string) => unknown {
  const [one, other] = both.map(
    (holdfast) => holdfast.session(id) as unknown as Record<string, Step>,
  )
  return (name) =>
    (...args: unknown[]) =>
      elsewhereIfRefused(
        () => one![name]!(...args),
        () => other![name]!(...args),
      )
}

type Step = (...args: unknown[]) => Promise<unknown>

/** As a server forwards a request: a node that refuses with this error has done nothing. */
async function elsewhereIfRefused(
  here: () => Promise<unknown>,
  there: () => Promise<unknown>,
): Promise<unknown> {
  try {
    return await here()
  } catch (refusal) {
    if ((refusal as { code?: string }).code !== 'not_owner') throw refusal
    return there()
  }
}

/** What is counted, is counted over both. */
function sumOf(both: readonly Holdfast[]): (name: string) => unknown {
  const sum = (numbers: readonly number[]): number => numbers.reduce((one, two) => one + two, 0)
  return (name) => {
    if (name === 'heldCount') return sum(both.map(({ authority }) => authority.heldCount))
    if (name !== 'counters') return undefined
    const all = both.map(({ authority }) => authority.counters as unknown as Record<string, number>)
    return Object.fromEntries(
      Object.keys(all[0]!).map((counter) => [counter, sum(all.map((one) => one[counter]!))]),
    )
  }
}

/** How much a node has passed on so far, if a caller with these headers may know. */
export async function passedOnBy(
  url: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<number> {
  const text = await (await fetch(`${url}/metrics`, { headers })).text()
  const found = text.matchAll(/^holdfast_forwards_total\{outcome="(\w+)"\} (\d+)$/gm)
  return [...found].reduce(
    (sum, [, outcome, count]) =>
      outcome === 'passed_on' || outcome === 'sockets' ? sum + Number(count) : sum,
    0,
  )
}
