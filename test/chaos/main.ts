/** `npm run chaos`: three nodes, a load and clients while everything goes wrong, and a checker. */
import { parseArgs } from 'node:util'
import { chaos } from './chaos.ts'
import { playAll } from './plots.ts'
import { BUGS, FAULTS, type Bug, type Fault } from './world.ts'

const HELP = `npm run chaos -- [--plots] [--bug NAME] [--faults N] [--seed N] [--only KIND]
First each guard of the protocol is put to the test in the very moment in which it alone stands
between a fault and a wrong, and shown to be missed when it is taken away. Then faults by chance.
  --plots      only the former
  --bug NAME   take a guard away, which must be noticed: ${BUGS.slice(1).join(', ')}
  --faults N   how often something goes wrong by chance (default 60, some minutes)
  --seed N     what and when (default: a random one, printed); then only the latter
  --only KIND  only faults of this kind; may be repeated: ${FAULTS.join(', ')}`

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

const bug = values.bug as Bug
if (values.help) console.log(HELP)
else if (!BUGS.includes(bug)) throw new Error(`there is no bug ${bug}: ${BUGS.join(', ')}`)
else process.exitCode = (await run()) ? 0 : 1

async function run(): Promise<boolean> {
  const tell = (line: string): void => console.log(line)
  const isRight = values.seed !== undefined || (await playAll(bug, tell))
  return values.plots ? isRight : (await runChaos()) && isRight
}

async function runChaos(): Promise<boolean> {
  const seed = Number(values.seed ?? Math.floor(Math.random() * 1e9))
  console.log(`seed ${seed}`)
  const { problems, faults, counts } = await chaos({
    seed,
    faults: Number(values.faults),
    bug,
    ...(values.only === undefined ? {} : { kinds: values.only as Fault[] }),
    tell: (line) => console.log(line),
  })
  const sums = Object.entries(counts).map(([name, count]) => `${name} ${count}`)
  console.log(`${faults.length} faults; ${sums.join(', ')}: ${problems.length} problems`)
  for (const problem of problems.slice(0, 50)) console.log(problem)
  return problems.length === 0
}
