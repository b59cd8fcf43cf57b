/** `holdfast cdp`: a local port for a browser behind Holdfast, over connections that resume. */
import { startRelay, type RelayOptions } from '../cdp/index.ts'
import { defineCommand, NO_OPERANDS } from './command.ts'
import { number, orElse, required, text, UsageError } from './flags.ts'
import { say } from './output.ts'

export const cdp = defineCommand({
  name: 'cdp',
  operands: NO_OPERANDS,
  summary:
    'Offers a browser behind Holdfast on a local port, over connections that survive a bad ' +
    'network. If the remote server requires a token, set HOLDFAST_TOKEN in the environment.',
  flags: {
    remote: required(text('URL', 'the browser: http://HOST/cdp/NAME')),
    listen: orElse(
      number('PORT', 'the port on loopback; 0: any free port', { min: 0, max: 65_535 }),
      9222,
    ),
    key: text(
      'KEY',
      'the browser session that all clients of the relay share; without it a new one',
    ),
  },
  async run({ remote, listen, key }) {
    if (!URL.canParse(remote) || !/^(ws|http)s?:/i.test(remote)) {
      throw new UsageError('--remote must be an address like http://HOST/cdp/NAME')
    }
    const { HOLDFAST_TOKEN: token } = process.env
    const { port, close } = await startRelay({
      remote,
      port: listen,
      ...(key === null ? {} : { key }),
      ...(token === undefined ? {} : { token }),
      onState: stateReporter(),
    })
    say(`listening on http://127.0.0.1:${port}`)
    await new Promise<void>((resolve) => {
      process.once('SIGINT', () => resolve())
      process.once('SIGTERM', () => resolve())
    })
    await close()
    return 0
  },
})

/** Prints when a connection is lost, is back, and has ended. */
function stateReporter(): NonNullable<RelayOptions['onState']> {
  const lost = new Set<number>()
  return (state, reason, connection) => {
    if (state === 'lost') {
      lost.add(connection)
      say(`connection ${connection} is lost: ${reason}`)
    }
    if (state === 'live' && lost.delete(connection)) say(`connection ${connection} is back`)
    if (state === 'over') {
      lost.delete(connection)
      say(`connection ${connection} is over: ${reason}`)
    }
  }
}
