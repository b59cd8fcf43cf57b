/** `holdfast cdp`: a local port for a browser behind Holdfast, over connections that resume. */
import { once } from 'node:events'
import { startRelay, type RelayOptions } from '../cdp/index.ts'
import { defineCommand, number, text, UsageError } from './command.ts'
import { say } from './output.ts'
import { withScheme } from './remote.ts'

export const cdp = defineCommand({
  name: 'cdp',
  summary:
    'Offers a browser behind Holdfast on a local port, over connections that survive a bad ' +
    'network. If the remote server requires a token, set HOLDFAST_TOKEN in the environment.',
  flags: {
    remote: text('URL', 'the browser: http://HOST/cdp/NAME').required(),
    listen: number('PORT', 'the port on loopback; 0: any free port').between(0, 65_535).or(9222),
    key: text(
      'KEY',
      'the browser session that all clients of the relay share; without it a new one',
    ),
  },
  async run({ remote: given, listen, key }) {
    const remote = withScheme(given)
    if (!URL.canParse(remote) || !/^(ws|http)s?:/i.test(remote)) {
      throw new UsageError('--remote must be an address like http://HOST/cdp/NAME')
    }
    const { HOLDFAST_TOKEN: token } = process.env
    const onState = stateReporter()
    const relay = await startRelay({ remote, port: listen, key: key ?? undefined, token, onState })
    say(`listening on http://127.0.0.1:${relay.port}`)
    await Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')])
    await relay.close()
  },
})

/** Prints when a connection is lost, is back, and has ended. */
function stateReporter(): NonNullable<RelayOptions['onState']> {
  const lost = new Set<number>()
  return (state, reason, connection) => {
    if (state === 'connecting') return
    const wasLost = lost.delete(connection)
    if (state === 'lost') lost.add(connection)
    if (state === 'lost' || state === 'over') say(`connection ${connection} is ${state}: ${reason}`)
    if (state === 'live' && wasLost) say(`connection ${connection} is back`)
  }
}
