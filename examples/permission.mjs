// An agent that asks before it acts, and a client that answers: node examples/permission.mjs
import { openHoldfast } from 'holdfast'

const hold = await openHoldfast({
  store: 'memory:',
  agents: {
    async careful(turn, context) {
      const outcome = await context.ask({
        kind: 'permission',
        question: `May I delete ${turn.text}?`,
        options: ['allow', 'deny'],
        timeoutMs: 60_000,
        onNobody: 'deny', // do not wait for a client that is not there
      })
      if (outcome.outcome !== 'answered') return `left alone: ${outcome.outcome}`
      return outcome.answer === 'allow' ? `deleted ${turn.text}` : 'left alone: denied'
    },
  },
})

const session = await hold.resolve({ key: 'cleaner' })
const alone = await session.turn('notes.txt')
console.log(alone.reply.text) // left alone: nobody_to_ask

const client = await session.attach({ answers: ['permission'] })
const { seq } = await session.state()
const turn = session.turn('notes.txt')
for await (const event of session.events({ after: seq })) {
  if (event.type === 'ask.opened') await client.answer(event.ask, 'allow')
  if (event.type === 'turn.done') break
}
console.log((await turn).reply.text) // deleted notes.txt
await hold.close()
