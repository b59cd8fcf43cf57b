/**
 * The client of the HTTP measurements: Node's own, keep-alive, so many callers, so many keys. Each
 * key is always used with the same one of the tokens, if there are any.
 */
import { Agent, request } from 'node:http'
import type { LoadOrder } from './http-load.ts'
import { drive, INPUT } from './measure.ts'

const order = JSON.parse(process.argv[2] ?? '{}') as LoadOrder
const { port, callers, keys, seconds, path = '/v1/keys/KEY/turns', tokens = [] } = order
const agent = new Agent({ keepAlive: true, maxSockets: callers })
const run = Math.random().toString(36).slice(2)
const body = JSON.stringify({ input: INPUT })

function turn(caller: number, n: number): Promise<void> {
  const key = (caller + n * callers) % keys
  const token = tokens[key % tokens.length]
  const headers = {
    'content-type': 'application/json',
    'content-length': body.length,
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
  }
  const target = path.replace('KEY', `${run}-${key}`)
  return new Promise((resolve, reject) => {
    const sent = request(
      { port, host: '127.0.0.1', method: 'POST', path: target, headers, agent },
      (answer) => {
        if (answer.statusCode !== 200) reject(new Error(`status ${answer.statusCode}`))
        answer.resume().on('end', resolve)
      },
    )
    sent.on('error', reject).end(body)
  })
}

await drive(callers, 1, turn)
process.send?.('warm')
process.once('message', () => {
  void drive(callers, seconds, turn).then((load) => process.send?.(load))
})
