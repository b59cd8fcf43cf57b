/**
 * A limit of the HTTP measurements: a Node server that commits the turns of a key one by one, in the
 * order of arrival, and then answers. A serial queue needs a commit for each turn, since no turn
 * runs before its start is durable. Turns of several keys share a commit.
 */
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { endWithParent } from './child.ts'
import { BareLog } from './bare-sqlite.ts'

type Turn = { readonly response: ServerResponse; readonly input: string }

const log = new BareLog(process.argv[2] ?? '')
const queues = new Map<string, Turn[]>()
let isDue = false

const server = createServer((request, response) => {
  const chunks: Buffer[] = []
  request.on('data', (chunk: Buffer) => chunks.push(chunk))
  request.on('end', () => {
    const { input } = JSON.parse(Buffer.concat(chunks).toString()) as { input: string }
    const key = request.url ?? ''
    const queue = queues.get(key)
    if (queue === undefined) queues.set(key, [{ response, input }])
    else queue.push({ response, input })
    commitSoon()
  })
})

function commitSoon(): void {
  if (isDue) return
  isDue = true
  setImmediate(commitNext)
}

function commitNext(): void {
  isDue = false
  const turns: Turn[] = []
  const keys = [...queues.keys()]
  for (const [key, queue] of queues) {
    turns.push(queue.shift() as Turn)
    if (queue.length === 0) queues.delete(key)
  }
  log.commit(keys, ['message.added', 'turn.done', 'turn.started'])
  for (const { response, input } of turns) {
    response.setHeader('content-type', 'application/json').end(JSON.stringify({ text: input }))
  }
  if (queues.size > 0) commitSoon()
}

server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port))
endWithParent()
