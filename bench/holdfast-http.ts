/** Holdfast's server as users start it: SQLite, the echo agent, all defaults. */
import { openHoldfast } from 'holdfast'
import { startServer } from 'holdfast/server'
import { reportUsage } from './child.ts'

const holdfast = await openHoldfast({ store: `sqlite:${process.argv[2]}` })
const server = await startServer({ holdfast, port: 0 })
process.send?.(server.port)
reportUsage()
