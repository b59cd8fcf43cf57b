/**
 * What owners cost a turn over HTTP: a server with tokens of several principals and quotas, and one
 * with tokens of the default principal, against one without tokens. All of them keep an audit.
 * Each round measures three new servers, in turn: CPU per turn drifts with the machine, and differs
 * between two processes of the same program, by what V8 has compiled.
 */
import { createHash } from 'node:crypto'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Child } from './child.ts'
import { CALLERS, loadOn } from './http-load.ts'
import { count, median, perSecond } from './measure.ts'
import type { Results } from './results.ts'

const KEYS = 200
const PRINCIPALS = 16
const RATIO_MAX = 1.05
/** Far beyond what the load uses: they are counted, and refuse nothing. */
const QUOTAS = {
  default: {
    ...{ openSessions: 100_000, storedBytes: 1e12, runningTurns: 10_000, queuedTurns: 10_000 },
    ...{ turnsPerMinute: 100_000_000 },
  },
}

const VARIANTS = {
  none: undefined,
  tokens: () => ({}),
  owners: (index: number) => ({ principal: `p${index}`, groups: ['team'] }),
}

type Variant = {
  readonly name: string
  readonly server: Child
  readonly port: number
  readonly tokens: readonly string[]
}

type OwnersOptions = {
  readonly folder: string
  readonly seconds: number
  readonly rounds: number
  readonly results: Results
}

async function start(
  folder: string,
  name: string,
  entry?: (index: number) => object,
): Promise<Variant> {
  await mkdir(folder)
  const given: Record<string, unknown> = { store: `sqlite:${join(folder, 'owners.db')}` }
  const tokens: string[] = []
  if (entry !== undefined) {
    const entries = Array.from({ length: PRINCIPALS }, (_, index) => {
      const token = `hf_bench-token-of-${name}-${index}`
      tokens.push(token)
      const sha256 = createHash('sha256').update(token).digest('hex')
      return { name: `token-${index}`, sha256, scopes: ['talk'], ...entry(index) }
    })
    const file = join(folder, `owners-${name}.json`)
    await writeFile(file, JSON.stringify({ version: 3, tokens: entries }), { mode: 0o600 })
    given['tokens'] = file
  }
  if (name === 'owners') given['quotas'] = QUOTAS
  const server = new Child('holdfast-http', [JSON.stringify(given)])
  return { name, server, port: await server.next<number>(), tokens }
}

/** Microseconds of the server's CPU for a turn. */
async function measure({ name, server, port, tokens }: Variant, seconds: number): Promise<number> {
  const order = { port, callers: CALLERS, keys: KEYS, seconds, tokens }
  const { cpu, ...done } = await loadOn(server, order)
  console.log(`  ${name.padEnd(8)} ${cpu.toFixed(1)} µs CPU a turn, ${count(perSecond(done))}/s`)
  return cpu
}

export async function benchOwners(options: OwnersOptions): Promise<void> {
  const { folder, seconds, rounds, results } = options
  console.log(
    `\nCPU of a turn over HTTP, ${CALLERS} callers, ${KEYS} keys, with and without owners:`,
  )
  const names = Object.keys(VARIANTS) as (keyof typeof VARIANTS)[]
  const seen = new Map(names.map((name) => [name, [] as number[]]))
  for (let round = 0; round < rounds; round += 1) {
    for (const name of round % 2 === 0 ? names : names.toReversed()) {
      const variant = await start(join(folder, `${name}-${round}`), name, VARIANTS[name])
      // Its program is compiled while it is used: it is used once before it is measured.
      await measure(variant, seconds)
      seen.get(name)?.push(await measure(variant, seconds))
      await variant.server.stop()
    }
  }
  const [none = [], tokens = [], owners = []] = seen.values()
  for (const [name, cpus] of seen) {
    console.log(
      `  ${name.padEnd(8)} ${spread(cpus, 1)} µs; of none ${spread(ratios(cpus, none), 2)}`,
    )
  }
  for (const [what, base] of Object.entries({ 'without tokens': none, 'tokens without': tokens })) {
    results.judge(`CPU of a turn with owners, of ${what}`, ratios(owners, base), {
      most: RATIO_MAX,
    })
  }
}

/** Round by round. */
function ratios(cpus: readonly number[], base: readonly number[]): readonly number[] {
  return cpus.map((cpu, round) => cpu / (base[round] ?? Number.NaN))
}

function spread(values: readonly number[], digits: number): string {
  const [middle, least, most] = [median(values), Math.min(...values), Math.max(...values)]
  return `${middle.toFixed(digits)} (${least.toFixed(digits)} to ${most.toFixed(digits)})`
}
