import { defineConfig } from 'vitest/config'

/** The real agents: minutes, and gigabytes to install. `npm run e2e:agents` has them ready. */
export default defineConfig({
  test: {
    include: ['test/agents/**/*.agents.ts'],
    setupFiles: ['test/support/setup.ts'],
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 180_000,
    hookTimeout: 60_000,
  },
})
