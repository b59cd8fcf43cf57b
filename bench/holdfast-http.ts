/**
 * Holdfast's server as users start it: SQLite, the echo agent, all defaults. With a tokens file
 * also those, and with a second argument quotas for every principal.
 */
import { openHoldfast } from 'holdfast'
import { openTokenFile, startServer } from 'holdfast/server'
import { reportUsage } from './child.ts'

const [file, tokens, quotas] = process.argv.slice(2)
const holdfast = await openHoldfast({
  store: `sqlite:${file}`,
  ...(quotas === undefined ? {} : { quotas: JSON.parse(quotas) as object }),
})
const options = tokens === undefined ? {} : { tokens: await openTokenFile(tokens) }
const server = await startServer({ holdfast, port: 0, ...options })
process.send?.(server.port)
reportUsage()
