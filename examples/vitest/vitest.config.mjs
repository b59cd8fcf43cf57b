// PROVIDER=preview: a page that a person opens; else headless Chromium.
// HOLDFAST=off: Vitest as it is. HOLDFAST=none|early|resume|reopen: with that reconnect policy.
import { playwright } from '@vitest/browser-playwright'
import { preview } from '@vitest/browser-preview'
import { holdfast } from 'holdfast/vitest'
import { defineConfig } from 'vitest/config'
import { breakable } from './breakable.mjs'

const { PROVIDER = 'playwright', HOLDFAST = 'resume', CHROMIUM } = process.env
const isPreview = PROVIDER === 'preview'
const chromium = {
  ...(CHROMIUM === undefined ? {} : { executablePath: CHROMIUM }),
  args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking'],
}

export default defineConfig({
  plugins: [
    breakable(),
    ...(HOLDFAST === 'off' ? [] : [holdfast({ reconnect: HOLDFAST, graceMs: 10_000 })]),
  ],
  test: {
    include: ['tests/*.test.js'],
    browser: {
      enabled: true,
      headless: !isPreview,
      // Said, because Vitest leaves its page's interface out where it finds CI in the environment.
      ui: isPreview,
      provider: isPreview ? preview() : playwright({ launchOptions: chromium }),
      instances: [{ browser: 'chromium' }],
    },
  },
})
