/** `npm run chaos`: three nodes, a load and clients while everything goes wrong, and a checker. */
import { parseArgs } from 'node:util'
import { chaos } from './chaos.ts'
import { playAll } from './plots.ts'
import { BUGS, FAULTS, type Bug, type Fault } from './world.ts'

const HELP = `npm run chaos -- [--faults N] [--seed N] [--bug NAME] [--plots]
  --faults N   how often something goes wrong (default 60, some minutes)
  --seed N     what and when (default: a random one, printed)
  --bug NAME   plant a bug that must be found: ${BUGS.slice(1).join(', ')}
  --only KIND  only faults of this kind; may be repeated: ${FAULTS.join(', ')}
  --plots      instead: each planted bug in the very moment in which it must show`

const { values } = parseArgs({
  options: {
    faults: { type: 'string', default: '60' },
    seed: { type: 'string' },
    bug: { type: 'string', default: 'none' },
    only: { type: 'string', multiple: true },
    plots: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})

if (values.help) console.log(HELP)
else if (values.plots) process.exitCode = (await playAll((line) => console.log(line))) ? 0 : 1
else process.exitCode = (await runChaos()) ? 0 : 1

async function runChaos(): Promise<boolean> {
  const seed = Number(values.seed ?? Math.floor(Math.random() * 1e9))
  console.log(`seed ${seed}`)
  const { problems, faults, counts } = await chaos({
    seed,
    faults: Number(values.faults),
    bug: values.bug as Bug,
    ...(values.only === undefined ? {} : { kinds: values.only as Fault[] }),
    tell: (line) => console.log(line),
  })
  const sums = Object.entries(counts).map(([name, count]) => `${name} ${count}`)
  console.log(`${faults.length} faults; ${sums.join(', ')}: ${problems.length} problems`)
  for (const problem of problems.slice(0, 50)) console.log(problem)
  return problems.length === 0
}
