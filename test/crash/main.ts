/** `npm run crash`: kill -9 the real server again and again, or look at its syncs with strace. */
import { parseArgs } from 'node:util'
import { killLoop } from './kills.ts'
import { traceSyncs } from './syncs.ts'

const HELP = `npm run crash -- [--kills N] [--seed N] [--trace]
  --kills N   how often the server is killed (default 100)
  --seed N    when (default: a random one, printed)
  --trace     instead: run it under strace and check that nothing is acknowledged before it is synced`

const { values } = parseArgs({
  options: {
    kills: { type: 'string', default: '100' },
    seed: { type: 'string' },
    trace: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})

async function kill(): Promise<readonly string[]> {
  const seed = Number(values.seed ?? Math.floor(Math.random() * 1e9))
  console.log(`seed ${seed}`)
  const report = await killLoop({
    kills: Number(values.kills),
    seed,
    onKill: (number, acknowledged) => {
      if (number % 10 === 0) console.log(`${number} kills, ${acknowledged} turns acknowledged`)
    },
  })
  const { kills, acknowledged, heard, sessions, events, interrupted, broken } = report
  console.log(
    `${kills} kills, ${acknowledged} acknowledged turns, ${sessions} sessions, ${events} events, ` +
      `${interrupted} interrupted turns, ${heard} seen in the log before: ${broken.length} problems`,
  )
  return broken
}

async function trace(): Promise<readonly string[]> {
  const { acknowledged, syncs, early } = await traceSyncs(500)
  console.log(`${acknowledged} acknowledgements, ${syncs} syncs: ${early.length} before their sync`)
  return early
}

if (values.help) {
  console.log(HELP)
} else {
  const problems = await (values.trace ? trace() : kill())
  for (const problem of problems.slice(0, 50)) console.log(problem)
  process.exitCode = problems.length === 0 ? 0 : 1
}
