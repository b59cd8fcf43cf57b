/** A stock client in the middle of its work, for a test to kill: `ADDRESS SITE`. */
import puppeteer from 'puppeteer-core'

const [browserWSEndpoint = '', site = ''] = process.argv.slice(2)
const browser = await puppeteer.connect({ browserWSEndpoint })
const context = await browser.createBrowserContext()
const pages = await Promise.all([browser.newPage(), context.newPage()])
const sessions = await Promise.all(pages.map((page) => page.createCDPSession()))
// Requests that it never lets go on, and a script that waits in the debugger.
await sessions[0].send('Fetch.enable')
await sessions[1].send('Debugger.enable')
sessions[1].once('Debugger.paused', () => console.log('in the middle'))
pages[0].goto(`${site}/held`).catch(() => undefined)
await pages[1].evaluate('debugger')
