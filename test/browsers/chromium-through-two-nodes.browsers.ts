/** The scenarios with a real Chromium, unchanged, through two nodes on one PostgreSQL. */
import { throughTwoNodes } from '../support/through-two-nodes.ts'

throughTwoNodes(10, async () => {
  await import('../scenarios/lightpanda-2077.test.ts')
  await import('../scenarios/vitest-10537-chromium.test.ts')
})
