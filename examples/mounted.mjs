// Holdfast below a path of your own HTTP server: node examples/mounted.mjs
import { createServer } from 'node:http'
import { openHoldfast } from 'holdfast'
import { connect } from 'holdfast/client'
import { createHandler } from 'holdfast/server'
import { WebSocket } from 'ws' // Node 22 and browsers have one

const hold = await openHoldfast({
  store: 'memory:',
  agents: { parrot: async (turn) => `you said: ${turn.text}` },
})
const holdfast = createHandler(hold, { basePath: '/holdfast' })

const server = createServer((request, response) => {
  holdfast.request(request, response, () => response.end('my own page'))
})
server.on('upgrade', (request, socket, head) => {
  if (!holdfast.upgrade(request, socket, head)) socket.destroy()
})
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
const url = `http://127.0.0.1:${server.address().port}`

console.log(await (await fetch(url)).text()) // my own page

// The inspector is at `${url}/holdfast/`, the API below it.
const answer = await fetch(`${url}/holdfast/v1/keys/alice/turns`, {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ input: 'hello' }),
})
console.log((await answer.json()).turn.reply.text) // you said: hello

const client = connect({ url: `${url}/holdfast`, webSocket: WebSocket })
const session = client.session({ key: 'alice' })
console.log((await session.turn('hello again')).reply.text) // you said: hello again
session.leave()

await holdfast.close({ closeHoldfast: true }) // first: it ends its streams and sockets
server.close()
