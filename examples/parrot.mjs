// The twenty lines of the README: node examples/parrot.mjs
import { openHoldfast } from 'holdfast'

const hold = await openHoldfast({
  store: `sqlite:${process.argv[2] ?? './parrot.db'}`,
  agents: {
    async *parrot(turn) {
      for (const word of turn.text.split(' ')) yield `${word} `
    },
  },
})

// Any number of callers, one session: the turns run one at a time, each reply goes to its own caller.
const session = await hold.resolve({ key: 'chat:alice' })
const [first, second] = await Promise.all([session.turn('hello there'), session.turn('and again')])
console.log(first.reply.text, '|', second.reply.text)

for await (const part of session.turn('word by word')) console.log(part) // as it comes
for await (const { role, text } of session.messages()) console.log(`${role}: ${text}`)

await session.close()
await hold.close()
