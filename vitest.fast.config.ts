import { availableParallelism } from 'node:os'
import { defineConfig } from 'vitest/config'

/**
 * The inner loop, `npm run test:fast`: under a minute, and nothing to install beyond npm packages.
 * `test/repository.test.ts` checks that each entry names a test, and that none of them needs a
 * browser, PostgreSQL or an agent.
 */
export const FAST_TESTS = [
  'src/**/*.test.ts',
  'test/client/*.test.ts',
  'test/declarations.test.ts',
  'test/conformance/stores.test.ts',
  'test/e2e/acp-door.test.ts',
  'test/e2e/acp-hostile.test.ts',
  'test/e2e/http.test.ts',
  'test/e2e/mounted.test.ts',
  'test/house-rules.test.ts',
  'test/reference/*.test.ts',
  'test/release.test.ts',
  'test/repository.test.ts',
  'test/scenarios/openclaw-3b1a3b2.test.ts',
  'test/scenarios/trinity-779.test.ts',
  'test/simulation/wire/plots.test.ts',
  'test/support/*.test.ts',
  'test/vectors/server.test.ts',
]

export default defineConfig({
  test: {
    include: FAST_TESTS,
    setupFiles: ['test/support/setup.ts'],
    pool: 'forks',
    maxWorkers: Math.max(2, availableParallelism()),
    // As in vitest.config.ts: long enough for a machine that has something else to do.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 60_000, interval: 20 } },
  },
})
