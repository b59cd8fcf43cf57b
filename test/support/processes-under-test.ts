/**
 * `holdfast serve` as the scenarios start it: one process on a folder, or, where they run through
 * two nodes, two on one PostgreSQL. Then each use of the address names the other one, and what
 * happens to the server happens to both.
 */
import { mkdirSync } from 'node:fs'
import { passedOnBy, trafficUnderTest, type Traffic } from './nodes-under-test.ts'
import { Cluster, ServerProcess } from './server-process.ts'
import { storeUnderTest } from './store-under-test.ts'

export interface ProcessUnderTest {
  readonly url: string
  kill(): Promise<unknown>
  stop(): Promise<unknown>
}

type Start = { readonly flags: readonly string[]; readonly env: NodeJS.ProcessEnv }

/** Less than the usual one: a node that is started again waits for it. */
const LEASE_MS = 3_000
/** Nor does a node that stops wait for a load balancer to notice. */
const NO_LINGERING = ['--drain-ms', '0']

/** By the folder that outlives the server. */
const clusters = new Map<string, Cluster>()

export async function startProcess(data: string, start: Start): Promise<ProcessUnderTest> {
  const traffic = trafficUnderTest()
  if (traffic === null) return ServerProcess.start({ data, ...start })
  mkdirSync(data, { recursive: true })
  const options = { leaseMs: LEASE_MS, parent: data }
  const cluster = clusters.get(data) ?? new Cluster(storeUnderTest(''), options)
  clusters.set(data, cluster)
  const { flags, env } = start
  const both = [1, 2].map(() => cluster.add([...NO_LINGERING, ...flags], { cwd: data, env }))
  return new BothNodes(cluster, await Promise.all(both), traffic)
}

class BothNodes implements ProcessUnderTest {
  readonly #cluster: Cluster
  readonly #nodes: readonly ServerProcess[]
  readonly #traffic: Traffic

  constructor(cluster: Cluster, nodes: readonly ServerProcess[], traffic: Traffic) {
    this.#cluster = cluster
    this.#nodes = nodes
    this.#traffic = traffic
  }

  get url(): string {
    this.#traffic.uses += 1
    return this.#nodes[this.#traffic.uses % 2]!.url
  }

  async kill(): Promise<void> {
    await this.#count()
    await this.#cluster.killNodes()
  }

  async stop(): Promise<void> {
    await this.#count()
    await Promise.all(this.#nodes.map((node) => node.stop()))
    await this.#cluster.killNodes()
  }

  async #count(): Promise<void> {
    for (const { url, isRunning } of this.#nodes) {
      if (isRunning) this.#traffic.passedOn += await passedOnBy(url)
    }
  }
}
