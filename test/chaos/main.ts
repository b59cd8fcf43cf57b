/** `npm run chaos`: three nodes and a load while everything goes wrong, and a checker. */
import { parseArgs } from 'node:util'
import { chaos } from './chaos.ts'
import type { Bug, Fault } from './world.ts'

const HELP = `npm run chaos -- [--faults N] [--seed N] [--bug NAME]
  --faults N   how often something goes wrong (default 60, some minutes)
  --seed N     what and when (default: a random one, printed)
  --bug NAME   plant a bug that must be found: no-fence, no-lease, no-doubt
  --only KIND  only faults of this kind; may be repeated`

const { values } = parseArgs({
  options: {
    faults: { type: 'string', default: '60' },
    seed: { type: 'string' },
    bug: { type: 'string', default: 'none' },
    only: { type: 'string', multiple: true },
    help: { type: 'boolean', default: false },
  },
})

if (values.help) {
  console.log(HELP)
} else {
  const seed = Number(values.seed ?? Math.floor(Math.random() * 1e9))
  console.log(`seed ${seed}`)
  const { problems, faults, acknowledged, unknown, events } = await chaos({
    seed,
    faults: Number(values.faults),
    bug: values.bug as Bug,
    ...(values.only === undefined ? {} : { kinds: values.only as Fault[] }),
    tell: (line) => console.log(line),
  })
  console.log(
    `${faults.length} faults, ${acknowledged} turns acknowledged, ${unknown} of unknown outcome, ` +
      `${events} events: ${problems.length} problems`,
  )
  for (const problem of problems.slice(0, 50)) console.log(problem)
  process.exitCode = problems.length === 0 ? 0 : 1
}
