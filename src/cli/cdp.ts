/** `holdfast cdp`: a local port that leads to a browser behind Holdfast, and comes back. */
import { startRelay, type RelayOptions } from '../cdp/index.ts'
import { numberFlag, textFlag, UsageError, type Command, type Values } from './command.ts'
import { say } from './log.ts'

export const cdp: Command = {
  name: 'cdp',
  usage: 'cdp --remote URL [--listen PORT] [--key KEY]',
  summary: 'Offers a browser behind Holdfast on a local port, over connections that come back.',
  flags: {
    remote: { type: 'string' },
    listen: { type: 'string' },
    key: { type: 'string' },
  },
  help: [
    ['--remote URL', 'the browser: http://HOST/cdp/NAME'],
    ['--listen PORT', 'the port on this machine; 0: any that is free (9222)'],
    ['--key KEY', 'the browser session to use; without it a fresh one'],
    ['HOLDFAST_TOKEN', 'in the environment: the token for the remote, if it wants one'],
  ],
  run: relay,
}

async function relay(values: Values, words: readonly string[]): Promise<number> {
  const [remote, key] = [textFlag(values, 'remote'), textFlag(values, 'key')]
  if (words[0] !== undefined) throw new UsageError(`cdp takes no ${words[0]}: flags only`)
  if (remote === null || !isAddress(remote)) {
    throw new UsageError('--remote must be an address like http://HOST/cdp/NAME')
  }
  const port = numberFlag(values, 'listen', { fallback: 9222, min: 0, max: 65_535 })
  const { HOLDFAST_TOKEN: token } = process.env
  const { port: listening, close } = await startRelay({
    remote,
    port,
    ...(key === null ? {} : { key }),
    ...(token === undefined ? {} : { token }),
    onState: stateTeller(),
  })
  say(`listening on http://127.0.0.1:${listening}`)
  await new Promise<void>((resolve) => {
    process.once('SIGINT', () => resolve())
    process.once('SIGTERM', () => resolve())
  })
  await close()
  return 0
}

/** Says of each connection that it is lost, that it is back, and that it is over. */
function stateTeller(): NonNullable<RelayOptions['onState']> {
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

function isAddress(text: string): boolean {
  return URL.canParse(text) && /^(ws|http)s?:/i.test(text)
}
