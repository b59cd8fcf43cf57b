/** The CDP door before a Chromium of its own, in a process of its own. */
import { openHoldfast } from 'holdfast'
import { startServer } from 'holdfast/server'
import { reportUsage } from './child.ts'

const holdfast = await openHoldfast({ store: 'memory:' })
const server = await startServer({ holdfast, browsers: { chromium: { program: 'chromium' } } })
reportUsage()
process.send?.(`${server.url.replace('http', 'ws')}/cdp/chromium`)
