/**
 * The client of the HTTP measurements: Node's own, keep-alive, so many callers, so many keys. Each
 * key is always used with the same one of the tokens, if there are any.
 */
import { Agent, request } from 'node:http'
import { drive } from './measure.ts'

const [port = '', callers = '', keys = '', seconds = '', ...tokens] = process.argv.slice(2)
const agent = new Agent({ keepAlive: true, maxSockets: Number(callers) })
const run = Math.random().toString(36).slice(2)

function turn(caller: number, n: number): Promise<void> {
  const key = (caller + n * Number(callers)) % Number(keys)
  const body = JSON.stringify({ input: 'hello, is anybody there?' })
  const token = tokens[key % tokens.length]
  const headers = {
    'content-type': 'application/json',
    'content-length': body.length,
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
  }
  const path = `/v1/keys/${run}-${key}/turns`
  return new Promise((resolve, reject) => {
    const sent = request(
      { port, host: '127.0.0.1', method: 'POST', path, headers, agent },
      (answer) => {
        if (answer.statusCode !== 200) reject(new Error(`status ${answer.statusCode}`))
        answer.resume().on('end', resolve)
      },
    )
    sent.on('error', reject).end(body)
  })
}

await drive(Number(callers), 1, turn)
process.send?.('warm')
process.once('message', () => {
  void drive(Number(callers), Number(seconds), turn).then((load) => process.send?.(load))
})
