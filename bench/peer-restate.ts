/**
 * What a user would build on Restate: a virtual object whose handler records one state change and
 * answers. Its server runs with two partitions, as many as this machine has cores.
 */
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type Http2ServerRequest, type Http2ServerResponse } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { freePort } from '../test/support/server-process.ts'
import { endWithParent } from './child.ts'
import { loadPeer, peerFile } from './peers.ts'

type Context = { set(name: string, value: string): void }
type Restate = {
  object(definition: object): object
  endpoint(): {
    bind(object: object): {
      http2Handler(): (request: Http2ServerRequest, response: Http2ServerResponse) => void
    }
  }
}

process.env['RESTATE_LOGGING'] = 'ERROR'
const restate = loadPeer('@restatedev/restate-sdk') as Restate
const turn = async (context: Context, { input }: { input: string }) => {
  context.set('last', input)
  return { text: input }
}
const handler = restate
  .endpoint()
  .bind(restate.object({ name: 'Session', handlers: { turn } }))
  .http2Handler()
const endpoint = createServer(handler)
await new Promise<void>((resolve) => endpoint.listen(0, '127.0.0.1', resolve))

const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-restate-'))
const [ingress, admin, node] = [await freePort(), await freePort(), await freePort()]
const program = peerFile('@restatedev/restate-server-linux-x64/bin/restate-server')
const server = spawn(program, ['--base-dir', folder], {
  stdio: 'ignore',
  env: {
    ...process.env,
    RESTATE_INGRESS__BIND_ADDRESS: `127.0.0.1:${ingress}`,
    RESTATE_ADMIN__BIND_ADDRESS: `127.0.0.1:${admin}`,
    RESTATE_BIND_ADDRESS: `127.0.0.1:${node}`,
    RESTATE_ADVERTISED_ADDRESS: `http://127.0.0.1:${node}`,
    RESTATE_DEFAULT_NUM_PARTITIONS: '2',
    RESTATE_DISABLE_TELEMETRY: 'true',
    RESTATE_LOG_FILTER: 'error',
  },
})
process.once('exit', () => {
  server.kill('SIGKILL')
  rmSync(folder, { recursive: true, force: true })
})
endWithParent()

const uri = `http://127.0.0.1:${(endpoint.address() as AddressInfo).port}`
const register = (): Promise<boolean> =>
  fetch(`http://127.0.0.1:${admin}/deployments`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ uri }),
  }).then(
    (answer) => answer.ok,
    () => false,
  )
while (!(await register())) await setTimeout(200)
process.send?.(ingress)
