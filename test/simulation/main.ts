/** `npm run simulate -- --help`: worlds on demand, one seed in detail, or the planted bugs. */
import { parseArgs } from 'node:util'
import { check, type Violation } from './checker.ts'
import { readable, type History } from './history.ts'
import { REAL } from './modules.ts'
import { MUTANTS, SEEDS_MAX, hunt } from './mutants.ts'
import { report } from './report.ts'
import { checkWire } from './wire/checker.ts'
import { runWireWorld } from './wire/world.ts'
import { runWorld } from './world.ts'

const HELP = `Runs Holdfast in simulated worlds and checks the invariants of what happened.

  npm run simulate -- [options]

  --seed N      the first seed (1)
  --runs N      how many seeds, a world of each kind for each (1,000; with --seed alone: 1)
  --large       worlds that last longer
  --only KIND   only worlds of this kind: "core", nodes on a store, or "wire", clients on sockets
  --trace       print what happened in each world
  --mutants     plant bugs instead, and see that each is caught within ${SEEDS_MAX} seeds
  --part N/M    only every M-th mutant, from the N-th on
  --help        this text

Exit code 1: an invariant was violated, or a planted bug was not noticed.
`

const KINDS = [
  { name: 'core', run: runWorld, check },
  { name: 'wire', run: runWireWorld, check: checkWire },
] as const

const { values } = parseArgs({
  options: {
    seed: { type: 'string' },
    runs: { type: 'string' },
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
  const seed = Number(values.seed ?? 1)
  const runs = Number(values.runs ?? (values.seed === undefined ? 1_000 : 1))
  if (!Number.isSafeInteger(seed) || !Number.isSafeInteger(runs)) throw new Error(HELP)
  const size = values.large ? ({ size: 'large' } as const) : {}
  const startedAt = performance.now()
  let violated = 0
  for (let run = 0; run < runs; run += 1) {
    const world = { seed: seed + run, modules: REAL, ...size }
    for (const kind of KINDS.filter(({ name }) => values.only === '' || values.only === name)) {
      const history = await kind.run(world)
      const violations = kind.check(history)
      if (violations.length > 0) violated += 1
      print(history, violations, kind.name)
    }
    if ((run + 1) % 1_000 === 0) console.log(`${run + 1} seeds, ${violated} worlds violated`)
  }
  const seconds = (performance.now() - startedAt) / 1_000
  const speed = Math.round(runs / seconds)
  console.log(`${runs} seeds from ${seed} on, ${violated} worlds violated, ${speed} seeds/s`)
  return violated === 0
}

function print(history: History, violations: readonly Violation[], kind: 'core' | 'wire'): void {
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
