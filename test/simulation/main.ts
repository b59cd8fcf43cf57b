/** `npm run simulate -- --help`: worlds on demand, one seed in detail, or the planted bugs. */
import { parseArgs } from 'node:util'
import { check, type Violation } from './checker.ts'
import { readable, type History } from './history.ts'
import { REAL } from './modules.ts'
import { MUTANTS, SEEDS_MAX, hunt } from './mutants.ts'
import { report, type WorldKind } from './report.ts'
import { checkHeld } from './wire/check-held.ts'
import { checkWire } from './wire/checker.ts'
import { runHeldWorld } from './wire/held-world.ts'
import { runWireWorld } from './wire/world.ts'
import { runWorld } from './world.ts'

const HELP = `Runs Holdfast in simulated worlds and checks the invariants of what happened.

  npm run simulate -- [options]

  --seed N      the first seed (drawn by the clock, and printed)
  --seeds N     how many seeds, a world of each kind for each (1,000; with --seed alone: 1)
  --large       worlds that last longer
  --only KIND   only worlds of this kind: "core", nodes on a store, "wire", clients on sockets, or
                "held", connections to a browser
  --trace       print what happened in each world
  --mutants     plant bugs instead, and see that each is caught within ${SEEDS_MAX} seeds
  --part N/M    only every M-th mutant, from the N-th on
  --help        this text

Exit code 1: an invariant was violated, or a planted bug was not noticed.
`

/** How often it is told how far it has come. */
const PROGRESS_MS = 10_000

const KINDS = [
  { name: 'core', run: runWorld, check },
  { name: 'wire', run: runWireWorld, check: checkWire },
  { name: 'held', run: runHeldWorld, check: checkHeld },
] as const

const { values } = parseArgs({
  options: {
    seed: { type: 'string' },
    seeds: { type: 'string' },
    large: { type: 'boolean', default: false },
    only: { type: 'string', default: '' },
    trace: { type: 'boolean', default: false },
    mutants: { type: 'boolean', default: false },
    part: { type: 'string', default: '1/1' },
    help: { type: 'boolean', default: false },
  },
})

if (values.help) process.stdout.write(HELP)
else if (values.mutants) process.exitCode = (await runMutants(values.part)) ? 0 : 1
else process.exitCode = (await runWorlds()) ? 0 : 1

async function runWorlds(): Promise<boolean> {
  const seed = Number(values.seed ?? freshSeed())
  const seeds = Number(values.seeds ?? (values.seed === undefined ? 1_000 : 1))
  if (!Number.isSafeInteger(seed) || !Number.isSafeInteger(seeds)) throw new Error(HELP)
  const kinds = KINDS.filter(({ name }) => values.only === '' || values.only === name)
  if (kinds.length === 0) throw new Error(HELP)
  const names = kinds.map(({ name }) => name).join(' and ')
  console.log(`${names} worlds, seeds ${seed} to ${seed + seeds - 1}`)
  const size = values.large ? ({ size: 'large' } as const) : {}
  const startedAt = performance.now()
  let toldAt = startedAt
  const violated: string[] = []
  for (let run = 0; run < seeds; run += 1) {
    const world = { seed: seed + run, modules: REAL, ...size }
    for (const kind of kinds) {
      const history = await kind.run(world)
      const violations = kind.check(history)
      if (violations.length > 0) violated.push(`${kind.name} ${world.seed}`)
      print(history, violations, kind.name)
    }
    if (performance.now() - toldAt < PROGRESS_MS) continue
    toldAt = performance.now()
    console.log(`${run + 1} of ${seeds} seeds, ${violated.length} worlds violated`)
  }
  const speed = Math.round(seeds / ((performance.now() - startedAt) / 1_000))
  const found = violated.length === 0 ? '' : `: ${violated.join(', ')}`
  console.log(`${names} worlds, seeds ${seed} to ${seed + seeds - 1}, ${speed} seeds/s`)
  console.log(`${violated.length} worlds violated${found}`)
  return violated.length === 0
}

/** Another range for each run, far from those of `npm test`. */
function freshSeed(): number {
  return 1_000_000_000 + (Math.floor(Date.now() / 1_000) % 1_000_000_000)
}

function print(history: History, violations: readonly Violation[], kind: WorldKind): void {
  if (values.trace) for (const line of readable(history)) console.log(line)
  if (violations.length > 0) console.log(report(history, violations, kind))
}

async function runMutants(part: string): Promise<boolean> {
  const [first = 1, step = 1] = part.split('/').map(Number)
  let missed = 0
  for (const mutant of MUTANTS.filter((_, index) => index % step === first - 1)) {
    const caught = await hunt(mutant)
    if (caught === null) missed += 1
    const how =
      caught === null
        ? `NOT CAUGHT in ${SEEDS_MAX} seeds`
        : `caught by ${mutant.catches} in ${caught.seeds} seeds: ${caught.message}`
    console.log(`${mutant.name}: ${how}`)
  }
  return missed === 0
}
