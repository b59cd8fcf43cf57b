/** A stock client in a process of its own, which works until it is killed. */
import { chromium } from 'playwright-core'
import puppeteer from 'puppeteer-core'

const [library, address, site] = process.argv.slice(2)

async function connected() {
  if (library === 'Puppeteer') {
    const browser = await puppeteer.connect({ browserWSEndpoint: address })
    return () => browser.newPage()
  }
  const browser = await chromium.connectOverCDP(address)
  const context = await browser.newContext()
  return () => context.newPage()
}

const newPage = await connected()
const pages = [await newPage(), await newPage()]
for (let n = 0; ; n += 1) {
  await Promise.all(pages.map((page) => page.goto(`${site}/${n}`)))
  await Promise.all(pages.map((page) => page.evaluate('document.title')))
  console.log(`round ${n}`)
}
