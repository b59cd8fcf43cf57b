/**
 * The lines of Lightpanda #2077 as a program of its own, for Playwright's assertion ends the
 * process that it happens in: `ADDRESS SITE ATTACHES`. Says each step that is done.
 */
import { chromium } from 'playwright-core'

const [address = '', site = '', attaches = '1'] = process.argv.slice(2)
const browser = await chromium.connectOverCDP(address)
const context = await browser.newContext()
context.setDefaultTimeout(5_000)
const page = await context.newPage()
await page.goto(`${site}/first`)
console.log('first goto')
for (let n = 0; n < Number(attaches); n += 1) {
  const session = await context.newCDPSession(page)
  if (n === 0) continue
  const { result } = await session.send('Runtime.evaluate', { expression: `${n}` })
  console.log(`session says ${result.value}`)
}
await page.goto(`${site}/other`)
console.log(`second goto: ${await page.title()}`)
await browser.close()
