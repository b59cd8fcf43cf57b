/** `npm run attack`: what ended the server once, again and for longer than `npm test` does. */
import { parseArgs } from 'node:util'
import { attack } from './attack.ts'
import { ATTACKS } from './attacks.ts'

const HELP = `npm run attack -- [--only NAME] [--seconds N] [--fuzzed N] [--seed N]
  --only NAME   one of: ${ATTACKS.map(({ name }) => name).join(', ')}
  --seconds N   how long each flood lasts (default 30)
  --fuzzed N    how many fuzzed requests and frames, half of each (default 100000)
  --seed N      which ones (default: a random one, printed)`

const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    seconds: { type: 'string', default: '30' },
    fuzzed: { type: 'string', default: '100000' },
    seed: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
})

if (values.help) {
  console.log(HELP)
} else {
  const seed = Number(values.seed ?? Math.floor(Math.random() * 1e9))
  const size = { ms: Number(values.seconds) * 1_000, fuzzed: Number(values.fuzzed), seed }
  console.log(`seed ${seed}`)
  const chosen = ATTACKS.filter(({ name }) => values.only === undefined || name === values.only)
  if (chosen.length === 0) {
    console.log(HELP)
    process.exitCode = 2
  }
  for (const one of chosen) {
    const { peakMb, rounds, slowestMs, problems } = await attack(one, size)
    console.log(
      `${one.name}: at most ${peakMb} MB of ${one.memoryMbMax}, good clients served ${rounds} times, ` +
        `the slowest in ${slowestMs} ms: ${problems.length} problems`,
    )
    for (const problem of problems.slice(0, 20)) console.log(`  ${problem}`)
    if (problems.length > 0) process.exitCode = 1
  }
}
