/** A bare Node server that runs the statements of a turn for each request: `URL HEADERS BODY`. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { BareSessions } from './bare-postgres.ts'

const [url = '', name = '', keys = '', headers = '{}', body = ''] = process.argv.slice(2)
const bare = await BareSessions.open(url, name, Number(keys))
const given = JSON.parse(headers) as Record<string, string>
/** Each key is a session of its own, as far as there are some. */
const sessions = new Map<string, string>()

function sessionOf(path: string): string {
  const known = sessions.get(path)
  if (known !== undefined) return known
  const session = bare.ids[sessions.size % bare.ids.length] ?? ''
  sessions.set(path, session)
  return session
}

const server = createServer((request, response) => {
  request.resume().on('end', () => {
    void bare.turn(sessionOf(request.url ?? '')).then(() => {
      response.writeHead(200, given).end(body)
    })
  })
})
server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port))
