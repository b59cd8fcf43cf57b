/** An agent that is a program: `ticker.mjs WITNESS`, with `NAME MS` as its input, says when it runs. */
import { appendFileSync } from 'node:fs'
import { text } from 'node:stream/consumers'

const TICK_MS = 25

const [, , witness] = process.argv
const input = await text(process.stdin)
const until = Date.now() + Number(input.split(' ')[1])
const tick = () => {
  const line = { at: Date.now(), type: 'tick', session: 'program', run: String(process.pid) }
  appendFileSync(witness, `${JSON.stringify(line)}\n`)
}
for (tick(); Date.now() < until; tick())
  await new Promise((resolve) => setTimeout(resolve, TICK_MS))
process.stdout.write(input)
