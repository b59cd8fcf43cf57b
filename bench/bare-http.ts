/** The physical limit of the HTTP measurements: a Node server that reads a request and answers fixed bytes. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { endWithParent } from './child.ts'

const headers = JSON.parse(process.argv[2] ?? '{}') as Record<string, string>
const body = process.argv[3] ?? ''

const server = createServer((request, response) => {
  request.resume().on('end', () => response.writeHead(200, headers).end(body))
})
server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port))
endWithParent()
