// Holdfast in an Express app: node examples/mounted-express.mjs
import express from 'express'
import { openHoldfast } from 'holdfast'
import { createHandler } from 'holdfast/server'

const hold = await openHoldfast({
  store: 'memory:',
  agents: { parrot: async (turn) => `you said: ${turn.text}` },
})
const holdfast = createHandler(hold, { basePath: '/holdfast' })

const app = express()
app.use(holdfast.request) // without a path, and before anything that reads bodies
app.use(express.json())
app.get('/', (request, response) => response.send('my own page'))

const server = app.listen(0, '127.0.0.1')
server.on('upgrade', (request, socket, head) => {
  if (!holdfast.upgrade(request, socket, head)) socket.destroy()
})
await new Promise((resolve) => server.once('listening', resolve))
const url = `http://127.0.0.1:${server.address().port}`

console.log(await (await fetch(url)).text()) // my own page

const answer = await fetch(`${url}/holdfast/v1/keys/alice/turns`, {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ input: 'hello' }),
})
console.log((await answer.json()).turn.reply.text) // you said: hello

await holdfast.close({ closeHoldfast: true })
server.close()
