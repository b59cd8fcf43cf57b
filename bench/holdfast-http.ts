/**
 * Holdfast's server as users start it: the echo agent, all defaults. With a tokens file also those,
 * and with quotas for every principal.
 */
import { openHoldfast } from 'holdfast'
import { openTokenFile, startServer } from 'holdfast/server'
import { reportUsage } from './child.ts'

type Given = { readonly store: string; readonly tokens?: string; readonly quotas?: object }

const { store, tokens, quotas } = JSON.parse(process.argv[2] ?? '{}') as Given
const holdfast = await openHoldfast({ store, ...(quotas === undefined ? {} : { quotas }) })
const options = tokens === undefined ? {} : { tokens: await openTokenFile(tokens) }
const server = await startServer({ holdfast, port: 0, ...options })
process.send?.(server.port)
reportUsage()
