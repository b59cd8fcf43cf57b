/** Tools that drive browsers, in `.agents/browser-tools`. */
import { join } from 'node:path'
import { prepareFolder } from './npm-folder.mjs'
import { ROOT } from './prepare.mjs'

const TOOLS = {
  '@playwright/mcp': '0.0.83',
  'chrome-devtools-mcp': '1.11.0',
  lighthouse: '12.8.2',
  'puppeteer-core': '25.16.0',
  'selenium-webdriver': '4.46.0',
}

/** True if all of them are there, or could be installed. */
export function prepareBrowserTools() {
  // `test/support/browser-tools.ts` looks there too.
  return prepareFolder(join(ROOT, '.agents', 'browser-tools'), TOOLS)
}
