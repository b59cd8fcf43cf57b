import { defineConfig } from 'vitest/config'

/** Stock tools that drive browsers, and long forms of tests of the CDP door: minutes. */
export default defineConfig({
  test: {
    include: [
      'test/browsers/**/*.browsers.ts',
      'test/cdp/waiting-targets.test.ts',
      'test/e2e/inspector.test.ts',
      'test/e2e/vitest.test.ts',
    ],
    env: { HOLDFAST_WHOLE: '1' },
    setupFiles: ['test/support/setup.ts'],
    pool: 'forks',
    maxWorkers: 1,
    testTimeout: 180_000,
    hookTimeout: 180_000,
    expect: { poll: { timeout: 60_000, interval: 20 } },
  },
})
