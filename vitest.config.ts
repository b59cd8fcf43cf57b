import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['src/**/*.test.ts', 'test/**/*.test.ts'],
    exclude: ['**/node_modules/**', 'dist/**', '.build/**'],
    setupFiles: ['test/support/setup.ts'],
    // Processes, not threads: tests load a native database driver and send signals. One more than a
    // small machine has cores, since many tests wait for leases and grace times.
    pool: 'forks',
    maxWorkers: 3,
    // No limit here is what a test proves: each is only how long to wait for what will not happen any
    // more, and is long enough for a machine that has something else to do.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 60_000, interval: 20 } },
    teardownTimeout: 10_000,
  },
})
