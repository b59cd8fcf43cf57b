import { defineConfig } from 'vitest/config'

/** Stock clients of OpenAI's API and of ACP: seconds, and 300 MB. `npm run e2e:clients` has them ready. */
export default defineConfig({
  test: {
    include: ['test/clients/**/*.clients.ts'],
    setupFiles: ['test/support/setup.ts'],
    pool: 'forks',
    maxWorkers: 1,
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
})
