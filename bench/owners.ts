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
import { median, perSecond, type Load, type Usage } from './measure.ts'

const CALLERS = 64
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

type Variant = { readonly name: string; readonly server: Child; readonly load: readonly string[] }

type OwnersOptions = {
  readonly folder: string
  readonly seconds: number
  readonly rounds: number
  readonly verdict: (what: string, value: number, target: string, reached: boolean) => void
}

async function start(
  folder: string,
  name: string,
  entry?: (index: number) => object,
): Promise<Variant> {
  await mkdir(folder)
  const args = [join(folder, `owners-${name}.db`)]
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
    args.push(file)
  }
  if (name === 'owners') args.push(JSON.stringify(QUOTAS))
  const server = new Child('holdfast-http', args)
  return { name, server, load: [String(await server.next<number>()), ...tokens] }
}

/** Microseconds of the server's CPU for a turn. */
async function measure({ name, server, load }: Variant, seconds: number): Promise<number> {
  const [port = '', ...tokens] = load
  const client = new Child('load', [port, ...[CALLERS, KEYS, seconds].map(String), ...tokens])
  await client.next()
  await server.ask<Usage>('reset')
  const done = await client.ask<Load>('go')
  const { cpuMicros } = await server.ask<Usage>('usage')
  await client.stop()
  const cpu = cpuMicros / done.turns
  const rate = Math.round(perSecond(done)).toLocaleString('en')
  console.log(`  ${name.padEnd(8)} ${cpu.toFixed(1)} µs CPU a turn, ${rate}/s`)
  return cpu
}

export async function benchOwners(options: OwnersOptions): Promise<void> {
  const { folder, seconds, rounds, verdict } = options
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
    const ratio = median(ratios(owners, base))
    const isReached = ratio <= RATIO_MAX
    verdict(`CPU of a turn with owners, of ${what}`, ratio, `<= ${RATIO_MAX}`, isReached)
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
